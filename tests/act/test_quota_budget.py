import itertools
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.act.machine import Machine, usage, use

from cotenant.act import planning, quota_budget
from cotenant.act.draft import Plan
from cotenant.act.quota_budget import Budget, Budgets
from cotenant.model import policy

Make = Callable[..., Machine]


@pytest.mark.parametrize(
    ("used", "seconds", "left"),
    [
        (300, 1, 1800),  # at the most that is allowed: a tenth of ten seconds
        (200, 1, 1900),  # half as far above the limit lasts twice as long
        (100, 5, 2000),
        (99, 5, 2000),  # neither used nor filled
        (60, 5, 2000),
        (300, 10, 0),
        (300, 0.25, 1950),  # parts of a second count
        (900, 100, -2000),  # a debt is never more than a budget
    ],
)
def test_worked_values(used: float, seconds: float, left: float) -> None:
    budget = Budget.full(10, 300)
    budget.take(used, seconds)
    assert budget.left == left
    assert budget.spent is (left <= 0)


@pytest.mark.parametrize(("used", "filled"), [(0, 100), (50, 50), (59, 41), (60, 0), (80, 0), (100, 0)])
def test_rest_fills_the_budget(used: float, filled: float) -> None:
    budget = Budget.full(10, 300)
    budget.take(300, 5)
    before = budget.left
    budget.take(used, 1)
    assert budget.left - before == filled


def test_what_is_used_up_counts_again_when_a_quarter_is_back() -> None:
    budget = Budget.full(10, 300)
    budget.take(300, 10)
    seen = []
    for _ in range(6):
        budget.take(0, 1)
        seen.append(budget.spent)
    assert seen == [True, True, True, True, False, False]


@pytest.mark.parametrize(("period_s", "percent"), [(0, 300), (60, 100)])
def test_without_time_or_room_there_is_no_enlargement(period_s: float, percent: int) -> None:
    budget = Budget.full(period_s, percent)
    budget.take(0, 100)
    assert budget.spent


def test_another_policy_keeps_how_full_it_is() -> None:
    budget = Budget.full(10, 300)
    budget.take(300, 5)
    assert budget.resized(20, 300).left == 2000
    assert budget.resized(10, 300) is budget
    assert budget.resized(0, 300).spent
    assert budget.resized(0, 300).resized(10, 300).left == 2000


@settings(max_examples=60)
@given(
    period_s=st.integers(1, 300),
    percent=st.integers(101, 1000),
    looks=st.lists(st.tuples(st.floats(0, 1000), st.floats(0.001, 1)), max_size=60),
)
def test_above_the_limit_there_is_never_more_than_the_budget_and_what_rest_gave(
    period_s: int, percent: int, looks: list[tuple[float, float]]
) -> None:
    """Whoever keeps to what is allowed: no more than the percentage, and the limit once it is used up.

    A look is no longer than the period; what the last one took too much is a debt.
    """
    budget, above, rested = Budget.full(period_s, percent), 0.0, 0.0
    for wanted, part in looks:
        used, seconds = min(wanted, 100 if budget.spent else percent), part * period_s
        above += max(used - 100, 0) * seconds
        rested += (100 - used) * seconds if used < quota_budget.RESTING_PERCENT else 0
        budget.take(used, seconds)
        assert -budget.size <= budget.left <= budget.size
        assert above <= (2 * budget.size + rested) * (1 + 1e-9)


# --- in the loop ----------------------------------------------------------------------------------------------------


