from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.act.machine import Machine, steps, usage, use

from cotenant.act import eviction

Make = Callable[..., Machine]
GIB = 1 << 30
CAPACITY = {"status": {"capacity": {"cpu": "8", "memory": "100Gi"}, "allocatable": {"cpu": "8", "memory": "100Gi"}}}


def slo(**changes: Any) -> dict[str, Any]:
    return {"resourceUsedThresholdWithBE": {"enable": True, **changes}}


def evicted(node: Machine, wanted: Mapping[str, Any], used_gib: int, **gib: float) -> list[str | None]:
    pods = {name: use(1, int(value * GIB)) for name, value in gib.items()}
    plan = node.plan(wanted, usage=usage(node=1, memory=used_gib * GIB, **pods), node=CAPACITY)
    return [item.new for item in steps(plan, "evict")]


@pytest.mark.parametrize(
    ("capacity", "used", "threshold", "lower", "release"),
    [
        (100, 70, 70, 68, 2_147_483_648),
        (64, 60, 70, 50, 30_064_771_072),
        (100, 80, 70, None, 12 * GIB),
        (100, 69.999, 70, 68, None),
    ],
)
def test_release_is_exact(capacity: int, used: float, threshold: int, lower: int | None, release: int | None) -> None:
    assert eviction.over(used * GIB, capacity * GIB, threshold, lower) == release


def test_offline_pods_go_lowest_priority_and_largest_first_until_enough(machine: Make) -> None:
    node = machine()
    for name, priority in (("a", 5500), ("b", 5500), ("c", 5400), ("d", 5999)):
        node.pod(name, "BestEffort", "BE", priority=priority)
    # 12 GiB to release
    assert evicted(node, slo(), 80, a=4, b=9, c=2, d=50) == ["default/c", "default/b", "default/a"]
    assert evicted(node, slo(), 80, a=4, b=10, c=2, d=50) == ["default/c", "default/b"]
    assert evicted(node, slo(), 69, a=4, b=9, c=2, d=50) == []


def test_pods_without_metrics_are_not_killed_for_nothing(machine: Make) -> None:
    node = machine()
    node.pod("a", "BestEffort", "BE")
    node.pod("b", "BestEffort", "BE")
    assert evicted(node, slo(), 90, b=1) == ["default/b"]


def test_an_unlabelled_best_effort_pod_is_not_offline_work_to_evict(machine: Make) -> None:
    node = machine()
    node.pod("plain", "BestEffort")
    assert evicted(node, slo(), 90, plain=50) == []


def test_after_offline_pods_those_that_opted_in_go_by_priority_and_bytes_are_bytes(machine: Make) -> None:
    node = machine()
    node.pod("be", "BestEffort", "BE", priority=5500)
    for name, priority in (("free", 3500), ("mid", 7500), ("prod", 9500)):
        node.pod(name, "Burstable", "LS", priority=priority, labels={"koordinator.sh/eviction-enabled": "true"})
    wanted = slo(evictEnabledPriorityThreshold=7999)
    gib = {"be": 2.0, "free": 5.0, "mid": 4.0, "prod": 30.0}
    assert evicted(node, wanted, 80, **gib) == ["default/be", "default/free", "default/mid"]
    assert evicted(node, wanted, 72, **gib) == ["default/be", "default/free"]


def test_a_lower_mark_above_the_threshold_is_not_applied_and_named(machine: Make) -> None:
    node = machine()
    node.pod("be", "BestEffort", "BE")
    wanted = slo(memoryEvictThresholdPercent=60, memoryEvictLowerPercent=60)
    assert evicted(node, wanted, 90, be=50) == []


def test_a_node_without_batch_memory_evicts_nobody_for_it(machine: Make) -> None:
    node = machine()
    amount = {"kubernetes.io/batch-memory": "10Gi"}
    node.pod(
        "be",
        "BestEffort",
        "BE",
        priority=5500,
        containers=[{"requests": amount, "limits": amount}],
        labels={"koordinator.sh/eviction-enabled": "true"},
    )
    assert evicted(node, slo(allocatableEvictPriorityThreshold=5999), 10, be=1) == []
