from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from tests.act.machine import Machine, steps, writes

from cotenant.act import planning
from cotenant.model import policy
from cotenant.model.priority import PriorityInterface, Setting

ON = {"cpuQOS": {"enable": True}}
ALL_ON: dict[str, Any] = {
    "resourceQOSStrategy": {"lsrClass": ON, "lsClass": ON, "beClass": ON, "systemClass": ON},
}
Make = Callable[..., Machine]


def levels(machine: Machine, file: str) -> dict[str, str]:
    """Return the level of every group below the top, by the last two words of its path."""
    top = machine.path("cpu", "", file).rpartition("/")[0]
    found = {path: text for path, text in machine.kernel.state().items() if path.endswith(f"/{file}")}
    return {path.removeprefix(f"{top}/").rpartition("/")[0]: text.strip() for path, text in found.items()}


def populate(machine: Machine) -> dict[str, str]:
    return {
        "lsr": machine.pod("lsr", "Guaranteed", "LSR"),
        "lse": machine.pod("lse", "Guaranteed", "LSE"),
        "ls": machine.pod("ls", "Burstable", "LS"),
        "be": machine.pod("be", "BestEffort", "BE"),
        "be-native": machine.pod("be-native", "Burstable", "BE"),
        "system": machine.pod("system", "Burstable", "SYSTEM"),
        "plain-guaranteed": machine.pod("plain-guaranteed", "Guaranteed"),
        "plain-burstable": machine.pod("plain-burstable", "Burstable"),
        "plain": machine.pod("plain", "BestEffort"),
    }


ONLINE = ("lsr", "lse", "ls", "plain-guaranteed", "plain-burstable")
EXPECTED: Mapping[str, tuple[str, str, dict[str, str]]] = {
    # flavour: file, online value, value by pod where it is not the online one
    "openeuler": ("cpu.qos_level", "0", {"be": "-1", "be-native": "-1", "system": "0", "plain": "0"}),
    "openeuler-multi": ("cpu.qos_level", "0", {"be": "-1", "be-native": "-1", "system": "0", "plain": "0"}),
    "anolis-bvt": ("cpu.bvt_warp_ns", "2", {"be": "-1", "be-native": "-1", "system": "0", "plain": "-1"}),
    "anolis-bvt-v2": ("cpu.bvt_warp_ns", "2", {"be": "-1", "be-native": "-1", "system": "0", "plain": "-1"}),
    "anolis-priority": ("cpu.priority", "1", {"be": "-1", "be-native": "-1", "system": "0", "plain": "-1"}),
    "tencent": ("cpu.offline", "0", {"be": "1", "be-native": "1", "system": "0", "plain": "1"}),
    "mainline-v1": ("cpu.idle", "0", {"be": "1", "be-native": "1", "system": "0", "plain": "1"}),
    "mainline-v2": ("cpu.idle", "0", {"be": "1", "be-native": "1", "system": "0", "plain": "1"}),
}


@pytest.mark.parametrize("flavour", EXPECTED)
def test_each_class_has_its_level_on_each_kernel(machine: Make, flavour: str) -> None:
    node = machine(flavour)
    groups = populate(node)
    file, online, others = EXPECTED[flavour]
    node.enforce(ALL_ON)
    found = levels(node, file)
    assert {name: found[group] for name, group in groups.items()} == dict.fromkeys(ONLINE, online) | others
    again = node.plan(ALL_ON)
    assert again.items == ()


@pytest.mark.parametrize("flavour", EXPECTED)
def test_neither_the_root_nor_a_qos_directory_is_made_idle(machine: Make, flavour: str) -> None:
    node = machine(flavour)
    populate(node)
    plan = node.plan(ALL_ON)
    for file in ("cpu.idle", "cpu.qos_level", "memory.qos_level"):
        for group in writes(plan, file):
            assert group.rpartition("/")[2] not in (
                "cpu",
                "cpu,cpuacct",
                "cgroup",
                "kubepods",
                "burstable",
                "besteffort",
            )


def test_openeuler_writes_the_pod_before_its_containers_and_says_what_sticks(machine: Make) -> None:
    node = machine("openeuler")
    group = node.pod("be", "BestEffort", "BE")
    plan = node.plan(ALL_ON)
    written = [item for item in plan.items if str(item.path).endswith("/cpu.qos_level")]
    assert [item.path for item in written] == [
        node.path("cpu", group, "cpu.qos_level"),
        node.path("cpu", node.container(group), "cpu.qos_level"),
    ]
    assert all(item.irreversible and item.old == "0" for item in written)


