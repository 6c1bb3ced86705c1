"""Every worked value of the formulas, and what must hold whatever the numbers are."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.manager.overcommit import formula

GIB = 1 << 30


@pytest.mark.parametrize(
    ("cores", "reclaim", "system", "reserved", "used", "millicores"),
    [
        (100, 60, 7, 0, 11, 42000),
        (100, 60, 7, 10, 11, 39000),
        (100, 65, 7, 0, 60, 0),
        (8, 60, 0, 0.5, 1, 3300),
        (64, 80, 3, 2, 20, 28200),
        (100, 100, 0, 0, 0, 100000),
    ],
)
def test_batch_cpu_by_usage_as_worked_out(
    cores: int, reclaim: int, system: float, reserved: float, used: float, millicores: int
) -> None:
    terms = formula.batch(
        cores * 1000,
        Fraction(reclaim),
        "usage",
        system_used=int(system * 1000),
        reserved=int(reserved * 1000),
        claims=[formula.Claim(request=0, used=int(used * 1000))],
    )
    assert terms.value == millicores


def test_batch_memory_by_usage_as_worked_out() -> None:
    terms = formula.batch(
        100 * GIB,
        Fraction(65),
        "usage",
        system_used=12 * GIB,
        reserved=0,
        claims=[formula.Claim(request=0, used=21 * GIB)],
    )
    assert terms.value == 32 * GIB


@pytest.mark.parametrize(
    ("policy", "millicores"),
    [
        # 100 cores, 60 %: 60 are given out. The system uses 7 and 4 are reserved; the pods ask for 20 and 10 and use
        # 5 and 12.
        ("usage", 60_000 - 7_000 - 17_000),
        ("request", 60_000 - 4_000 - 30_000),
        ("maxUsageRequest", 60_000 - 7_000 - 32_000),
    ],
)
def test_each_policy_counts_its_own_way(policy: formula.Policy, millicores: int) -> None:
    claims = [formula.Claim(request=20_000, used=5_000), formula.Claim(request=10_000, used=12_000)]
    terms = formula.batch(100_000, Fraction(60), policy, system_used=7_000, reserved=4_000, claims=claims)
    assert terms.value == millicores


@pytest.mark.parametrize("policy", formula.POLICIES)
def test_a_pod_without_a_metric_counts_by_its_request_in_every_policy(policy: formula.Policy) -> None:
    claims = [formula.Claim(request=16_000, used=None)]
    assert formula.batch(100_000, Fraction(60), policy, system_used=0, reserved=0, claims=claims).value == 44_000


@pytest.mark.parametrize("policy", formula.POLICIES)
def test_a_metric_without_a_pod_counts_by_its_use_in_every_policy(policy: formula.Policy) -> None:
    claims = [formula.Claim(request=None, used=16_000)]
    assert formula.batch(100_000, Fraction(60), policy, system_used=0, reserved=0, claims=claims).value == 44_000


def test_a_pod_that_has_just_started_keeps_its_request() -> None:
    young = formula.Claim(request=16_000, used=200, settled=False)
    assert young.amount("usage") == 16_000
    assert formula.Claim(request=16_000, used=200).amount("usage") == 200
    assert formula.Claim(request=1_000, used=2_000, settled=False).amount("usage") == 2_000


def test_exclusive_cpus_are_kept_whether_used_or_not() -> None:
    assert formula.Claim(request=8_000, used=100, exclusive=True).amount("usage") == 8_000


def test_the_operators_cap_bounds_what_is_left() -> None:
    free = formula.batch(100_000, Fraction(60), "usage", system_used=0, reserved=0, claims=[])
    capped = formula.batch(
        100_000, Fraction(60), "usage", system_used=0, reserved=0, claims=[], cap_percent=Fraction(25)
    )
    assert (free.value, capped.value) == (60_000, 25_000)


def test_amplification_and_what_others_gave_out() -> None:
    terms = formula.batch(
        100_000,
        Fraction(60),
        "usage",
        system_used=0,
        reserved=0,
        claims=[],
        amplification=Fraction("1.15"),
        third_party=9_000,
    )
    assert (terms.origin, terms.value) == (69_000, 60_000)


def test_a_cpu_slower_than_the_reference_is_not_amplified() -> None:
    terms = formula.batch(
        1_000, Fraction(100), "usage", system_used=0, reserved=0, claims=[], amplification=Fraction("0.9")
    )
    assert terms.value == 1_000


def test_percentages_are_exact() -> None:
    # int(0.57 * 100) is 56 in binary fractions.
    assert formula.share(100, Fraction("57")) == 57
    assert formula.share(100_000, Fraction("57.5")) == 57_500


@pytest.mark.parametrize(
    ("reclaimable", "node_used", "mid_used", "system", "prod_request", "unallocated", "cap", "millicores"),
    [
        (30_000, 40_000, 0, 5_000, 50_000, 0, 100, 30_000),  # what prod does not use of what it asked for
        (30_000, 80_000, 0, 5_000, 50_000, 0, 100, 20_000),  # no more than is unused
        (30_000, 80_000, 15_000, 5_000, 50_000, 0, 100, 30_000),  # mid work itself does not count against mid
        (30_000, 40_000, 0, 5_000, 50_000, 40, 100, 48_000),  # and 40 % of the 45 cores nobody asked for
        (30_000, 60_000, 0, 5_000, 50_000, 40, 100, 40_000),  # both together no more than is unused
        (30_000, 40_000, 0, 5_000, 50_000, 40, 20, 20_000),  # nor than the operator's cap, applied last
        (None, 40_000, 0, 5_000, 50_000, 0, 100, 0),  # no prediction
        (30_000, None, 0, 5_000, 50_000, 0, 100, 0),  # the node's use is not known
        (30_000, 120_000, 0, 5_000, 50_000, 0, 100, 0),  # more used than there is
        (30_000, 40_000, 0, 70_000, 50_000, 40, 100, 30_000),  # more asked for than there is
    ],
)
def test_mid(
    reclaimable: int | None,
    node_used: int | None,
    mid_used: int,
    system: int,
    prod_request: int,
    unallocated: int,
    cap: int,
    millicores: int,
) -> None:
    terms = formula.mid(
        100_000,
        reclaimable=reclaimable,
        node_used=node_used,
        mid_used=mid_used,
        system=system,
        prod_request=prod_request,
        unallocated_percent=Fraction(unallocated),
        cap_percent=Fraction(cap),
    )
    assert terms.value == millicores


def test_a_fixed_share_for_mid() -> None:
    assert formula.mid_static(96_000, Fraction(12)).value == 11_520
    assert formula.mid_static(96_000, Fraction(12), third_party=20_000).value == 0


amounts = st.integers(0, 2**40)
percents = st.builds(Fraction, st.integers(0, 10_000)).map(lambda value: value / 100)
claims = st.builds(
    formula.Claim,
    request=st.none() | amounts,
    used=st.none() | amounts,
    exclusive=st.booleans(),
    settled=st.booleans(),
)


@settings(max_examples=30)
@given(amounts, percents, st.sampled_from(formula.POLICIES), amounts, amounts, st.lists(claims, max_size=6), amounts)
def test_batch_is_bounded_and_falls_with_whatever_has_precedence(
    capacity: int,
    percent: Fraction,
    policy: formula.Policy,
    system: int,
    reserved: int,
    held: list[formula.Claim],
    more: int,
) -> None:
    def value(system: int, held: list[formula.Claim], policy: formula.Policy = policy) -> int:
        return formula.batch(capacity, percent, policy, system_used=system, reserved=reserved, claims=held).value

    base = value(system, held)
    assert 0 <= base <= capacity * percent / 100
    assert base == max(
        int(capacity * percent // 100)
        - (reserved if policy == "request" else max(system, reserved))
        - sum(one.amount(policy) for one in held),
        0,
    )
    assert value(system + more, held) <= base
    assert value(system, [*held, formula.Claim(request=more, used=more)]) <= base
    assert value(system, held, "maxUsageRequest") <= min(
        value(system, held, "usage"), value(system, held, "request") + max(system - reserved, 0)
    )


@settings(max_examples=30)
@given(amounts, amounts, amounts, amounts, amounts, amounts, percents, percents)
def test_mid_never_exceeds_what_is_unused_or_allowed(
    capacity: int,
    reclaimable: int,
    node_used: int,
    mid_used: int,
    system: int,
    prod_request: int,
    unallocated: Fraction,
    cap: Fraction,
) -> None:
    value = formula.mid(
        capacity,
        reclaimable=reclaimable,
        node_used=node_used,
        mid_used=mid_used,
        system=system,
        prod_request=prod_request,
        unallocated_percent=unallocated,
        cap_percent=cap,
    ).value
    assert 0 <= value <= capacity * cap / 100
    assert value <= max(capacity - max(node_used - mid_used, 0), 0)
