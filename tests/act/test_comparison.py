from collections.abc import Callable

import pytest
from tests.act.machine import Machine

from cotenant.act import comparison, planning
from cotenant.model import policy

IDENTITY = {
    "resourceQOSStrategy": {
        name: {"cpuQOS": {"enable": True}} for name in ("lsrClass", "lsClass", "beClass", "systemClass")
    }
}
Make = Callable[..., Machine]


def compared(machine: Machine, slo: dict[str, object]) -> comparison.Comparison:
    decoded, complaints = policy.decode({"spec": slo})
    assert complaints == ()
    seen = machine.look()
    return comparison.compare(seen, planning.plan(seen, decoded))


def by_koordlet(machine: Machine) -> None:
    """Write what koordlet writes for :data:`IDENTITY` on an Anolis kernel."""
    machine.kernel.write("proc/sys/kernel/sched_group_identity_enabled", "1")
    for directory, level in (("kubepods/burstable", "2"), ("kubepods/besteffort", "-1")):
        machine.write("cpu", directory, "cpu.bvt_warp_ns", level)


def test_values_that_are_there_agree(machine: Make) -> None:
    node = machine("anolis-bvt")
    by_koordlet(node)
    for name, kube, label, level in (("a", "Burstable", "LS", "2"), ("b", "BestEffort", "BE", "-1")):
        group = node.pod(name, kube, label)
        for place in (group, node.container(group)):
            node.write("cpu", place, "cpu.bvt_warp_ns", level)
    found = compared(node, IDENTITY)
    assert found.agreed >= 4
    assert found.differences == ()


def test_a_difference_names_both_values_and_why(machine: Make) -> None:
    node = machine("anolis-bvt")
    by_koordlet(node)
    group = node.pod("a", "Burstable", "LS", annotations={"koordinator.sh/cpuQOS": {"groupIdentity": 1}})
    for place in (group, node.container(group)):
        node.write("cpu", place, "cpu.bvt_warp_ns", "0")  # an annotation without enable, as koordlet takes it
    found = compared(node, IDENTITY)
    (first, *_) = found.differences
    assert (first.wanted, first.found) == ("2", "0")
    assert "without `enable`" in first.explanation
    assert found.unexplained == ()


def test_an_unknown_difference_stays_unexplained(machine: Make) -> None:
    node = machine("anolis-bvt")
    by_koordlet(node)
    group = node.pod("b", "BestEffort", "BE")
    node.write("cpu", group, "cpu.bvt_warp_ns", "0")
    found = compared(node, IDENTITY)
    assert [one.path for one in found.unexplained if one.path.endswith(f"{group}/cpu.bvt_warp_ns")]


LIMITED = {"requests": {"cpu": "100m", "memory": "20Mi"}, "limits": {"cpu": "300m", "memory": "50Mi"}}
MEMORY = {
    "enable": True, "minLimitPercent": 50, "lowLimitPercent": 30, "throttlingPercent": 80, "pageCacheLimitPercent": 50,
}  # fmt: skip


def test_memory_as_koordlet_reckons_it(machine: Make) -> None:
    slo = {"resourceQOSStrategy": {"lsClass": {"memoryQOS": MEMORY}, "beClass": {"memoryQOS": MEMORY}}}
    node = machine("anolis-bvt")
    online, offline = (
        node.pod("a", "Burstable", "LS", containers=[LIMITED]),
        node.pod("b", "Burstable", "BE", containers=[LIMITED]),
    )
    node.enforce(slo)
    by_hand = {
        (node.container(offline), "memory.high"): "13743894528",
        (online, "memory.high"): "max",
        (online, "memory.pagecache_limit.size"): "0",
        (online, "memory.pagecache_limit.enable"): "0",
        ("kubepods/burstable", "memory.low"): "6291456",
    }
    assert compared(node, slo).differences == ()
    for (group, file), value in by_hand.items():
        node.write("memory", group, file, value)
    found = compared(node, slo)
    assert {one.path for one in found.differences} == {node.path("memory", group, file) for group, file in by_hand}
    assert found.unexplained == ()


def test_a_burst_that_the_kernel_refused_koordlet(machine: Make) -> None:
    slo = {"cpuBurstStrategy": {"policy": "auto"}}
    node = machine("mainline-v1")
    group = node.pod("a", "Burstable", "LS", containers=[LIMITED])
    place = node.container(group)
    for at in (group, place):
        node.write("cpu", at, "cpu.cfs_quota_us", "30000")
    node.enforce(slo)
    node.write("cpu", place, "cpu.cfs_burst_us", "0")
    (refused,) = compared(node, slo).differences
    assert (refused.wanted, refused.found) == ("30000", "0")
    assert "this kernel refuses" in refused.explanation
    node.write("cpu", place, "cpu.cfs_burst_us", "1000")
    (another,) = compared(node, slo).differences
    assert another.explanation == ""


def test_what_cannot_be_undone_comes_first(machine: Make) -> None:
    node = machine("openeuler")
    node.pod("a", "Burstable", "LS")
    node.pod("b", "BestEffort", "BE")
    found = compared(node, {**IDENTITY, "resourceUsedThresholdWithBE": {"enable": True}})
    assert found.differences[0].irreversible
    undoable = [one.irreversible for one in found.differences]
    assert undoable == sorted(undoable, reverse=True)
    assert "leaves the priority interface of this kernel alone" in found.differences[0].explanation


@pytest.mark.parametrize("known", comparison.KNOWN, ids=lambda known: f"{known.strategy}-{'-'.join(known.files)}"[:60])
def test_every_explanation_is_of_a_strategy_that_exists(known: comparison.Known) -> None:
    assert planning.MODULES
    assert known.strategy in planning.ORDER
