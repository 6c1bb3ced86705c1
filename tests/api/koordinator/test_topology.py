"""NodeResourceTopology and what its annotations hold."""

import msgspec
import pytest

from cotenant.api.koordinator import topology
from cotenant.model import node


def test_zones_and_policies_go_out_by_the_names_of_the_protocol() -> None:
    given = {
        "metadata": {"name": "n1"},
        "topologyPolicies": ["None"],
        "zones": [
            {
                "name": "node-0",
                "type": "Node",
                "resources": [{"name": "cpu", "capacity": "4", "allocatable": "4", "available": "4"}],
            }
        ],
    }
    found = msgspec.convert(given, topology.NodeResourceTopology)
    assert msgspec.to_builtins(found) | {"metadata": given["metadata"]} == given


@pytest.mark.parametrize(("name", "number"), [("node-0", 0), ("node-12", 12), ("socket-1", None), ("node-x", None)])
def test_a_zone_is_a_numa_node_by_its_name(name: str, number: int | None) -> None:
    assert topology.numa_node(topology.Zone(name=name, type="Node")) == number


def test_the_reader_of_the_annotations_understands_what_these_write() -> None:
    detail = [topology.CpuInfo(id=0, core=0, socket=0, node=0), topology.CpuInfo(id=1, core=0, socket=0, node=0)]
    written = {
        node.CPU_TOPOLOGY_ANNOTATION: topology.CpuTopology(detail=detail),
        node.SHARE_POOLS_ANNOTATION: [topology.SharedPool(socket=0, node=0, cpuset="0")],
        node.BE_SHARE_POOLS_ANNOTATION: [topology.SharedPool(socket=0, node=0, cpuset="0-1")],
        node.CPU_ALLOCATIONS_ANNOTATION: [topology.CpuAllocation(uid="u", cpuset="1", managed_by_kubelet=True)],
        node.CPU_MANAGER_ANNOTATION: topology.CpuManagerPolicy(policy="static", reserved_cpus="0"),
    }
    annotations = {name: msgspec.json.encode(value).decode() for name, value in written.items()}
    read = node.decode_topology({"metadata": {"annotations": annotations}}, "nrt", node.Topology(cpus=()))
    assert [(cpu.id, cpu.core) for cpu in read.cpus] == [(0, 0), (1, 0)]
    assert read.share_pools == (node.Pool(0, "0"),)
    assert read.be_share_pools == (node.Pool(0, "0-1"),)
    assert (read.kubelet_policy, read.kubelet_reserved, read.kubelet_pinned) == (
        "static",
        frozenset({0}),
        frozenset({1}),
    )
