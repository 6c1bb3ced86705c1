from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.act.machine import Machine, steps, usage

from cotenant.act import cpu_evict

Make = Callable[..., Machine]


def slo(**changes: Any) -> dict[str, Any]:
    quiet = {"cpuSuppressPolicy": "cfsQuota", "memoryEvictThresholdPercent": 100}
    return {"resourceUsedThresholdWithBE": {"enable": True, **quiet, **changes}}


SATISFACTION = slo(cpuEvictBESatisfactionLowerPercent=60, cpuEvictBESatisfactionUpperPercent=80)
OPTED_IN = {"koordinator.sh/eviction-enabled": "true"}


def batch(milli: int) -> dict[str, Any]:
    amount = {"kubernetes.io/batch-cpu": str(milli)}
    return {"requests": amount, "limits": amount}


def offline(node: Machine, name: str, milli: int, priority: int = 5500, **more: Any) -> str:
    return node.pod(name, "BestEffort", "BE", containers=[batch(milli)], priority=priority, **more)


def evicted(on: Machine, wanted: Mapping[str, Any], **seen: Any) -> list[str | None]:
    return [item.new for item in steps(on.plan(wanted, **seen), "evict")]


@pytest.mark.parametrize(
    ("request_", "limit", "lower", "upper", "release"),
    [
        (10_000, 6000, 60, 80, 2000),
        (10_000, 0.5, 60, 80, 7999),
        (8000, 2000, 30, 30, 400),
        (10_000, 4000, 60, 80, 4000),
        (10_000, 6001, 60, 80, 0),
        (0, 10, 60, 80, 0),
    ],
)
def test_satisfaction_release(request_: float, limit: float, lower: int, upper: int, release: int) -> None:
    assert cpu_evict.satisfaction_release(request_, limit, lower, upper) == release


def test_starved_offline_pods_go_lowest_priority_and_heaviest_first_and_only_as_many_as_needed(machine: Make) -> None:
    node = machine(cpus=8)
    for name, milli, priority in (("a", 3000, 5600), ("b", 3000, 5500), ("c", 3000, 5500), ("d", 3000, 5700)):
        offline(node, name, milli, priority)
    node.write("cpu", "kubepods/besteffort", "cpu.cfs_quota_us", "400000")
    seen = {"usage": usage(node=8000, a=500, b=900, c=1600, d=900)}
    # 12 CPUs asked for, 4 given: 80 % of the rest is 9.6, so 5.6 have to go
    assert evicted(node, SATISFACTION, **seen) == ["default/c", "default/b"]


def test_nobody_is_evicted_while_offline_work_leaves_its_limit_unused(machine: Make) -> None:
    node = machine()
    offline(node, "a", 9000)
    node.write("cpu", "kubepods/besteffort", "cpu.cfs_quota_us", "400000")
    assert evicted(node, SATISFACTION, usage=usage(node=4000, a=3500)) == []
    assert evicted(node, SATISFACTION, usage=usage(node=4000, a=3600)) == ["default/a"]


def test_the_real_limit_is_the_narrowest_of_directory_and_containers(machine: Make) -> None:
    node = machine()
    group = offline(node, "a", 9000)
    node.write("cpuset", node.container(group), "cpuset.cpus", "0-2")
    assert cpu_evict.real_limit(node.look()) == 3000
    node.write("cpu", "kubepods/besteffort", "cpu.cfs_quota_us", "150000")
    assert cpu_evict.real_limit(node.look()) == 1500


def test_a_terminating_pod_counts_as_released(machine: Make) -> None:
    node = machine()
    offline(node, "going", 8000, deletionTimestamp="2026-11-30T00:00:00Z")
    offline(node, "a", 2000)
    node.write("cpu", "kubepods/besteffort", "cpu.cfs_quota_us", "400000")
    assert evicted(node, SATISFACTION, usage=usage(node=8000, going=2500, a=1500)) == []


def test_pods_may_opt_out_and_pods_without_metrics_are_not_chosen(machine: Make) -> None:
    node = machine()
    offline(node, "policy", 3000, annotations={"koordinator.sh/eviction-policy": ["MemoryEvict"]})
    offline(node, "label", 3000, labels={"koordinator.sh/eviction-enabled": "false"})
    offline(node, "never", 3000, annotations={"scheduling.koordinator.sh/eviction-cost": "2147483647"})
    offline(node, "unmeasured", 3000)
    offline(node, "a", 3000, priority=5999)
    node.write("cpu", "kubepods/besteffort", "cpu.cfs_quota_us", "200000")
    seen = {"usage": usage(node=8000, policy=500, label=500, never=500, a=500)}
    assert evicted(node, SATISFACTION, **seen) == ["default/a"]


