"""Pods that slipped past the webhook are found, those that are as they should be are not."""

import json
from typing import Any

import pytest
from tests.kube.conftest import ApiServer
from tests.manager.webhook import objects
from tests.manager.webhook.objects import CLASSES, around, arrival, offline
from tests.waiting import ended, until

from cotenant.kube.client import Client
from cotenant.manager import controller
from cotenant.manager.webhook import mutation, settings, unmutated
from cotenant.units.clock import ManualClock

PODS = "api/v1/pods"
PROFILES = "apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles"
ASKS = {"requests": {"cpu": "1"}}


def put_pod(api: ApiServer, name: str, value: dict[str, Any], **metadata: Any) -> None:
    """Put a pod into the namespace ``shop``."""
    fields = {"namespace": "shop", "creationTimestamp": "2026-02-01T00:00:00Z", **metadata}
    api.put(PODS, name, **{**value, "metadata": {**value["metadata"], **fields}})


@pytest.fixture
def cluster(api: ApiServer) -> ApiServer:
    for name, labels in (("shop", {"team": "batch"}), ("web", {}), ("cotenant-system", {"team": "batch"})):
        api.put("api/v1/namespaces", name, metadata={"labels": labels})
    for name, value in CLASSES.items():
        api.put("apis/scheduling.k8s.io/v1/priorityclasses", name, value=value)
    spec = {
        "qosClass": "BE",
        "priorityClassName": "koord-batch",
        "namespaceSelector": {"matchLabels": {"team": "batch"}},
    }
    api.put(PROFILES, "batch", metadata={"creationTimestamp": "2026-01-15T00:00:00Z"}, spec=spec)
    api.put(PROFILES, "some", spec={**spec, "probability": "50%"})
    api.put(PROFILES, "wrong", spec={"probability": "-1"})
    api.objects[PODS] = {}
    return api


async def test_which_are_found(cluster: ApiServer, client: Client) -> None:
    plain = objects.pod(ASKS)
    put_pod(cluster, "missed", plain)
    put_pod(cluster, "older", plain, creationTimestamp="2026-01-01T00:00:00Z")
    put_pod(cluster, "done", {**plain, "status": {"phase": "Succeeded"}})
    put_pod(cluster, "ending", plain, deletionTimestamp="2026-02-02T00:00:00Z")
    put_pod(cluster, "static", plain, annotations={"kubernetes.io/config.mirror": "x"})
    put_pod(cluster, "elsewhere", plain, namespace="web")
    put_pod(cluster, "manager", plain, namespace="cotenant-system")
    put_pod(cluster, "ours", mutation.mutate(arrival(plain), [offline()], around()).pod)
    theirs = json.loads(json.dumps(mutation.mutate(arrival(plain), [offline()], around()).pod))
    del theirs["metadata"]["annotations"]  # as another manager's webhook would have made it
    put_pod(cluster, "theirs", theirs)
    found = await unmutated.find(client, "cotenant-system")
    assert [(one.namespace, one.name, one.profile, one.why) for one in found] == [
        ("shop", "missed", "batch", "missed"),
        ("shop", "older", "batch", "older"),
    ]
    assert found[0].differs == (
        "metadata.labels[koordinator.sh/qosClass]", "spec.priorityClassName", "spec.containers[0].resources.requests"
    )  # fmt: skip


async def test_without_the_kind_there_are_none(api: ApiServer, client: Client) -> None:
    assert await unmutated.find(client, "cotenant-system") == []


async def test_the_metric_is_absent_while_nothing_is_known(
    cluster: ApiServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    import prometheus_client

    monkeypatch.setattr(unmutated, "PERIOD_SECONDS", 0.01)
    put_pod(cluster, "missed", objects.pod(ASKS))
    cluster.away = True
    webhook = settings.Settings(listen="127.0.0.1:1")
    context = controller.Context(
        client=client, clock=ManualClock(), namespace="x", settings=controller.Settings(webhook=webhook)
    )
    finder = asyncio.create_task(unmutated.UnmutatedFinder().run(context))

    def text() -> str:
        return prometheus_client.generate_latest(context.metrics).decode()

    await until(lambda: len(cluster.requests) > 2)
    assert "unmutated" not in text()
    cluster.away = False
    await until(lambda: 'cotenant_webhook_unmutated_pods{profile="batch",why="missed"} 1.0' in text())
    await ended(finder)
