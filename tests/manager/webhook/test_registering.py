"""The leader's part, and the server, at an API server in this process."""

import asyncio
import base64
import contextlib
import dataclasses
import json
import ssl
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from tests.kube.conftest import ApiServer, api, client
from tests.manager.waiting import ended, until
from tests.manager.webhook.objects import CLASSES

from cotenant.kube.client import Client
from cotenant.manager import controller
from cotenant.manager.webhook import registering, registration, settings
from cotenant.manager.webhook.registering import WebhookRegistrar
from cotenant.manager.webhook.server import WebhookServer
from cotenant.manager.webhook.source import Source
from cotenant.units.clock import ManualClock, SystemClock
from cotenant.web import serving

__all__ = ["api", "client"]

SECRETS = "api/v1/namespaces/cotenant-system/secrets"
MUTATING = "apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
VALIDATING = "apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
PROFILES = "apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles"
DAY = 86_400


def free_address() -> str:
    with serving.bind("127.0.0.1:0") as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def context_of(client: Client, clock: Any, **given: Any) -> controller.Context:
    webhook = settings.Settings(**{"listen": "127.0.0.1:9443", **given})
    return controller.Context(
        client=client, clock=clock, namespace="cotenant-system", settings=controller.Settings(webhook=webhook)
    )


def bundles(api: ApiServer, listed_at: str) -> set[str | None]:
    webhooks = api.objects.get(listed_at, {}).get("cotenant-webhook", {}).get("webhooks") or []
    return {webhook["clientConfig"].get("caBundle") for webhook in webhooks}


def stored(api: ApiServer, key: str) -> str | None:
    found = api.objects.get(SECRETS, {}).get("cotenant-webhook-tls")
    return found["data"][key] if found else None


@contextlib.asynccontextmanager
async def running(one: Any, context: controller.Context) -> AsyncIterator[None]:
    task = asyncio.create_task(one.run(context))
    try:
        yield
    finally:
        await ended(task)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registering, "SOON_SECONDS", 0.01)
    monkeypatch.setattr(settings, "LOOK_SECONDS", 0.02)


async def test_by_hand_everything_is_registered_and_trusted(api: ApiServer, client: Client) -> None:
    async with running(WebhookRegistrar(), context_of(client, ManualClock(), register=True)):
        await until(lambda: bundles(api, MUTATING) and bundles(api, VALIDATING))
        assert bundles(api, MUTATING) == bundles(api, VALIDATING) == {stored(api, "ca.crt")}
        urls = [webhook["clientConfig"]["url"] for webhook in api.objects[VALIDATING]["cotenant-webhook"]["webhooks"]]
    assert urls[0] == "https://127.0.0.1:9443/validate-pods"
    assert "https://127.0.0.1:9443/validate-profiles" in urls


async def test_what_a_chart_wrote_is_only_filled_in(api: ApiServer, client: Client) -> None:
    configs = {path: registration.by_service("svc", "cotenant-system", path) for path in ("/mutate-pods",)}
    written = registration.mutating("cotenant-webhook", "cotenant-system", configs)
    api.put(MUTATING, "cotenant-webhook", **json.loads(json.dumps(written)))
    async with running(WebhookRegistrar(), context_of(client, ManualClock())):
        await until(lambda: bundles(api, MUTATING) == {stored(api, "ca.crt")} != {None})
        assert VALIDATING not in api.objects
        found = api.objects[MUTATING]["cotenant-webhook"]["webhooks"]
        assert [one["rules"] for one in found] == [one["rules"] for one in written["webhooks"]]
        api.objects[MUTATING]["cotenant-webhook"]["webhooks"][0]["clientConfig"]["caBundle"] = "else"
        await until(lambda: bundles(api, MUTATING) == {stored(api, "ca.crt")})
    methods = {method for method, path, _ in api.requests if path.startswith(MUTATING)}
    assert methods == {"GET", "PATCH"}


