"""What NodeResourceTopology says, and that it is written on change and at no other time."""

import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from tests.act.machine import Machine
from tests.kube.conftest import ApiServer, status

from cotenant.api.koordinator.names import CPU_BASIC_INFO_ANNOTATION
from cotenant.kernel import paths
from cotenant.kernel.cpu_model import CpuModel
from cotenant.kernel.numa import NumaState
from cotenant.kube.client import Client
from cotenant.model import node as nodes
from cotenant.model.snapshot import Snapshot
from cotenant.node import resource_topology
from cotenant.node.cpus import Assignments
from cotenant.node.kubelet import Kubelet, KubeletConfiguration, Settings
from cotenant.node.policy import Policy
from cotenant.node.topology_writing import TopologyWriter
from cotenant.units import cpulist
from cotenant.units.clock import ManualClock

AT = "apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies"
LIMITS = {"limits": {"cpu": "2", "memory": "1Gi"}}
GIB = 1 << 30
NUMA = {0: NumaState(memory_total_bytes=GIB), 1: NumaState(memory_total_bytes=2 * GIB)}
OWN = {"scheduling.koordinator.sh/resource-status": {"cpuset": "2-3"}}
Make = Callable[..., Machine]


def assignments(tmp_path: pathlib.Path) -> Assignments:
    return Assignments(paths.Root(tmp_path), Kubelet(Settings()), ManualClock(), "/k")


