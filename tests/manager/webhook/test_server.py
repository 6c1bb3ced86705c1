"""The server: what it answers over HTTPS, when it begins, and how it ends."""

import asyncio
import base64
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from typing import Any

import httpx
import prometheus_client
import pytest
from tests.kube.conftest import ApiServer
from tests.manager.webhook.world import (
    cluster_of,
    context_of,
    free_address,
    pod_review,
    running,
    stored,
)
from tests.waiting import until

from cotenant.kube.client import Client
from cotenant.manager import controller
from cotenant.manager.webhook.registering import WebhookRegistrar
from cotenant.manager.webhook.server import WebhookServer
from cotenant.manager.webhook.source import Source
from cotenant.units.clock import SystemClock

pytestmark = pytest.mark.usefixtures("soon")


@contextlib.asynccontextmanager
async def serving(api: ApiServer, client: Client) -> AsyncIterator[tuple[httpx.AsyncClient, controller.Context]]:
    """A webhook that answers, and a client that trusts it."""
    cluster_of(api)
    address = free_address()
    context = context_of(client, SystemClock(), listen=address, register=True)
    async with running(WebhookRegistrar(), context), running(WebhookServer(), context):
        await until(lambda: stored(api, "ca.crt") and not context.readiness.waiting)
        authority = ssl.create_default_context(cadata=base64.b64decode(stored(api, "ca.crt") or "").decode())
        async with httpx.AsyncClient(verify=authority, base_url=f"https://{address}") as ask:
            yield ask, context


async def asked(ask: httpx.AsyncClient, path: str, value: dict[str, Any], **request: Any) -> dict[str, Any]:
    """Return the response to a review of an object."""
    answer = (await ask.post(path, json=pod_review(value, **request))).json()
    assert answer["response"]["uid"] == "u1"
    return dict(answer["response"])


POD = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]}}


async def test_pods_over_https_with_what_the_cluster_says(api: ApiServer, client: Client) -> None:
    async with serving(api, client) as (ask, context):
        changed = await asked(ask, "/mutate-pods", POD)
        patch = {one["path"]: one for one in json.loads(base64.b64decode(changed["patch"]))}
        assert patch["/spec/priorityClassName"]["value"] == "koord-batch"
        assert patch["/metadata/labels"]["value"] == {"koordinator.sh/qosClass": "BE"}
        labelled = {"metadata": {"name": "web", "labels": {"koordinator.sh/qosClass": "LSR"}}, "spec": {}}
        refused = await asked(ask, "/validate-pods", labelled)
        assert refused["allowed"] is False
        assert "whole cores" in refused["status"]["message"]
        elsewhere = await ask.post("/mutate-pods", json=pod_review(POD, namespace="gone"))
        assert (elsewhere.status_code, "namespace gone" in elsewhere.text) == (503, True)
    text = prometheus_client.generate_latest(context.metrics).decode()
    for line in (
        'cotenant_webhook_requests_total{path="/mutate-pods",result="changed"} 1.0',
        'cotenant_webhook_requests_total{path="/mutate-pods",result="unprepared"} 1.0',
        'cotenant_webhook_requests_total{path="/validate-pods",result="refused"} 1.0',
        'cotenant_webhook_profiles{state="ready"} 1.0',
        'cotenant_webhook_profiles{state="refused"} 1.0',
        'cotenant_webhook_profile_applied_total{profile="batch"} 1.0',
        'cotenant_webhook_synced{kind="namespaces"} 1.0',
        "cotenant_webhook_certificate_expires_seconds",
    ):
        assert line in text


async def test_profiles_and_configuration(api: ApiServer, client: Client) -> None:
    async with serving(api, client) as (ask, _):
        wrong = {"metadata": {"name": "p"}, "spec": {"probability": "200%", "qosClass": "X"}}
        refused = await asked(ask, "/validate-profiles", wrong)
        assert len(refused["status"]["message"].split("; ")) == 2
        later = {"metadata": {"name": "p"}, "spec": {"priorityClassName": "later", "qosClas": "BE"}}
        warned = await asked(ask, "/validate-profiles", later)
        assert warned["allowed"] is True
        assert warned["warnings"][0] == "spec.qosClas: nobody knows this field"
        assert "no PriorityClass later" in warned["warnings"][1]

        data = {"colocation-config": "{", "resource-threshold-config": "{}"}
        place = {"namespace": "koordinator-system", "name": ""}
        config = {"metadata": {"name": "slo-controller-config"}, "data": data}
        refused = await asked(ask, "/validate-configuration", config, **place)
        assert "colocation-config" in refused["status"]["message"]
        assert (await asked(ask, "/validate-configuration", config, **place, oldObject={"data": data}))[
            "allowed"
        ] is True
        another = {"metadata": {"name": "another"}, "data": data}
        assert (await asked(ask, "/validate-configuration", another, **place))["allowed"] is True
        one, two = ({"name": name, "nodeSelector": {"matchLabels": {"pool": name}}} for name in ("a", "b"))
        both = {"name": "c", "nodeSelector": {"matchLabels": {"zone": "1"}}}
        text = json.dumps({"nodeConfigs": [one, two, both]})
        overlapping = {"metadata": {"name": "slo-controller-config"}, "data": {"colocation-config": text}}
        warned = await asked(ask, "/validate-configuration", overlapping, **place)
        assert [warning.split(": ")[1][:7] for warning in warned["warnings"]] == ["a and c", "b and c"]


async def test_what_is_no_review_is_answered_with_a_status(api: ApiServer, client: Client) -> None:
    async with serving(api, client) as (ask, _):
        for body, status in ((b"{", 400), (b'{"apiVersion":"v1"}', 400), (b"x" * (9 << 20), 413)):
            sent = await ask.post("/mutate-pods", content=body, headers={"Content-Type": "application/json"})
            assert sent.status_code == status
        no_object = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        sent = await ask.post("/validate-pods", json={**no_object, "request": {"uid": "1", "operation": "DELETE"}})
        assert (sent.status_code, sent.text) == (400, "AdmissionReview: DELETE without an object")


async def test_what_was_asked_is_answered_before_it_ends(
    api: ApiServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster_of(api)
    address = free_address()
    context = context_of(client, SystemClock(), listen=address, register=True)
    asked, going_on = asyncio.Event(), asyncio.Event()
    around = Source.around

    async def slow(source: Source, namespace: str) -> Any:
        asked.set()
        await going_on.wait()
        return await around(source, namespace)

    monkeypatch.setattr(Source, "around", slow)
    async with running(WebhookRegistrar(), context):
        server = asyncio.create_task(WebhookServer().run(context))
        await until(lambda: stored(api, "ca.crt") and not context.readiness.waiting)
        authority = ssl.create_default_context(cadata=base64.b64decode(stored(api, "ca.crt") or "").decode())
        async with httpx.AsyncClient(verify=authority, base_url=f"https://{address}") as ask:
            pod = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "a"}]}}
            asking = asyncio.create_task(ask.post("/mutate-pods", json=pod_review(pod)))
            await asked.wait()
            server.cancel()
            await asyncio.sleep(0.05)
            assert not server.done()
            going_on.set()
            assert (await asking).json()["response"]["allowed"] is True
        await asyncio.gather(server, return_exceptions=True)


async def test_a_server_waits_for_lists_and_certificates(api: ApiServer, client: Client) -> None:
    context = context_of(client, SystemClock(), listen=free_address())
    async with running(WebhookServer(), context):
        await until(lambda: "certificates" in context.readiness.waiting.get("webhook", ""))
        assert "namespaces" in context.readiness.waiting["webhook"]
