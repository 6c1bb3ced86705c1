"""The server: what it answers over HTTPS, when it begins, and how it ends."""

import asyncio
import base64
import json
import ssl
from typing import Any

import httpx
import pytest
from tests.kube.conftest import ApiServer, api, client
from tests.manager.waiting import until
from tests.manager.webhook.world import (
    cluster_of,
    context_of,
    free_address,
    pod_review,
    running,
    stored,
)

from cotenant.kube.client import Client
from cotenant.manager import controller
from cotenant.manager.webhook import registering, settings
from cotenant.manager.webhook.registering import WebhookRegistrar
from cotenant.manager.webhook.server import WebhookServer
from cotenant.manager.webhook.source import Source
from cotenant.units.clock import SystemClock

__all__ = ["api", "client"]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registering, "SOON_SECONDS", 0.01)
    monkeypatch.setattr(settings, "LOOK_SECONDS", 0.02)


async def test_the_server_answers_over_https_with_what_the_cluster_says(api: ApiServer, client: Client) -> None:
    cluster_of(api)
    address = free_address()
    context = context_of(client, SystemClock(), listen=address, register=True)
    pod = {
        "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]},
    }
    async with running(WebhookRegistrar(), context), running(WebhookServer(), context):
        await until(lambda: stored(api, "ca.crt") and not context.readiness.waiting)
        authority = base64.b64decode(stored(api, "ca.crt") or "").decode()
        async with httpx.AsyncClient(
            verify=ssl.create_default_context(cadata=authority), base_url=f"https://{address}"
        ) as ask:
            answer = (await ask.post("/mutate-pods", json=pod_review(pod))).json()
            patch = {one["path"]: one for one in json.loads(base64.b64decode(answer["response"]["patch"]))}
            assert answer["response"]["uid"] == "u1"
            assert patch["/spec/priorityClassName"]["value"] == "koord-batch"
            assert patch["/metadata/labels"]["value"] == {"koordinator.sh/qosClass": "BE"}
            labelled = {**pod, "metadata": {"name": "web", "labels": {"koordinator.sh/qosClass": "LSR"}}, "spec": {}}
            refused = (await ask.post("/validate-pods", json=pod_review(labelled))).json()["response"]
            assert refused["allowed"] is False
            assert "whole cores" in refused["status"]["message"]
            wrong = pod_review({"metadata": {"name": "p"}, "spec": {"probability": "200%", "qosClass": "X"}})
            assert (
                len(
                    (await ask.post("/validate-profiles", json=wrong))
                    .json()["response"]["status"]["message"]
                    .split("; ")
                )
                == 2
            )
            missing = pod_review({"metadata": {"name": "p"}, "spec": {"priorityClassName": "later"}})
            warned = (await ask.post("/validate-profiles", json=missing)).json()["response"]
            assert warned["allowed"] is True
            assert "no PriorityClass later" in warned["warnings"][0]
            data = {"colocation-config": "{", "resource-threshold-config": "{}"}
            config = pod_review({"data": data}, namespace="koordinator-system", name="slo-controller-config")
            assert (
                "colocation-config"
                in (await ask.post("/validate-configuration", json=config)).json()["response"]["status"]["message"]
            )
            same = pod_review(
                {"data": data}, namespace="koordinator-system", name="slo-controller-config", oldObject={"data": data}
            )
            assert (await ask.post("/validate-configuration", json=same)).json()["response"]["allowed"] is True
            for body, status in ((b"{", 400), (b'{"apiVersion":"v1"}', 400), (b"x" * (9 << 20), 413)):
                sent = await ask.post("/mutate-pods", content=body, headers={"Content-Type": "application/json"})
                assert sent.status_code == status
            elsewhere = await ask.post("/mutate-pods", json=pod_review(pod, namespace="gone"))
            assert (elsewhere.status_code, "namespace gone" in elsewhere.text) == (503, True)
        text = controller.prometheus_client.generate_latest(context.metrics).decode()
    for line in (
        'cotenant_webhook_requests_total{path="/mutate-pods",result="changed"} 1.0',
        'cotenant_webhook_requests_total{path="/mutate-pods",result="unprepared"} 1.0',
        'cotenant_webhook_profiles{state="ready"} 1.0',
        'cotenant_webhook_profiles{state="refused"} 1.0',
        'cotenant_webhook_profile_applied_total{profile="batch"} 1.0',
        "cotenant_webhook_certificate_expires_seconds",
    ):
        assert line in text


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
