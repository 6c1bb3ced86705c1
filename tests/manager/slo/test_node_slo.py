"""One NodeSLO for each node on an API server: made, changed, kept and deleted, and what others put there."""

from typing import Any

import pytest
from tests.kube.conftest import status
from tests.manager.conftest import NODE_SLOS, NODES, STATE, Cluster
from tests.waiting import until

from cotenant.api.koordinator import node_slo
from cotenant.api.koordinator.slo_config import SloConfig
from cotenant.manager.slo.following import SloConfigFollower
from cotenant.manager.slo.node_slo import NodeSloController

THRESHOLD = '{"clusterStrategy": {"enable": true}, "nodeStrategies": [%s]}'
POOL_A = (
    '{"name": "a", "nodeSelector": {"matchLabels": {"pool": "a"}}, "cpuSuppressThresholdPercent": 40},'
    '{"name": "b", "nodeSelector": {"matchExpressions": [{"key": "pool", "operator": "Exists"}]}}'
)


def spec(cluster: Cluster, name: str) -> dict[str, Any]:
    return dict(cluster.objects(NODE_SLOS).get(name, {}).get("spec") or {})


def threshold(cluster: Cluster, name: str) -> dict[str, Any]:
    return dict(spec(cluster, name).get("resourceUsedThresholdWithBE") or {})


@pytest.fixture
def controllers() -> tuple[Any, ...]:
    return SloConfigFollower(), NodeSloController()


