"""What nodes are asked to measure: asked while somebody reads it, and no status is touched."""

import dataclasses
from typing import Any

import pytest
from tests.manager.conftest import NODE_METRICS, NODES, Cluster
from tests.waiting import until

from cotenant.api.koordinator import colocation
from cotenant.manager.controller import NodeMetricWhen, Settings
from cotenant.manager.slo import node_metric, readers
from cotenant.manager.slo.following import SloConfigFollower
from cotenant.manager.slo.node_metric import NodeMetricController

LEASES = "apis/coordination.k8s.io/v1/namespaces/koordinator-system/leases"
DEFAULT = {
    "aggregateDurationSeconds": 300,
    "reportIntervalSeconds": 60,
    "nodeAggregatePolicy": {"durations": ["5m0s", "10m0s", "30m0s"]},
    "nodeMemoryCollectPolicy": "usageWithoutPageCache",
}
ENABLED = '{"enable": true, "metricReportIntervalSeconds": %d}'


def policy(cluster: Cluster, name: str = "n1") -> dict[str, Any]:
    found = cluster.objects(NODE_METRICS).get(name, {})
    return dict((found.get("spec") or {}).get("metricCollectPolicy") or {})


def when(cluster: Cluster, value: NodeMetricWhen) -> None:
    cluster.context = dataclasses.replace(cluster.context, settings=Settings(node_metric=value))


@pytest.fixture
def controllers() -> tuple[Any, ...]:
    return SloConfigFollower(), NodeMetricController()


def test_the_defaults_are_koordinators() -> None:
    assert node_metric.collect_policy(colocation.DEFAULT_COLOCATION) == DEFAULT


def test_what_the_kind_would_refuse_is_raised_to_its_least() -> None:
    said = {"metricAggregateDurationSeconds": 1, "metricReportIntervalSeconds": 1}
    assert node_metric.collect_policy(said) == {"aggregateDurationSeconds": 60, "reportIntervalSeconds": 30}


async def test_where_colocation_is_enabled_nodes_are_asked(cluster: Cluster, controllers: Any) -> None:
    cluster.write_config(colocation=ENABLED % 45)
    cluster.add_node("n1")
    async with cluster.running(*controllers):
        await until(lambda: policy(cluster) == {**DEFAULT, "reportIntervalSeconds": 45})
        made = cluster.objects(NODE_METRICS)["n1"]
        assert made["metadata"]["ownerReferences"][0]["uid"] == "uid-n1"
        status = {"updateTime": "2026-11-30T00:00:00Z"}
        spec = {**made["spec"], "metricCollectPolicy": {**policy(cluster), "later": 1}}
        cluster.api.put(NODE_METRICS, "n1", **{**made, "status": status, "spec": spec})
        cluster.write_config(colocation=ENABLED % 90)
        await until(lambda: policy(cluster)["reportIntervalSeconds"] == 90)
        assert cluster.objects(NODE_METRICS)["n1"]["status"] == status
        assert policy(cluster)["later"] == 1
        cluster.api.remove(NODES, "n1")
        await until(lambda: not cluster.objects(NODE_METRICS))


async def test_a_status_of_the_node_costs_no_look_and_no_write(cluster: Cluster, controllers: Any) -> None:
    cluster.write_config(colocation=ENABLED % 60)
    cluster.add_node("n1")
    async with cluster.running(*controllers):
        await until(lambda: policy(cluster))
        before = cluster.writes("nodemetrics")
        for number in range(5):
            made = cluster.objects(NODE_METRICS)["n1"]
            cluster.api.put(NODE_METRICS, "n1", **{**made, "status": {"updateTime": str(number)}})
        cluster.add_node("n2")
        await until(lambda: policy(cluster, "n2"))
        assert cluster.writes("nodemetrics") - before == 1


async def test_a_node_may_ask_for_itself(cluster: Cluster, controllers: Any) -> None:
    cluster.add_node("n1")
    annotations = {"node.koordinator.sh/colocation-strategy": ENABLED % 120}
    cluster.api.put(NODES, "n2", metadata={"uid": "uid-n2", "annotations": annotations})
    async with cluster.running(*controllers):
        await until(lambda: policy(cluster, "n2").get("reportIntervalSeconds") == 120)
    assert list(cluster.objects(NODE_METRICS)) == ["n2"]


async def test_while_a_scheduler_reads_every_node_is_asked_and_later_not_any_more(
    cluster: Cluster, controllers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_metric, "UNREAD_SECONDS", 20.0)
    monkeypatch.setattr(readers, "ALIVE_SECONDS", 10.0)
    cluster.api.put(LEASES, "koord-scheduler", spec={"holderIdentity": "x", "renewTime": "1"})
    cluster.add_node("n1")
    cluster.api.put(NODE_METRICS, "n2", spec={})  # somebody else's
    cluster.add_node("n2")
    async with cluster.running(*controllers):
        await until(lambda: policy(cluster) == DEFAULT)
        # The lease does not change any more: its holder counts as gone, and a while later nobody reads.
        await until(lambda: "n1" not in cluster.objects(NODE_METRICS))
        assert "n2" in cluster.objects(NODE_METRICS)
        assert policy(cluster, "n2") == {}


@pytest.mark.parametrize(("value", "asked"), [("always", True), ("never", False)])
async def test_an_operator_may_decide(cluster: Cluster, controllers: Any, value: NodeMetricWhen, asked: bool) -> None:
    when(cluster, value)
    if not asked:
        cluster.write_config(colocation=ENABLED % 60)
        labels = {"app.kubernetes.io/managed-by": "cotenant-manager"}
        cluster.api.put(NODE_METRICS, "n1", metadata={"labels": labels}, spec={})
    cluster.add_node("n1")
    async with cluster.running(*controllers):
        await until(lambda: ("n1" in cluster.objects(NODE_METRICS)) == asked)
