"""One look at a cluster through a real connection."""

from typing import Any

import pytest
from tests.kube.conftest import ApiServer
from tests.manager.conftest import NODE_METRICS, NODES, TOPOLOGIES

from cotenant.api import timestamp
from cotenant.kube import errors
from cotenant.kube.client import Client
from cotenant.manager.controller import Place
from cotenant.manager.overcommit import looking, names
from cotenant.units.clock import ManualClock

CPU = names.BATCH["cpu"]
PODS = "api/v1/pods"
CONFIG = "api/v1/namespaces/koordinator-system/configmaps"
PLACE = Place("koordinator-system", "slo-controller-config")


def add_node(api: ApiServer, name: str, batch: str | None = None) -> None:
    amounts = {"cpu": "10", "memory": "10Gi"} | ({} if batch is None else {CPU: batch})
    api.put(NODES, name, metadata={"uid": name}, status={"capacity": amounts, "allocatable": dict(amounts)})


def add_pod(api: ApiServer, name: str, node: str, phase: str = "Running") -> None:
    api.put(
        PODS,
        name,
        metadata={"namespace": "d"},
        spec={"nodeName": node, "priority": 5500, "containers": [{"resources": {"requests": {CPU: "700"}}}]},
        status={"phase": phase, "qosClass": "BestEffort"},
    )


@pytest.fixture
def cluster(api: ApiServer) -> ApiServer:
    for listed_at in (NODES, NODE_METRICS, PODS, CONFIG):
        api.objects[listed_at] = {}
    return api


async def test_a_node_is_stated_by_its_objects(cluster: ApiServer, client: Client) -> None:
    clock = ManualClock()
    add_node(cluster, "n1", batch="4200")
    add_pod(cluster, "job", "n1")
    cluster.put(CONFIG, PLACE.name, data={"colocation-config": '{"enable": true}'})
    usage = {"nodeUsage": {"resources": {"cpu": "2", "memory": "1Gi"}}}
    at = timestamp.render(clock.wall() - 30)
    cluster.put(NODE_METRICS, "n1", status={"updateTime": at, "nodeMetric": usage})
    found = await looking.look(client, "n1", PLACE, clock)
    assert (found.state, found.source, found.age_seconds) == ("current", "NodeMetric", 30)
    assert (found.offered[CPU], found.asked[CPU], found.worked_out[CPU]) == (4_200, 700, 4_000)


async def test_a_cluster_without_anything_of_koordinators(cluster: ApiServer, client: Client) -> None:
    add_node(cluster, "n1")
    assert (await looking.look(client, "n1", PLACE, ManualClock())).state == "off"
    with pytest.raises(errors.NotFound):
        await looking.look(client, "n2", PLACE, ManualClock())


async def test_clearing_takes_back_all_but_what_pods_hold(cluster: ApiServer, client: Client) -> None:
    add_node(cluster, "idle", batch="4200")
    add_node(cluster, "busy", batch="4200")
    add_node(cluster, "plain")
    add_pod(cluster, "job", "busy")
    add_pod(cluster, "done", "idle", phase="Succeeded")
    zone: dict[str, Any] = {"name": "node-0", "type": "Node"}
    each = [("cpu", "10"), ("memory", "10Gi"), (CPU, "4200")]
    zone["resources"] = [{"name": n, "capacity": v, "allocatable": v, "available": v} for n, v in each]
    for name in ("idle", "busy"):
        cluster.put(TOPOLOGIES, name, zones=[zone])
    done = await looking.clear(client)
    assert (done.cleared, done.kept) == (["idle"], ["busy"])
    offered = {name: node["status"]["allocatable"].get(CPU) for name, node in cluster.objects[NODES].items()}
    assert offered == {"idle": None, "busy": "700", "plain": None}
    left = {name: len(found["zones"][0]["resources"]) for name, found in cluster.objects[TOPOLOGIES].items()}
    assert left == {"idle": 2, "busy": 3}
    cluster.remove(PODS, "job")
    assert (await looking.clear(client)).cleared == ["busy"]
    assert await looking.clear(client) == looking.Cleared([], [])
