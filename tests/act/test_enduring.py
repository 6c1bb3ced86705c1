"""Evictions wait until their reason has lasted."""

from cotenant.act.enduring import CPU_SECONDS, MEMORY_SECONDS, Enduring
from cotenant.model.policy import ThresholdStrategy
from cotenant.units.plan import PlanItem

WRITE = PlanItem(op="write", path="p", new="1", strategy="cpu_suppress", reason="r")
ISOLATED = PlanItem(op="evict", new="ns/c", strategy="isolate", reason="web still suffers")
THRESHOLD = ThresholdStrategy(cpu_evict_time_window_seconds=10)


def evict(strategy: str, feature: str, pod: str = "ns/a") -> PlanItem:
    return PlanItem(op="evict", new=pod, strategy=strategy, reason=f"{feature}: too full; this pod releases 1 of 2")


CPU, MEMORY = evict("cpu_evict", "BECPUEvict"), evict("memory_evict", "BEMemoryEvict")


def passed(state: Enduring, items: list[PlanItem], now: float, threshold: ThresholdStrategy = THRESHOLD) -> list[str]:
    return [item.strategy for item in state.lasting(items, threshold, now)]


def test_each_reason_waits_its_own_time_and_everything_else_passes() -> None:
    state = Enduring()
    told = {now: passed(state, [WRITE, CPU, MEMORY, ISOLATED], float(now)) for now in range(12)}
    assert told[0] == told[1] == ["cpu_suppress", "isolate"]
    assert told[int(MEMORY_SECONDS)] == ["cpu_suppress", "memory_evict", "isolate"]
    assert told[9] == ["cpu_suppress", "memory_evict", "isolate"]
    assert told[10] == ["cpu_suppress", "cpu_evict", "memory_evict", "isolate"]


def test_without_a_window_in_the_policy_cpu_waits_a_little() -> None:
    state, policy = Enduring(), ThresholdStrategy()
    told = [passed(state, [CPU], float(now), policy) for now in range(7)]
    assert told == [[]] * int(CPU_SECONDS) + [["cpu_evict"]] * 2


def test_a_break_begins_the_window_anew_and_a_late_look_does_not() -> None:
    state, policy = Enduring(), ThresholdStrategy(cpu_evict_time_window_seconds=4)
    assert passed(state, [CPU], 0.0, policy) == []
    assert passed(state, [CPU], 2.5, policy) == []
    assert passed(state, [], 3.5, policy) == []
    assert passed(state, [CPU], 4.5, policy) == ["cpu_evict"]
    assert passed(state, [], 6.0, policy) == []
    assert passed(state, [CPU], 9.0, policy) == []
    assert passed(state, [CPU], 12.0, policy) == []
    assert passed(state, [CPU], 13.0, policy) == ["cpu_evict"]


def test_a_reason_keeps_its_time_while_its_victim_changes() -> None:
    state, policy = Enduring(), ThresholdStrategy(cpu_evict_time_window_seconds=2)
    for now, pod in enumerate(("ns/a", "ns/b", "ns/c")):
        found = state.lasting([evict("cpu_evict", "CPUEvict", pod)], policy, float(now))
    assert [item.new for item in found] == ["ns/c"]
