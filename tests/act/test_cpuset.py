from collections.abc import Callable, Mapping
from typing import Any

from tests.act.machine import Machine, writes

Make = Callable[..., Machine]
POLICY = "kubelet.koordinator.sh/cpu-manager-policy"


def given(cpus: str = "", *numa: int) -> Mapping[str, Any]:
    return {
        "scheduling.koordinator.sh/resource-status": {"cpuset": cpus, "numaNodeResources": [{"node": n} for n in numa]}
    }


def topology(policy: str = "none", **annotations: str) -> Mapping[str, Any]:
    return {"metadata": {"annotations": {POLICY: f'{{"policy":"{policy}"}}', **annotations}}}


POOLS = {"node.koordinator.sh/cpu-shared-pools": '[{"node":0,"cpuset":"2-3"},{"node":1,"cpuset":"4-7"}]'}


def cpus(node: Machine, group: str, number: int = 0) -> str:
    return node.read("cpuset", node.container(group, number), "cpuset.cpus")


def test_containers_get_their_cpus_in_koordinators_order(machine: Make) -> None:
    node = machine()
    own = node.pod("own", "Guaranteed", "LSR", annotations=given("0-1"))
    numa = node.pod("numa", "Burstable", "LS", annotations=given("", 1))
    system = node.pod("system", "Burstable", "SYSTEM")
    ls = node.pod("ls", "Burstable", "LS")
    be = node.pod("be", "BestEffort", "BE")
    plain = node.pod("plain", "Burstable")
    described = {"metadata": {"annotations": {"node.koordinator.sh/system-qos-resource": '{"cpuset":"1"}'}}}
    node.enforce({}, node=described, nrt=topology(**POOLS))
    found = {group: cpus(node, group) for group in (own, numa, system, ls, be, plain)}
    assert list(found.values()) == ["0-1", "4-7", "1", "2-7", "0-7", "2-7"]


def test_under_the_static_policy_only_ls_and_given_cpus_are_written(machine: Make) -> None:
    node = machine()
    ls, plain = node.pod("ls", "Burstable", "LS"), node.pod("plain", "Burstable")
    node.enforce({}, nrt=topology("static", **POOLS))
    assert (cpus(node, ls), cpus(node, plain)) == ("2-7", "0-7")


def test_share_pools_leave_out_cpus_that_are_somebodys_own(machine: Make) -> None:
    node = machine()
    node.pod("lsr", "Guaranteed", "LSR", annotations=given("0-3"))
    ls = node.pod("ls", "Burstable", "LS")
    node.enforce({})
    assert cpus(node, ls) == "4-7"


def test_a_container_that_the_kubelet_pinned_is_left_alone(machine: Make) -> None:
    node = machine()
    pinned = node.pod("pinned", "Guaranteed", containers=[{"limits": {"cpu": "2", "memory": "1Gi"}}])
    node.write("cpuset", node.container(pinned), "cpuset.cpus", "2-3")
    node.pod("own", "Guaranteed", "LSR", annotations=given("0-1"))
    node.enforce({}, nrt=topology("static"))
    assert cpus(node, pinned) == "2-3"


def test_an_empty_list_is_never_written(machine: Make) -> None:
    node = machine()
    node.pod("all", "Guaranteed", "LSR", annotations=given("0-7"))
    node.pod("ls", "Burstable", "LS")
    assert "" not in writes(node.enforce({}), "cpuset.cpus").values()


def test_a_pod_with_cpus_of_its_own_is_not_throttled_and_its_small_sidecar_still_is(machine: Make) -> None:
    node = machine()
    containers = [{"limits": {"cpu": "4"}}, {"limits": {"cpu": "100m"}}]
    group = node.pod("lsr", "Guaranteed", "LSR", annotations=given("0-3"), containers=containers)
    for place, quota in ((group, "410000"), (node.container(group), "400000"), (node.container(group, 1), "10000")):
        node.write("cpu", place, "cpu.cfs_quota_us", quota)
    node.enforce({})
    assert [node.quota(p) for p in (group, node.container(group), node.container(group, 1))] == ["-1", "-1", "10000"]


def test_offline_pods_with_numa_nodes_use_the_offline_pool(machine: Make) -> None:
    node = machine()
    be = node.pod("be", "BestEffort", "BE", annotations=given("", 1))
    pools = {**POOLS, "node.koordinator.sh/be-cpu-shared-pools": '[{"node":1,"cpuset":"5-6"}]'}
    node.enforce({}, nrt=topology(**pools))
    assert cpus(node, be) == "5-6"


def test_a_node_where_nobody_gives_out_cpus_is_left_alone(machine: Make) -> None:
    node = machine()
    node.write("cpuset", node.container(node.pod("mine", "Burstable")), "cpuset.cpus", "3")
    assert node.plan({}).items == ()


def test_a_host_application_of_class_ls_gets_the_share_pools(machine: Make) -> None:
    node = machine()
    node.group("app.slice")
    node.pod("own", "Guaranteed", "LSR", annotations=given("0-1"))
    place = {"base": "CgroupRoot", "relativePath": "app.slice"}
    node.enforce({"hostApplications": [{"name": "a", "qos": "LS", "cgroupPath": place}]})
    assert node.read("cpuset", "app.slice", "cpuset.cpus") == "2-7"


def test_an_online_container_in_the_offline_directory_keeps_its_cpus_while_suppression_is_off(machine: Make) -> None:
    node = machine()
    node.pod("own", "Guaranteed", "LSR", annotations=given("0-1"))
    ls = node.pod("ls", "BestEffort", "LS")
    off = {"resourceUsedThresholdWithBE": {"enable": False}}
    node.enforce(off)
    assert cpus(node, ls) == "2-7"
    assert not writes(node.enforce(off), "cpuset.cpus")
    assert cpus(node, ls) == "2-7"


def test_cpus_that_the_node_does_not_have_are_left_out_and_named(machine: Make) -> None:
    node = machine()
    partly = node.pod("partly", "Guaranteed", "LSR", annotations=given("6-9"))
    gone = node.pod("gone", "Guaranteed", "LSR", annotations=given("8-9"), containers=[{"limits": {"cpu": "2"}}])
    plan = node.enforce({})
    assert (cpus(node, partly), cpus(node, gone)) == ("6-7", "0-5")
    assert sum("does not have 8-9" in text for text in plan.left_out) == 2
    assert not any(gone in (item.path or "") for item in plan.items if "quota" in (item.path or ""))


def test_published_pools_count_as_far_as_the_node_has_their_cpus(machine: Make) -> None:
    node = machine()
    ls = node.pod("ls", "Burstable", "LS")
    node.enforce({}, nrt=topology(**{"node.koordinator.sh/cpu-shared-pools": '[{"node":0,"cpuset":"4-11"}]'}))
    assert cpus(node, ls) == "4-7"