class Bench:
    """One container that wants more than its limit, looked at once a second."""

    def __init__(self, node: Machine, **slo: Any) -> None:
        self.node, self.budgets, self.now, self.cpu_usec = node, Budgets(), 0.0, 0
        self.slo = policy.decode({"spec": {"cpuBurstStrategy": {"policy": "cfsQuotaBurstOnly", **slo}}})[0]
        self.group = node.pod("ls", "Burstable", "LS", containers=[{"limits": {"cpu": "1"}}])
        self.container = node.container(self.group)
        self.file = "cpu.max" if node.v2 else "cpu.cfs_quota_us"
        for place in (self.group, self.container):
            node.write("cpu", place, self.file, "100000")
        self.node_object: Mapping[str, Any] | None = None

    @property
    def quota(self) -> int:
        return int(self.node.quota(self.container))

    def look(self, wanted_percent: float, seconds: float = 1.0) -> Plan:
        """Run for a while at what the container wants and gets, then look and write."""
        got = min(wanted_percent, self.quota / 1000)
        self.now += seconds
        self.cpu_usec += round(got * 1e4 * seconds)
        v1 = self.node.path("cpuacct", self.container, "cpuacct.usage") if not self.node.v2 else ""
        text = str(self.cpu_usec * 1000) if v1 else f"usage_usec {self.cpu_usec}\nnr_throttled 1\n"
        self.node.extra[v1 or self.node.path("cpu", self.container, "cpu.stat")] = text
        told = usage(node=got * 10, ls=use(got * 10, throttled=float(got < wanted_percent)))
        journal = {self.node.path("cpu", place, self.file): "100000" for place in (self.group, self.container)}
        seen = self.node.look(usage=told, journal=journal, node=self.node_object)
        plan = planning.plan(self.budgets.applied(seen, self.slo, self.now), self.slo)
        self.node.apply(plan)
        return plan


@pytest.mark.parametrize("flavour", ["mainline-v1", "mainline-v2"])
def test_a_container_is_above_its_limit_for_its_period_and_then_at_its_limit(machine: Make, flavour: str) -> None:
    bench = Bench(machine(flavour), cfsQuotaBurstPeriodSeconds=10)
    quotas = []
    for _ in range(60):
        bench.look(1000)
        quotas.append(bench.quota)
    assert max(quotas) == 300_000
    above = sum(quota - 100_000 for quota in quotas) / 200_000  # in seconds at the most
    assert 10 <= above <= 13
    assert set(quotas[-30:]) == {100_000}
    rising = [later > earlier for earlier, later in itertools.pairwise(quotas) if later != earlier]
    assert rising == sorted(rising, reverse=True), "up once, down once: nothing swings"
    assert bench.node.quota(bench.group) == "100000"


def test_who_rests_may_do_it_again(machine: Make) -> None:
    bench = Bench(machine(), cfsQuotaBurstPeriodSeconds=10)
    for _ in range(30):
        bench.look(1000)
    assert bench.quota == 100_000
    for _ in range(40):
        bench.look(10)
    bench.look(1000)
    bench.look(1000)
    assert bench.quota > 100_000


@pytest.mark.parametrize(("period", "most"), [(-1, 300_000), (None, 300_000), (0, 100_000)])
def test_no_period_is_no_end_and_a_period_of_nothing_is_no_enlargement(
    machine: Make, period: int | None, most: int
) -> None:
    bench = Bench(machine(), **({} if period is None else {"cfsQuotaBurstPeriodSeconds": period}))
    for _ in range(40):
        bench.look(1000)
    assert bench.quota == most


def test_an_unreadable_cpu_time_counts_nothing(machine: Make) -> None:
    bench = Bench(machine(), cfsQuotaBurstPeriodSeconds=5)
    for _ in range(20):
        bench.look(1000)
        bench.cpu_usec = -1  # no number
    assert bench.quota == 300_000


def test_a_pods_annotation_has_its_own_period(machine: Make) -> None:
    bench = Bench(machine())
    own = '{"policy": "cfsQuotaBurstOnly", "cfsQuotaBurstPeriodSeconds": 0}'
    bench.node.listed[0]["metadata"]["annotations"]["koordinator.sh/cpuBurst"] = own
    for _ in range(5):
        bench.look(1000)
    assert bench.quota == 100_000


def test_another_ratio_begins_anew_from_what_the_limit_is_worth(machine: Make) -> None:
    bench = Bench(machine())
    for _ in range(10):
        bench.look(1000)
    assert bench.quota == 300_000
    bench.node_object = {"metadata": {"annotations": {"node.koordinator.sh/cpu-normalization-ratio": "1.25"}}}
    bench.look(10)
    assert (bench.quota, bench.node.quota(bench.group)) == (80_000, "100000")
    assert bench.look(10).items == ()


def test_who_is_gone_is_forgotten(machine: Make) -> None:
    bench = Bench(machine(), cfsQuotaBurstPeriodSeconds=10)
    for _ in range(30):
        bench.look(1000)
    listed, bench.node.listed[:] = list(bench.node.listed), []
    bench.look(0, seconds=quota_budget.FORGOTTEN_SECONDS + 1)
    bench.node.listed[:] = listed
    bench.look(1000)
    assert bench.look(1000).items