async def test_a_node_gets_its_policy_and_loses_it_with_itself(cluster: Cluster, controllers: Any) -> None:
    cluster.add_node("n1")
    async with cluster.running(*controllers):
        await until(lambda: "n1" in cluster.objects(NODE_SLOS))
        made = cluster.objects(NODE_SLOS)["n1"]
        assert made["spec"] == node_slo.rendered(SloConfig(), {})
        assert made["metadata"]["ownerReferences"] == [
            {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-n1"}
        ]
        cluster.add_node("n2")
        await until(lambda: "n2" in cluster.objects(NODE_SLOS))
        cluster.api.remove(NODES, "n1")
        await until(lambda: list(cluster.objects(NODE_SLOS)) == ["n2"])


async def test_a_change_reaches_the_nodes_that_it_changes_and_no_others(cluster: Cluster, controllers: Any) -> None:
    cluster.write_config(resource_threshold=THRESHOLD % POOL_A)
    for name, labels in (("n1", {"pool": "a"}), ("n2", {}), ("n3", {})):
        cluster.add_node(name, **labels)
    async with cluster.running(*controllers):
        await until(lambda: len(cluster.objects(NODE_SLOS)) == 3)
        assert threshold(cluster, "n1")["cpuSuppressThresholdPercent"] == 40
        assert threshold(cluster, "n2")["cpuSuppressThresholdPercent"] == 65
        state = cluster.objects(STATE)
        await until(
            lambda: (
                "a and b select the same nodes (n1): a is in force"
                in " ".join(state.get("cotenant-slo-config", {}).get("data", {}).get("conditions", "").split())
            )
        )
        before = cluster.writes("nodeslos")
        cluster.write_config(resource_threshold=THRESHOLD % POOL_A.replace("40", "50"))
        await until(lambda: threshold(cluster, "n1")["cpuSuppressThresholdPercent"] == 50)
        cluster.add_node("n2", pool="a")  # a label is enough, too
        await until(lambda: threshold(cluster, "n2")["cpuSuppressThresholdPercent"] == 50)
        assert cluster.writes("nodeslos") - before == 2


async def test_what_others_put_there_stays_and_what_they_take_away_comes_back(
    cluster: Cluster, controllers: Any
) -> None:
    cluster.add_node("n1")
    cluster.api.put(
        NODE_SLOS,
        "n1",
        metadata={"labels": {"theirs": "yes"}},
        spec={"extensions": {"x": {"y": 1}}, "laterField": [1], "hostApplications": [{"name": "old"}]},
    )
    async with cluster.running(*controllers):
        await until(lambda: threshold(cluster, "n1"))
        found = cluster.objects(NODE_SLOS)["n1"]
        assert found["spec"] == {
            "extensions": {"x": {"y": 1}}, "laterField": [1], **node_slo.rendered(SloConfig(), {}),
        }  # fmt: skip
        assert found["metadata"]["labels"] == {"theirs": "yes"}
        assert found["metadata"]["ownerReferences"][0]["uid"] == "uid-n1"
        cluster.api.put(NODE_SLOS, "n1", metadata={}, spec={"extensions": {"x": {"y": 2}}})
        await until(lambda: threshold(cluster, "n1"))
        assert spec(cluster, "n1")["extensions"] == {"x": {"y": 2}}


@pytest.mark.parametrize(
    "failure", [status(409, "Conflict"), status(429, "TooManyRequests"), status(500, "InternalError")]
)
async def test_what_the_server_refuses_is_written_later(
    cluster: Cluster, controllers: Any, failure: dict[str, Any]
) -> None:
    cluster.api.fail("POST " + NODE_SLOS, failure)
    cluster.add_node("n1")
    async with cluster.running(*controllers):
        await until(lambda: [one.value for one in cluster.context.observed.collect()[2].samples] == [1])  # writes
    assert "n1" in cluster.objects(NODE_SLOS)


async def test_a_field_that_the_kind_does_not_have_is_not_written_again_and_again(
    cluster: Cluster, controllers: Any
) -> None:
    """An older kind prunes what it does not know; what comes back is as good as it gets."""
    cluster.add_node("n1")
    pruned = dict(node_slo.rendered(SloConfig(), {}))
    del pruned["systemStrategy"]
    cluster.api.put(NODE_SLOS, "n1", spec={})

    def prune(event: dict[str, Any] | None, listed_at: str | None = None) -> None:
        if listed_at == NODE_SLOS and event is not None:
            event["object"]["spec"].pop("systemStrategy", None)
        tell(event, listed_at)

    tell, cluster.api.tell = cluster.api.tell, prune  # type: ignore[method-assign]
    async with cluster.running(*controllers):
        await until(lambda: spec(cluster, "n1") == pruned)
        before = cluster.writes("nodeslos")
        cluster.add_node("n2")
        await until(lambda: "n2" in cluster.objects(NODE_SLOS))
        now = cluster.clock.monotonic()
        await until(lambda: cluster.clock.monotonic() > now + 10)
        assert cluster.writes("nodeslos/n1") == before


async def test_a_node_that_the_server_still_has_keeps_its_policy(cluster: Cluster, controllers: Any) -> None:
    cluster.add_node("n1")
    async with cluster.running(*controllers):
        await until(lambda: "n1" in cluster.objects(NODE_SLOS))
        node = cluster.objects(NODES)["n1"]
        cluster.api.tell({"type": "DELETED", "object": node}, NODES)  # a watch that is wrong, or late
        await until(lambda: ("GET", f"{NODES}/n1", {}) in cluster.api.requests)
        cluster.api.tell({"type": "ADDED", "object": node}, NODES)
        assert "n1" in cluster.objects(NODE_SLOS)


async def test_nodes_named_in_a_stage_get_the_new_revision_first(cluster: Cluster, controllers: Any) -> None:
    staged = {"cotenant.io/slo-changes": "staged"}
    cluster.write_config(staged, resource_threshold=THRESHOLD % "")
    cluster.add_node("n1")
    cluster.add_node("n2")
    async with cluster.running(*controllers):
        await until(lambda: len(cluster.objects(NODE_SLOS)) == 2)
        changed = THRESHOLD.replace("true", "false") % ""
        cluster.write_config(staged, resource_threshold=changed)
        await until(lambda: cluster.context.slo.revisions.newest.name == "2")  # type: ignore[union-attr]
        cluster.add_node("n1", **{"cotenant.io/slo-revision": "2"})
        await until(lambda: threshold(cluster, "n1")["enable"] is False)
        assert cluster.objects(NODE_SLOS)["n1"]["metadata"]["annotations"]["cotenant.io/slo-revision"] == "2"
        assert threshold(cluster, "n2")["enable"] is True
        cluster.add_node("n1")  # taken back
        await until(lambda: threshold(cluster, "n1")["enable"] is True)


async def test_a_revision_that_changes_nothing_is_written_only_where_somebody_waits_for_it(
    cluster: Cluster, controllers: Any
) -> None:
    cluster.add_node("n1")
    cluster.add_node("n2")
    async with cluster.running(*controllers):
        await until(lambda: len(cluster.objects(NODE_SLOS)) == 2)
        before = cluster.writes("nodeslos")
        cluster.write_config(colocation='{"enable": true}')
        await until(lambda: cluster.context.slo.revisions.newest.name == "2")  # type: ignore[union-attr]
        cluster.add_node("n2", **{"cotenant.io/slo-revision": "2"})
        await until(
            lambda: cluster.objects(NODE_SLOS)["n2"]["metadata"]["annotations"]["cotenant.io/slo-revision"] == "2"
        )
        assert cluster.writes("nodeslos") - before == 1


async def test_it_can_be_ended_before_anything_is_known(cluster: Cluster) -> None:
    """Without the kind it waits; nothing is left behind when the lease is lost meanwhile."""
    del cluster.api.objects[NODE_SLOS]
    async with cluster.running(NodeSloController()):
        await until(lambda: any(NODE_SLOS in path for _, path, _ in cluster.api.requests))
    assert cluster.writes("nodeslos") == 0