def test_openeuler_turns_the_memory_switch_on_first(machine: Make) -> None:
    node = machine("openeuler")
    group = node.pod("be", "BestEffort", "BE")
    plan = node.enforce(ALL_ON)
    paths = [item.path for item in plan.items]
    assert paths.index("proc/sys/vm/memcg_qos_enable") < paths.index(node.path("memory", group, "memory.qos_level"))
    assert node.read("memory", group, "memory.qos_level") == "-1"


def test_openeuler_leaves_system_critical_pods_ordinary(machine: Make) -> None:
    node = machine("openeuler")
    node.pod("a", "BestEffort", "BE", namespace="kube-system")
    node.pod("b", "BestEffort", "BE", priority=2_000_000_000)
    assert not writes(node.plan(ALL_ON), "cpu.qos_level")


def test_openeuler_names_a_pod_for_recreation_and_never_tries_to_raise_it(machine: Make) -> None:
    node = machine("openeuler")
    group = node.pod("ls", "Burstable", "LS")
    node.write("cpu", group, "cpu.qos_level", "-1")
    plan = node.plan(ALL_ON)
    assert not writes(plan, "cpu.qos_level")
    assert any("default/ls" in text and "recreate" in text for text in plan.left_out)


def test_openeuler_puts_back_tasks_that_an_offline_group_left_idle(machine: Make) -> None:
    node = machine("openeuler")
    group = node.pod("ls", "Burstable", "LS")
    moved, other = (node.kernel.spawn(node.path("cpu", node.container(group), "")) for _ in range(2))
    stat = "{tid} (a (b) c) S" + " 0" * 37 + " {policy} 0 0"
    node.extra = {
        f"proc/{moved}/stat": stat.format(tid=moved, policy=5),
        f"proc/{other}/stat": stat.format(tid=other, policy=0),
    }
    items = steps(node.plan(ALL_ON), "set_policy")
    assert [(item.path, item.old, item.new) for item in items] == [(f"proc/{moved}", "idle", "other")]


def test_identity_1_on_openeuler_is_said_aloud(machine: Make) -> None:
    node = machine("openeuler")
    annotation = {"koordinator.sh/cpuQOS": {"enable": True, "groupIdentity": 1}}
    node.pod("ls", "Burstable", "LS", annotations=annotation)
    assert any("identity 1 becomes level 0" in text for text in node.plan(ALL_ON).notices)


@pytest.mark.parametrize(
    ("annotation", "label", "level"),
    [
        ({"enable": True, "groupIdentity": 1}, "LS", "1"),
        ({"enable": True, "groupIdentity": -1}, "LS", "-1"),
        ({"enable": True, "groupIdentity": 7}, "LS", "2"),
        ({"enable": False, "groupIdentity": 1}, "LS", "0"),
        ({"groupIdentity": 1}, "LS", "2"),
        ({"enable": True, "groupIdentity": 1}, "LSR", "2"),
    ],
)
def test_the_annotation_counts_for_ls_and_only_with_enable(
    machine: Make, annotation: dict[str, object], label: str, level: str
) -> None:
    node = machine("anolis-bvt")
    group = node.pod("p", "Burstable", label, annotations={"koordinator.sh/cpuQOS": annotation})
    node.enforce(ALL_ON)
    assert levels(node, "cpu.bvt_warp_ns")[group] == level


def test_anolis_switches_are_written_before_any_group(machine: Make) -> None:
    node = machine("anolis-bvt")
    node.kernel.write("proc/sys/kernel/sched_core", "1")
    populate(node)
    paths = [item.path for item in node.enforce(ALL_ON).items]
    assert paths[:2] == ["proc/sys/kernel/sched_core", "proc/sys/kernel/sched_group_identity_enabled"]


def test_anolis_keeps_the_offline_directory_ordinary_while_online_work_is_in_it(machine: Make) -> None:
    node = machine("anolis-bvt")
    node.pod("odd", "BestEffort", "LS")
    node.enforce(ALL_ON)
    assert levels(node, "cpu.bvt_warp_ns")["kubepods/besteffort"] == "0"
    calm = machine("anolis-bvt")
    calm.pod("be", "BestEffort", "BE")
    calm.enforce(ALL_ON)
    assert levels(calm, "cpu.bvt_warp_ns")["kubepods/besteffort"] == "-1"


