"""Batch resources by NUMA node."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.manager.overcommit import cluster, names, strategy, zones
from cotenant.manager.overcommit.consumption import Consumption, PodUse, Use
from cotenant.manager.overcommit.nodes import NodeFacts
from cotenant.manager.overcommit.pods import PodFacts
from cotenant.model.pod import ResourceStatus

GIB = 1 << 30
CPU, MEMORY = names.BATCH["cpu"], names.BATCH["memory"]
ON = strategy.of({"enable": True, "memoryReclaimThresholdPercent": 60}, {}, {}).strategy
WALL = 2_000_000_000.0


def amount(name: str, value: str) -> dict[str, str]:
    return {"name": name, "capacity": value, "allocatable": value, "available": value}


def topology(**published: str) -> zones.ZoneFacts:
    resources = [amount("cpu", "50"), amount("memory", "50Gi"), amount("vendor/gpu", "1")]
    resources += [amount(f"kubernetes.io/{name.replace('_', '-')}", value) for name, value in published.items()]
    detail = [{"id": cpu, "core": cpu, "socket": 0, "node": cpu // 2} for cpu in range(4)]
    value = {
        "metadata": {
            "name": "n1",
            "resourceVersion": "7",
            "annotations": {"node.koordinator.sh/cpu-topology": json.dumps({"detail": detail})},
        },
        "zones": [
            {"name": "node-0", "type": "Node", "costs": [{"name": "node-1", "value": 20}], "resources": resources},
            {"name": "node-1", "type": "Node", "resources": resources},
            {"name": "rack-7", "type": "Rack"},
        ],
    }
    return zones.decode(msgspec.convert(value, zones.TopologyObject))


def node(**fields: Any) -> NodeFacts:
    size = {"cpu": 100_000, "memory": 100 * GIB}
    return NodeFacts(name="n1", capacity=size, reserved={"cpu": 4_000, "memory": 0}, **fields)


def pod(name: str, cpu: int, bound: ResourceStatus | None = None) -> PodFacts:
    return PodFacts(
        key=f"d/{name}",
        node="n1",
        high_priority=True,
        prod=True,
        request={"cpu": cpu, "memory": 0},
        running_since=0.0,
        bound=bound or ResourceStatus(),
    )


def measured(cpu: int, by_zone: dict[int, Use] | None = None, **pods: int) -> Consumption:
    return Consumption(
        source="NodeMetric",
        node=Use(cpu, 0),
        pods={f"d/{name}": PodUse(Use(used, 0)) for name, used in pods.items()},
        zones=by_zone or {},
    )


def values(use: Consumption, *pods: PodFacts, **fields: Any) -> list[int]:
    found = zones.values_of(topology(), node(**fields), pods, use, ON, WALL)
    return [found["node-0"][CPU], found["node-1"][CPU]]


def test_what_is_not_bound_is_spread_evenly() -> None:
    # 60 % of 50 cores each, less half of the 8 that the system uses and of the 10 that the pod does.
    assert values(measured(18_000, web=10_000), pod("web", 0)) == [21_000, 21_000]


@pytest.mark.parametrize(
    "bound",
    [
        ResourceStatus(numa_nodes=(1,)),
        ResourceStatus(cpuset="2-3"),
        ResourceStatus(cpuset="3", numa_nodes=(0,)),
        ResourceStatus(numa_nodes=(1, 7)),  # there is no node 7 to be bound to
    ],
)
def test_a_pod_counts_where_it_is_bound(bound: ResourceStatus) -> None:
    assert values(measured(18_000, web=10_000), pod("web", 0, bound)) == [26_000, 16_000]


def test_cpus_of_both_nodes_are_shared_by_their_number() -> None:
    bound = ResourceStatus(cpuset="1-3")
    assert values(measured(8_000 + 9_000, web=9_000), pod("web", 0, bound)) == [23_000, 20_000]


@pytest.mark.parametrize(
    "bound", [ResourceStatus(cpuset="x"), ResourceStatus(cpuset="99"), ResourceStatus(numa_nodes=(5,))]
)
def test_a_binding_that_means_nothing_here_is_none(bound: ResourceStatus) -> None:
    assert values(measured(18_000, web=10_000), pod("web", 0, bound)) == [21_000, 21_000]


def test_what_the_system_uses_of_a_node_is_taken_where_it_is_measured() -> None:
    use = measured(8_000, {0: Use(6_000, 0), 1: Use(1_000, 0)})
    assert values(use) == [24_000, 28_000]  # of node 1, 2 cores are reserved


def test_what_others_gave_out_is_spread_too() -> None:
    assert values(measured(0), third_party={CPU: 10_000}) == [23_000, 23_000]


def test_zones_are_written_whole_with_what_others_put_there() -> None:
    facts = topology()
    new = {"node-0": {CPU: 5, MEMORY: 6}, "node-1": {CPU: 7}}
    body = zones.patch(facts, new)
    assert body is not None
    assert body["metadata"] == {"resourceVersion": "7"}
    first, second, third = body["zones"]
    assert first["costs"] == [{"name": "node-1", "value": 20}]
    assert [one["name"] for one in first["resources"]] == ["cpu", CPU, MEMORY, "memory", "vendor/gpu"]
    assert amount(CPU, "7") in second["resources"]
    assert third == {"name": "rack-7", "type": "Rack"}


def test_zones_that_offer_it_already_are_not_written() -> None:
    facts = topology(batch_cpu="50", batch_memory="6")
    body = zones.patch(facts, {name: {CPU: 50, MEMORY: 6} for name in ("node-0", "node-1")})
    assert body is None or [zone["name"] for zone in body["zones"]] == ["node-0", "node-1", "rack-7"]
    again = msgspec.convert(
        {"metadata": {"resourceVersion": "8"}, "zones": body["zones"] if body else []}, zones.TopologyObject
    )
    assert zones.patch(zones.decode(again), {name: {CPU: 50, MEMORY: 6} for name in ("node-0", "node-1")}) is None


def test_a_small_change_is_not_told() -> None:
    facts = topology(batch_cpu="100", batch_memory="100")
    assert not zones.is_due(facts, {name: {CPU: 110, MEMORY: 90} for name in ("node-0", "node-1")}, ON)
    assert zones.is_due(facts, {"node-0": {CPU: 111, MEMORY: 90}, "node-1": {CPU: 100, MEMORY: 100}}, ON)


@settings(max_examples=30)
@given(
    st.integers(0, 60_000),
    st.lists(st.tuples(st.integers(0, 20_000), st.sampled_from(["", "0-1", "2-3", "1-2"])), max_size=4),
)
def test_zones_together_never_offer_more_than_the_node_would(rest: int, held: list[tuple[int, str]]) -> None:
    pods = [pod(str(index), 0, ResourceStatus(cpuset=cpus)) for index, (_, cpus) in enumerate(held)]
    uses = {str(index): used for index, (used, _) in enumerate(held)}
    use = measured(rest + sum(uses.values()), **uses)
    left = 60_000 - max(rest, 4_000) - sum(uses.values())
    offered = values(use, *pods)
    assert all(0 <= value <= 30_000 for value in offered)
    if min(offered) > 0:
        assert sum(offered) <= left


@pytest.mark.parametrize("wrong", [{"name": 5}, {"resources": 1}, {"resources": [None]}, {"resources": [{"name": []}]}])
def test_zones_of_another_shape_are_left_as_they_are(wrong: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    value = {"metadata": {"name": "n1"}, "zones": [{"name": "node-0", "type": "Node", "resources": [], **wrong}]}
    receiver = cluster.Topologies(lambda name: None)
    receiver.put("n1", msgspec.convert(value, zones.TopologyObject))
    assert not receiver.facts
    assert "its zones are left as they are" in caplog.text