def test_an_allocatable_of_zero_evicts_nobody_who_is_idle(machine: Make) -> None:
    node = machine()
    offline(node, "a", 4000)
    wanted = slo(
        cpuEvictPolicy="evictByAllocatable",
        cpuEvictBESatisfactionLowerPercent=60,
        cpuEvictBESatisfactionUpperPercent=80,
    )
    described = {"status": {"allocatable": {"kubernetes.io/batch-cpu": "0"}}}
    assert evicted(node, wanted, node=described, usage=usage(node=7000, a=10)) == []
    assert evicted(node, wanted, node=described, usage=usage(node=8000, a=7900)) == ["default/a"]


@pytest.mark.parametrize("policy", ["evictByRealLimit", "evictByAllocatable"])
def test_what_fast_cpus_are_worth_satisfies_what_was_offered_for_it(machine: Make, policy: str) -> None:
    """At a ratio of 2 a node offers 16,000 batch-cpu on 8 CPUs: who uses them all lacks nothing."""
    node = machine(cpus=8)
    offline(node, "a", 8000)
    offline(node, "b", 8000)
    wanted = slo(cpuEvictPolicy=policy, cpuEvictBESatisfactionLowerPercent=60, cpuEvictBESatisfactionUpperPercent=80)
    fast = {"node.koordinator.sh/cpu-normalization-ratio": "2"}
    described = {"metadata": {"annotations": fast}, "status": {"allocatable": {"kubernetes.io/batch-cpu": "16000"}}}
    seen = {"node": described, "usage": usage(node=8000, a=4000, b=4000)}
    assert evicted(node, wanted, **seen) == []
    if policy == "evictByRealLimit":
        node.write("cpu", "kubepods/besteffort", "cpu.cfs_quota_us", "300000")
    else:
        described["status"] = {"allocatable": {"kubernetes.io/batch-cpu": "6000"}}
    assert len(evicted(node, wanted, **seen)) == 1


def test_node_usage_evicts_opted_in_pods_up_to_the_priority_until_enough(machine: Make) -> None:
    node = machine()
    for name, priority, labels in (
        ("low", 5500, OPTED_IN),
        ("lower", 3500, OPTED_IN),
        ("high", 9500, OPTED_IN),
        ("silent", 3000, {}),
    ):
        node.pod(name, "Burstable", "LS", priority=priority, labels=labels)
    wanted = slo(cpuEvictThresholdPercent=80, cpuEvictLowerPercent=70, evictEnabledPriorityThreshold=5999)
    seen = {"usage": usage(node=7200, low=2000, lower=1000, high=2000, silent=2000)}
    # 7.2 of 8 CPUs used, 70 % are 5.6: 1.6 to release
    assert evicted(node, wanted, **seen) == ["default/lower", "default/low"]
    assert evicted(node, wanted, usage=usage(node=6399, low=6000)) == []


def test_a_node_that_lost_its_batch_resources_evicts_nobody(machine: Make) -> None:
    node = machine()
    offline(node, "a", 4000, labels=OPTED_IN)
    wanted = slo(allocatableEvictPriorityThreshold=5999)
    plan = node.plan(wanted, usage=usage(node=1000, a=1000))
    assert steps(plan, "evict") == []
    assert any("offers no kubernetes.io/batch-cpu" in text for text in plan.notices)
    described = {"status": {"allocatable": {"kubernetes.io/batch-cpu": "3000"}}}
    assert evicted(node, wanted, node=described, usage=usage(node=1000, a=1000)) == ["default/a"]


def test_an_unusable_satisfaction_range_is_named(machine: Make) -> None:
    node = machine()
    wanted = slo(cpuEvictBESatisfactionLowerPercent=70, cpuEvictBESatisfactionUpperPercent=80)
    assert any("not usable" in text for text in node.plan(wanted, usage=usage(node=1)).notices)


def test_switched_off_nobody_is_evicted(machine: Make) -> None:
    node = machine()
    offline(node, "a", 90_000)
    off = {"resourceUsedThresholdWithBE": {**SATISFACTION["resourceUsedThresholdWithBE"], "enable": False}}
    assert evicted(node, off, usage=usage(node=8000, a=8000)) == []