def test_groups_without_a_listed_pod_follow_their_directory_except_where_levels_stick(machine: Make) -> None:
    for flavour, file, level in (("anolis-bvt", "cpu.bvt_warp_ns", "-1"), ("openeuler", "cpu.qos_level", "0")):
        node = machine(flavour)
        node.group("kubepods/besteffort/podgone")
        node.enforce(ALL_ON)
        assert levels(node, file)["kubepods/besteffort/podgone"] == level


def test_leaving_idle_gives_the_weight_back(machine: Make) -> None:
    for flavour, file, weight in (("mainline-v1", "cpu.shares", "512"), ("mainline-v2", "cpu.weight", "20")):
        node = machine(flavour)
        group = node.pod("ls", "Burstable", "LS", containers=[{"requests": {"cpu": "500m"}}])
        node.write("cpu", group, "cpu.idle", "1")
        node.enforce(ALL_ON)
        assert (node.read("cpu", group, "cpu.idle"), node.read("cpu", group, file)) == ("0", weight)


def test_leaving_idle_gives_offline_pods_the_weight_of_their_batch_request(machine: Make) -> None:
    for flavour, file, weight in (("mainline-v1", "cpu.shares", "1536"), ("mainline-v2", "cpu.weight", "59")):
        node = machine(flavour)
        group = node.pod("be", label="BE", containers=[{"requests": {"kubernetes.io/batch-cpu": "1500"}}])
        node.write("cpu", group, "cpu.idle", "1")
        node.enforce({}, journal={node.path("cpu", group, "cpu.idle"): "0"})
        assert (node.read("cpu", group, "cpu.idle"), node.read("cpu", group, file)) == ("0", weight)


def test_host_applications_have_the_identity_of_their_class(machine: Make) -> None:
    node = machine("openeuler")
    node.group("app.slice")
    applications = [{"name": "a", "qos": "BE", "cgroupPath": {"base": "CgroupRoot", "relativePath": "app.slice"}}]
    node.enforce(ALL_ON | {"hostApplications": applications})
    assert levels(node, "cpu.qos_level")["app.slice"] == "-1"
    bad = [{"name": "b", "qos": "BE", "cgroupPath": {"base": "KubepodsBesteffort", "relativePath": "../.."}}]
    assert "kubepods" not in writes(node.plan(ALL_ON | {"hostApplications": bad}), "cpu.qos_level")


def test_switched_off_only_what_we_wrote_is_put_back(machine: Make) -> None:
    node = machine("anolis-bvt")
    ours, theirs = node.pod("a", "Burstable", "LS"), node.pod("b", "Burstable", "LS")
    for group in (ours, theirs):
        node.kernel.write("proc/sys/kernel/sched_group_identity_enabled", "1")
        node.write("cpu", group, "cpu.bvt_warp_ns", "2")
    journal = {node.path("cpu", ours, "cpu.bvt_warp_ns"): "0"}
    assert writes(node.plan({}, journal=journal), "cpu.bvt_warp_ns") == {node.path("cpu", ours, ""): "0"}
    assert node.plan({}).items == ()


def test_a_system_pod_of_kubelets_burstable_class_has_the_system_identity(machine: Make) -> None:
    node = machine("anolis-bvt")
    group = node.pod("system", "Burstable", "SYSTEM")
    node.enforce(ALL_ON)
    assert levels(node, "cpu.bvt_warp_ns")[group] == "0"


def test_with_weights_only_the_smallest_weight_stands_in_and_comes_back(machine: Make) -> None:
    node = machine("mainline-v1")
    group = node.pod("be", "Burstable", "BE", containers=[{"requests": {"cpu": "500m"}}])
    node.write("cpu", group, "cpu.shares", "512")
    path = node.path("cpu", group, "cpu.shares")
    settings = {2: (), 1: (), 0: (), -1: (Setting("cpu", "cpu.shares", "2"),)}
    weights = PriorityInterface(name="weights-only", versions={"cpu": 1}, levels=(), settings=settings, reason="test")
    seen = msgspec.structs.replace(node.look(), priority=weights)
    held = planning.plan(seen, policy.decode({"spec": ALL_ON})[0], ("group_identity",))
    assert [(item.path, item.new) for item in held.items] == [(path, "2")]
    node.apply(held)
    seen = msgspec.structs.replace(node.look(), priority=weights, journal={path: "512"})
    released = planning.plan(seen, policy.decode({"spec": {}})[0], ("group_identity",))
    assert [(item.path, item.new) for item in released.items] == [(path, "512")]