def look(node: Machine) -> Snapshot:
    """Return the node with its CPUs in two NUMA nodes."""
    seen = node.look()
    halves = tuple(msgspec.structs.replace(cpu, node=cpu.id // 4, socket=cpu.id // 4) for cpu in seen.topology.cpus)
    return msgspec.structs.replace(seen, topology=msgspec.structs.replace(seen.topology, cpus=halves))


def value(want: resource_topology.Wanted | None, name: str) -> Any:
    assert want is not None
    return json.loads(want.annotations[name])


def test_pools_and_allocations_of_a_node(machine: Make, tmp_path: pathlib.Path) -> None:
    node = machine()
    node.pod("lse", "Guaranteed", "LSE", annotations=OWN)
    node.pod("lsr", "Guaranteed", "LSR", containers=[LIMITS])
    cpus = assignments(tmp_path)
    seen = cpus.assign(look(node))
    static = msgspec.structs.replace(
        seen.topology, kubelet_policy="static", kubelet_pods={"k": frozenset({7})}, kubelet_pinned=frozenset({7})
    )
    want = resource_topology.wanted(msgspec.structs.replace(seen, topology=static), cpus, NUMA, None)
    ours = sorted(cpus.placement.given["uid-lsr"])
    pools = value(want, nodes.SHARE_POOLS_ANNOTATION)
    offline = value(want, nodes.BE_SHARE_POOLS_ANNOTATION)
    assert ours == [0, 1]
    # A NUMA node without any CPU left has no pool.
    assert [(pool["socket"], pool["node"]) for pool in pools] == [(1, 1)]
    assert [(pool["socket"], pool["node"]) for pool in offline] == [(0, 0), (1, 1)]
    assert {*nodes_of(pools)} == {*range(8)} - {2, 3, 7} - {*ours}
    assert {*nodes_of(offline)} == {*range(8)} - {2, 3, 7}
    assert value(want, nodes.CPU_ALLOCATIONS_ANNOTATION) == [
        {"uid": "k", "cpuset": "7", "managedByKubelet": True},
        {"namespace": "default", "name": "lsr", "uid": "uid-lsr", "cpuset": nodes_text(ours)},
    ]
    assert len(value(want, nodes.CPU_TOPOLOGY_ANNOTATION)["detail"]) == 8
    assert want is not None
    assert nodes.CPU_MANAGER_ANNOTATION not in want.annotations
    assert [(zone.name, zone.type) for zone in want.zones] == [("node-0", "Node"), ("node-1", "Node")]
    assert want.policies == ["None"]


def nodes_of(pools: list[Mapping[str, Any]]) -> frozenset[int]:
    return frozenset().union(*(cpulist.parse(pool["cpuset"]) for pool in pools))


def nodes_text(cpus: list[int]) -> str:
    return cpulist.render(cpus)


def test_what_the_kubelet_pinned_shows_in_its_groups_where_its_state_cannot_be_read(
    machine: Make,
    tmp_path: pathlib.Path,
) -> None:
    node = machine()
    group = node.pod("pinned", "Guaranteed", containers=[LIMITS])
    node.pod("whole", "Guaranteed", containers=[{"limits": {"cpu": "1500m", "memory": "1Gi"}}])
    node.write("cpuset", node.container(group), "cpuset.cpus", "2-3")
    seen = look(node)
    assert resource_topology.allocations(seen, {}) == []
    static = msgspec.structs.replace(seen, topology=msgspec.structs.replace(seen.topology, kubelet_policy="static"))
    (told,) = resource_topology.allocations(static, {})
    assert (told.name, told.uid, told.cpuset, told.managed_by_kubelet) == ("pinned", "uid-pinned", "2-3", True)


def test_our_own_reader_takes_it_as_it_was_meant(machine: Make, tmp_path: pathlib.Path) -> None:
    node = machine()
    cpus = assignments(tmp_path)
    cpus.configuration = KubeletConfiguration(
        cpu_manager_policy="static",
        cpu_manager_policy_options={"full-pcpus-only": "true"},
        reserved_system_cpus="0",
        topology_manager_policy="restricted",
        topology_manager_scope="pod",
    )
    seen = look(node)
    seen = msgspec.structs.replace(seen, topology=cpus.topology(seen.topology))
    described = {
        "metadata": {
            "annotations": {nodes.SYSTEM_QOS_ANNOTATION: '{"cpuset":"1"}', "other": "x"},
            "labels": {resource_topology.NUMA_RESERVATION_LABEL: "true", "zone": "z"},
        }
    }
    want = resource_topology.wanted(seen, cpus, NUMA, described)
    assert want is not None
    assert want.policies == ["RestrictedPodLevel"]
    assert want.labels == {resource_topology.NUMA_RESERVATION_LABEL: "true"}
    assert value(want, nodes.CPU_MANAGER_ANNOTATION) == {
        "policy": "static",
        "options": {"full-pcpus-only": "true"},
        "reservedCPUs": "0",
    }
    whole = resource_topology.merged(None, "n1", "uid", want)
    assert whole is not None
    read = nodes.decode_topology(whole, "nrt", nodes.Topology(cpus=()))
    assert read.cpus == tuple(sorted(seen.topology.cpus))
    assert (read.kubelet_policy, read.kubelet_reserved) == ("static", frozenset({0}))
    assert [pool.cpuset for pool in read.share_pools or ()] == ["1-3", "4-7"]
    assert nodes.SYSTEM_QOS_ANNOTATION in whole["metadata"]["annotations"]
    assert whole["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid"}]


def test_a_node_whose_cpus_are_unknown_says_nothing(machine: Make, tmp_path: pathlib.Path) -> None:
    seen = msgspec.structs.replace(look(machine()), topology=nodes.Topology(cpus=()))
    assert resource_topology.wanted(seen, assignments(tmp_path), {}, None) is None


def test_what_others_keep_stays_and_what_is_no_more_goes(machine: Make, tmp_path: pathlib.Path) -> None:
    want = resource_topology.wanted(look(machine()), assignments(tmp_path), NUMA, None)
    assert want is not None
    batch = {"name": "kubernetes.io/batch-cpu", "capacity": "5", "allocatable": "5", "available": "5"}
    found = {
        "metadata": {
            "name": "n1", "uid": "u", "resourceVersion": "7", "labels": {"app.kubernetes.io/managed-by": "Koordinator"},
            "annotations": {"theirs": "x", nodes.RESERVATION_ANNOTATION: "{}"}, "managedFields": [],
        },
        "topologyPolicies": ["None"],
        "zones": [
            {"name": "node-0", "type": "Node", "costs": [{"name": "node-0", "value": 10}], "resources": [batch]},
            {"name": "node-9", "type": "Node"},
        ],
    }  # fmt: skip
    whole = resource_topology.merged(found, "n1", "node-uid", want)
    assert whole is not None
    metadata = whole["metadata"]
    assert metadata["annotations"]["theirs"] == "x"
    assert nodes.RESERVATION_ANNOTATION not in metadata["annotations"]
    assert metadata["labels"] == {"app.kubernetes.io/managed-by": "Koordinator"}
    assert (metadata["resourceVersion"], "managedFields" in metadata, "ownerReferences" in metadata) == (
        "7",
        False,
        False,
    )
    assert [zone["name"] for zone in whole["zones"]] == ["node-0", "node-1"]
    assert whole["zones"][0]["costs"] == [{"name": "node-0", "value": 10}]
    assert [resource["name"] for resource in whole["zones"][0]["resources"]] == [
        "cpu",
        "kubernetes.io/batch-cpu",
        "memory",
    ]
    assert resource_topology.merged(whole, "n1", "node-uid", want) is None


def test_keys_in_another_order_and_memory_that_breathes_are_no_change(
    machine: Make,
    tmp_path: pathlib.Path,
) -> None:
    seen, cpus = look(machine()), assignments(tmp_path)
    want = resource_topology.wanted(seen, cpus, NUMA, None)
    assert want is not None
    whole = resource_topology.merged(None, "n1", "", want)
    assert whole is not None
    pools = json.loads(whole["metadata"]["annotations"][nodes.SHARE_POOLS_ANNOTATION])
    turned = json.dumps([dict(reversed(pool.items())) for pool in pools], indent=1)
    whole["metadata"]["annotations"][nodes.SHARE_POOLS_ANNOTATION] = turned
    assert resource_topology.merged(whole, "n1", "", want) is None
    for bytes_, written in ((GIB + GIB // 200, False), (GIB + GIB // 10, True)):
        other = resource_topology.wanted(seen, cpus, NUMA | {0: NumaState(memory_total_bytes=bytes_)}, None)
        assert other is not None
        assert (resource_topology.merged(whole, "n1", "", other) is not None) is written


class World:
    def __init__(self, server: ApiServer, opened: Client, node: Machine, directory: pathlib.Path) -> None:
        self.server, self.node, self.clock, self.yields = server, node, ManualClock(), False
        self.cpus = assignments(directory)
        kept = Policy("n1", "observe")
        kept.take_node({"metadata": {"name": "n1", "uid": "node-uid"}})
        (directory / "proc").mkdir()
        self.seen: Snapshot | None = look(node)
        self.writer = TopologyWriter(
            paths.Root(directory), opened, "n1", lambda: self.seen, self.cpus, kept, lambda: self.yields, self.clock
        )

    async def pass_time(self, seconds: int) -> None:
        for _ in range(seconds // 5):
            self.clock.advance(5)
            await self.writer.step()

    @property
    def written(self) -> list[str]:
        return [method for method, _, _ in self.server.requests]


@pytest.fixture
async def world(api: ApiServer, client: Client, machine: Make, tmp_path: pathlib.Path) -> World:
    return World(api, client, machine(), tmp_path)


async def test_made_once_and_written_again_only_on_change(world: World) -> None:
    await world.pass_time(60)
    assert world.written == []
    world.writer.replaced({})
    await world.pass_time(60)
    assert world.written == ["POST"]
    world.node.pod("own", "Guaranteed", "LSR", annotations=OWN)
    world.seen = look(world.node)
    await world.pass_time(60)
    assert world.written == ["POST", "PUT"]
    pools = world.server.objects[AT]["n1"]["metadata"]["annotations"][nodes.SHARE_POOLS_ANNOTATION]
    assert '"0-1"' in pools


async def test_a_foreign_change_is_put_right_and_a_foreign_writer_is_left_alone(world: World) -> None:
    world.writer.replaced({})
    await world.pass_time(10)
    found = world.server.objects[AT]["n1"]
    metadata = found["metadata"] | {"annotations": {"theirs": "x"}}
    world.writer.put("n1", world.server.put(AT, "n1", **{**found, "metadata": metadata}))
    world.yields = True
    await world.pass_time(60)
    assert world.written == ["POST"]
    world.yields = False
    await world.pass_time(60)
    assert world.written == ["POST", "PUT"]
    assert world.server.objects[AT]["n1"]["metadata"]["annotations"]["theirs"] == "x"
    world.server.remove(AT, "n1")
    world.writer.removed("n1")
    await world.pass_time(10)
    assert world.written == ["POST", "PUT", "POST"]


async def test_conflict_refusal_and_outage_are_come_back_to_without_haste(world: World) -> None:
    world.writer.replaced({})
    world.server.away = True
    await world.pass_time(600)
    assert 3 <= len(world.written) <= 20
    assert world.writer.failures == len(world.written)
    world.server.away = False
    world.server.fail("POST", status(403, "Forbidden"))
    world.clock.advance(600)
    await world.pass_time(600)
    assert world.writer.writes == 1
    world.node.pod("own", "Guaranteed", "LSR", annotations=OWN)
    world.seen = look(world.node)
    world.server.fail("PUT", status(409, "Conflict"))
    await world.pass_time(10)
    assert world.writer.writes == 2


def test_the_model_of_the_cpus_is_said_where_it_is_known(machine: Make, tmp_path: pathlib.Path) -> None:
    seen, cpus = look(machine()), assignments(tmp_path)
    model = CpuModel("Xeon", hyper_threads=True, turbo=None)
    want = resource_topology.wanted(seen, cpus, NUMA, None, model)
    assert value(want, CPU_BASIC_INFO_ANNOTATION) == {"cpuModel": "Xeon", "hyperThreadEnabled": True}
    unknown = resource_topology.wanted(seen, cpus, NUMA, None, CpuModel(None, hyper_threads=True, turbo=True))
    assert unknown is not None
    assert CPU_BASIC_INFO_ANNOTATION not in unknown.annotations
