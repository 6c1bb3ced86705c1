import json

import msgspec
import pytest

from cotenant.model import node as nodes
from cotenant.model.node import Cpu, Node, Pool, Topology

HERE = Node(name="here", capacity_millicores=8000, capacity_memory_bytes=1 << 30)
CPUS = Topology(cpus=(Cpu(0), Cpu(1)))


def test_a_node_says_what_is_held_back_of_it() -> None:
    annotations = {
        "node.koordinator.sh/reservation": '{"resources":{"cpu":"2"},"reservedCPUs":"0-2"}',
        "node.koordinator.sh/system-qos-resource": '{"cpuset":"3","cpusetExclusive":false}',
    }
    amounts = {"cpu": "7500m", "memory": "1Gi", "kubernetes.io/batch-cpu": "3000"}
    value = {"metadata": {"name": "n", "annotations": annotations}, "status": {"allocatable": amounts}}
    found = nodes.decode_node(value, "node.json", HERE)
    assert (found.name, found.capacity_millicores, found.allocatable_millicores) == ("n", 8000, 7500)
    assert (found.reserved_millicores, found.reserved_cpus) == (3000, {0, 1, 2})
    assert (found.system_cpus, found.system_cpus_exclusive) == ({3}, False)
    assert found.extended_allocatable == {"kubernetes.io/batch-cpu": 3000}


def test_an_amplified_node_holds_back_what_it_did_before() -> None:
    annotations = {"node.koordinator.sh/raw-allocatable": '{"cpu":"7","memory":"1Gi"}'}
    status = {
        "capacity": {"cpu": "8"},
        "allocatable": {"cpu": "10500m", "memory": "3Gi", "kubernetes.io/batch-cpu": "9"},
    }
    found = nodes.decode_node({"metadata": {"annotations": annotations}, "status": status}, "node.json", HERE)
    assert (found.allocatable_millicores, found.reserved_millicores) == (7000, 1000)
    assert (found.allocatable_memory_bytes, found.extended_allocatable) == (1 << 30, {"kubernetes.io/batch-cpu": 9})


def test_a_topology_object_overrides_the_trees() -> None:
    annotations = {
        "kubelet.koordinator.sh/cpu-manager-policy": '{"policy":"static","reservedCPUs":"0"}',
        "node.koordinator.sh/cpu-topology": '{"detail":[{"id":1,"core":1,"socket":0,"node":1},{"id":0,"core":0}]}',
        "node.koordinator.sh/cpu-shared-pools": '[{"socket":0,"node":1,"cpuset":"1"}]',
        "node.koordinator.sh/pod-cpu-allocs": '[{"cpuset":"1","managedByKubelet":true},{"cpuset":"0"}]',
    }
    found = nodes.decode_topology({"metadata": {"annotations": annotations}}, "nrt.json", CPUS)
    assert found.cpus == (Cpu(0, 0, 0, 0), Cpu(1, 1, 0, 1))
    assert (found.kubelet_policy, found.kubelet_reserved, found.kubelet_pinned) == ("static", {0}, {1})
    assert (found.share_pools, found.be_share_pools) == ((Pool(1, "1"),), None)
    assert nodes.decode_topology({"metadata": {}}, "nrt.json", CPUS) == msgspec.structs.replace(CPUS, stated=True)


@pytest.mark.parametrize(
    "annotations",
    [
        {"node.koordinator.sh/reservation": "{"},
        {"node.koordinator.sh/reservation": '{"reservedCPUs":"x"}'},
        {"node.koordinator.sh/reservation": '{"resources":{"memory":[]}}'},
    ],
)
def test_an_annotation_that_cannot_be_read_is_named_with_its_file(annotations: dict[str, str]) -> None:
    with pytest.raises(nodes.BadNode, match=r"node\.json"):
        nodes.decode_node({"metadata": {"annotations": annotations}}, "node.json", HERE)


@pytest.mark.parametrize(
    "annotations",
    [
        {"node.koordinator.sh/cpu-shared-pools": '[{"node":0,"cpuset":"x"}]'},
        {"node.koordinator.sh/be-cpu-shared-pools": '[{"node":0,"cpuset":"3-0"}]'},
        {"node.koordinator.sh/be-cpu-shared-pools": '["0-3"]'},
        {"node.koordinator.sh/pod-cpu-allocs": "1"},
        {"node.koordinator.sh/pod-cpu-allocs": "[null]"},
        {"node.koordinator.sh/pod-cpu-allocs": '[{"cpuset":"x","managedByKubelet":true}]'},
    ],
)
def test_a_topology_that_cannot_be_read_is_refused_before_a_strategy_asks_it(annotations: dict[str, str]) -> None:
    with pytest.raises(nodes.BadNode, match=r"nrt\.json"):
        nodes.decode_topology({"metadata": {"annotations": annotations}}, "nrt.json", CPUS)


def test_a_topology_as_koordlet_writes_it() -> None:
    annotations = {
        "kubelet.koordinator.sh/cpu-manager-policy": "{}",
        "node.koordinator.sh/be-cpu-shared-pools": "null",
        "node.koordinator.sh/cpu-shared-pools": '[{"socket":0,"node":0,"cpuset":"0"}]',
        "node.koordinator.sh/cpu-topology": '{"detail":[{"id":0,"core":0,"socket":0,"node":0}]}',
        "node.koordinator.sh/pod-cpu-allocs": "null",
        "node.koordinator.sh/reservation": "{}",
        "node.koordinator.sh/system-qos-resource": "null",
    }
    written = {"metadata": {"annotations": annotations}}
    found = nodes.decode_topology(written, "nrt.json", CPUS)
    assert found.share_pools == (Pool(0, "0"),)
    assert (found.be_share_pools, found.kubelet_pinned, len(found.cpus)) == (None, frozenset(), 1)
    assert nodes.with_topology_annotations(HERE, written, "nrt.json") == HERE


def test_usage_that_is_left_out_is_unknown() -> None:
    found = nodes.decode_usage(json.dumps({"node": {"cpu_millicores": 5}, "later": 1}), "usage.json")
    assert (found.node.cpu_millicores, found.node.memory_bytes, found.system.cpu_millicores) == (5, None, None)
    with pytest.raises(nodes.BadNode, match=r"usage\.json"):
        nodes.decode_usage("[]", "usage.json")
