import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.scheduler.caps import Candidate, Caps, pool_limit


@pytest.mark.parametrize(
    ("size", "fraction", "limit"),
    [(0, 0.05, 0), (1, 0.05, 0), (2, 0.05, 1), (19, 0.05, 1), (40, 0.05, 2), (100, 0.05, 5), (3, 1.0, 2), (9, 0.0, 0)],
)
def test_a_pool_gives_up_its_share_at_least_one_node_never_all(size: int, fraction: float, limit: int) -> None:
    assert pool_limit(size, fraction) == limit


def test_worst_first_within_the_rate_and_then_within_the_pool() -> None:
    nodes = {f"n{number:03}": float(number) for number in range(200)}
    excluded: frozenset[str] = frozenset()
    caps = Caps(0.02)
    seen = []
    for minute in range(5):
        now = 1000.0 + 61 * minute
        plan = caps.plan([Candidate(n, "", True, (bad,), n in excluded) for n, bad in nodes.items()], now)
        for _ in plan.excluded - excluded:
            caps.note_new(now)
        excluded = plan.excluded
        seen.append(len(excluded))
        again = caps.plan([Candidate(n, "", True, (bad,), n in excluded) for n, bad in nodes.items()], now + 30)
        assert again.excluded == excluded
    assert seen == [2, 4, 4, 4, 4]  # one percent of 200 a minute, two percent in all
    assert excluded == {"n199", "n198", "n197", "n196"}
    assert set(again.waiting.values()) == {"pool"}


def test_each_pool_has_its_own_share() -> None:
    nodes = [Candidate(f"{pool}{number}", pool, True) for pool in "ab" for number in range(3)]
    caps = Caps(0.05)
    first = caps.plan(nodes, 0.0).excluded
    assert len(first) == 1  # the rate
    caps.note_new(0.0)
    nodes = [Candidate(one.name, one.pool, True, (), one.name in first) for one in nodes]
    second = caps.plan(nodes, 61.0).excluded
    assert first < second
    assert {name[0] for name in second} == {"a", "b"}


def test_a_worse_node_takes_nobodys_place() -> None:
    nodes = [Candidate("a", "", True, (1.0,), True), Candidate("b", "", True, (9.0,)), Candidate("c", "", False)]
    assert Caps().plan(nodes, 0.0).excluded == {"a"}


def test_a_new_leader_keeps_what_is_there_and_counts_it_as_new() -> None:
    nodes = [Candidate(f"n{number}", "", number < 3, (), number < 2) for number in range(100)]
    caps = Caps()
    assert caps.plan(nodes, 500.0).excluded == {"n0", "n1"}
    assert caps.plan(nodes, 559.0).waiting == {"n2": "rate"}
    assert caps.plan(nodes, 560.0).excluded == {"n0", "n1", "n2"}


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(0, 60), st.floats(0, 1))
def test_never_all_of_a_pool_never_more_than_its_share_never_unasked(seed: int, size: int, fraction: float) -> None:
    draw = random.Random(seed)
    nodes = [
        Candidate(f"n{i}", draw.choice("ab"), draw.random() < 0.7, (draw.random(),), draw.random() < 0.3)
        for i in range(size)
    ]
    plan = Caps(fraction).plan(nodes, 0.0)
    for pool in "ab":
        here = [node for node in nodes if node.pool == pool]
        held = [node for node in here if node.name in plan.excluded]
        assert len(held) <= pool_limit(len(here), fraction)
        assert all(node.wanted for node in held)
        assert not here or len(held) < len(here)
    new = [node for node in nodes if node.name in plan.excluded and not node.excluded]
    assert len(new) <= 1
    assert set(plan.waiting) | plan.excluded == {node.name for node in nodes if node.wanted}