async def test_certificates_are_replaced_in_time_and_a_new_authority_is_known_first(
    api: ApiServer, client: Client
) -> None:
    clock = ManualClock()
    async with running(WebhookRegistrar(), context_of(client, clock, register=True)):
        await until(lambda: bundles(api, MUTATING))
        first = stored(api, "tls.crt")
        clock.advance(21 * DAY)
        await until(lambda: stored(api, "tls.crt") != first)
        second, authority = stored(api, "tls.crt"), stored(api, "ca.crt")
        clock.advance(230 * DAY)
        await until(lambda: stored(api, "tls.crt") != second)
        await until(lambda: bundles(api, MUTATING) == bundles(api, VALIDATING) == {stored(api, "ca.crt")})
    written = [body["data"] for body in api.bodies if body and "ca.key" in (body.get("data") or {})]
    both = next(index for index, data in enumerate(written) if data["ca.crt"] != authority)
    assert (written[both]["tls.crt"], written[both + 1]["ca.crt"]) == (second, written[both]["ca.crt"])
    trusted = [body["webhooks"][0]["clientConfig"]["caBundle"] for body in api.bodies if body and "webhooks" in body]
    assert written[both]["ca.crt"] in trusted


async def test_two_leaders_at_once_end_with_one_set(api: ApiServer, client: Client) -> None:
    async with (
        running(WebhookRegistrar(), context_of(client, ManualClock(), register=True)),
        running(WebhookRegistrar(), context_of(client, ManualClock(), register=True)),
    ):
        await until(lambda: bundles(api, MUTATING) and bundles(api, VALIDATING))
        await asyncio.sleep(0.1)
        assert bundles(api, MUTATING) == bundles(api, VALIDATING) == {stored(api, "ca.crt")}


async def test_an_outage_is_waited_out(api: ApiServer, client: Client) -> None:
    api.away = True
    async with running(WebhookRegistrar(), context_of(client, ManualClock(), register=True)):
        await asyncio.sleep(0.05)
        api.away = False
        await until(lambda: bundles(api, VALIDATING))


async def test_without_an_address_there_is_no_webhook(api: ApiServer, client: Client) -> None:
    context = context_of(client, ManualClock(), listen="")
    await WebhookRegistrar().run(context)
    await WebhookServer().run(context)
    assert api.requests == []


def test_the_rules_of_failure() -> None:
    configs = {path: registration.by_url("https://x", path) for path in registration.PATHS}
    both = (
        registration.mutating("w", "cotenant-system", configs),
        registration.validating("w", "cotenant-system", configs, "koordinator-system"),
    )
    for configuration in both:
        policies = {webhook["name"]: webhook["failurePolicy"] for webhook in configuration["webhooks"]}
        assert [name for name, policy in policies.items() if policy == "Fail"] == ["colocation.pods.cotenant.io"]
        for webhook in configuration["webhooks"]:
            updates = any("UPDATE" in rule["operations"] for rule in webhook["rules"])
            assert not (updates and webhook["failurePolicy"] == "Fail")
            if webhook["rules"][0]["resources"] == ["pods"]:
                exempt = webhook["namespaceSelector"]["matchExpressions"][-1]["values"]
                assert {"kube-system", "cotenant-system"} <= set(exempt)
    assert {webhook["reinvocationPolicy"] for webhook in both[0]["webhooks"]} == {"IfNeeded"}


def pod_review(pod: dict[str, Any], **given: Any) -> dict[str, Any]:
    request = {"uid": "u1", "operation": "CREATE", "namespace": "shop", "name": "web", "object": pod, **given}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def cluster_of(api: ApiServer) -> None:
    api.objects[PROFILES] = {}
    for listed_at in ("api/v1/resourcequotas", "api/v1/limitranges"):
        api.objects[listed_at] = {}
    api.put("api/v1/namespaces", "shop", metadata={"labels": {"team": "ads"}})
    for name, value in CLASSES.items():
        api.put("apis/scheduling.k8s.io/v1/priorityclasses", name, value=value)
    spec = {"qosClass": "BE", "priorityClassName": "koord-batch", "namespaceSelector": {"matchLabels": {"team": "ads"}}}
    api.put(PROFILES, "batch", spec=spec)
    api.put(
        PROFILES, "broken", spec={"selector": {"matchExpressions": [{"key": "a", "operator": "x"}]}, "qosClass": "LS"}
    )


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


def test_names_and_addresses() -> None:
    assert settings.address(settings.Settings(listen="0.0.0.0:9443")) == ""
    assert settings.address(settings.Settings(listen="[::1]:9443")) == "https://[::1]:9443"
    by_url = settings.Settings(listen="0.0.0.0:9443", url="https://10.0.0.7:9443/")
    assert settings.address(by_url) == "https://10.0.0.7:9443"
    assert settings.names(by_url, "ns") == (
        "cotenant-manager-webhook.ns.svc", "cotenant-manager-webhook.ns.svc.cluster.local", "10.0.0.7"
    )  # fmt: skip
    with pytest.raises(settings.BadSettings):
        settings.address(dataclasses.replace(by_url, url="http://x"))
