"""A webhook, its registrar and a small cluster, at an API server in this process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from tests import asking
from tests.kube.conftest import ApiServer
from tests.manager.webhook.objects import CLASSES
from tests.waiting import ended

from cotenant.kube.client import Client
from cotenant.manager import controller
from cotenant.manager.webhook import settings

SECRETS = "api/v1/namespaces/cotenant-system/secrets"
MUTATING = "apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
VALIDATING = "apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
PROFILES = "apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles"
DAY = 86_400


def free_address() -> str:
    return f"127.0.0.1:{asking.free_port()}"


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
