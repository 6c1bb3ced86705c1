"""Strategies laid over each other: the laws that merging keeps, field by field."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.api.koordinator import strategies
from cotenant.api.koordinator.strategies import complaints, known, merge
from cotenant.model import policy, policy_values

numbers = st.integers(0, 100)
blocks = st.lists(st.fixed_dictionaries({"name": st.sampled_from(["/dev/a", "/dev/b"])}), max_size=2)
classes = st.fixed_dictionaries({}, optional={
    "cpuQOS": st.fixed_dictionaries({}, optional={"enable": st.booleans(), "groupIdentity": st.integers(-1, 2)}),
    "blkioQOS": st.fixed_dictionaries({}, optional={"enable": st.booleans(), "blocks": blocks}),
    "resctrlQOS": st.fixed_dictionaries({}, optional={"mbaPercent": st.integers(1, 100)}),
})  # fmt: skip
said = st.fixed_dictionaries({}, optional={
    "policies": st.fixed_dictionaries({"cpuPolicy": st.sampled_from(["groupIdentity", "coreSched"])}),
    "lsClass": classes, "beClass": classes,
})  # fmt: skip


def leaves(value: Any, place: str = "") -> dict[str, Any]:
    """Return what is said at each place; a list is one thing."""
    if isinstance(value, dict):
        found: dict[str, Any] = {}
        for key, inner in value.items():
            found |= leaves(inner, f"{place}.{key}")
        return found
    return {place: value}


@settings(max_examples=80, deadline=None)
@given(said, said)
def test_what_lies_over_wins_and_the_rest_shows_through(base: dict[str, Any], over: dict[str, Any]) -> None:
    assert leaves(merge(base, over, policy.QosStrategy)) == {**leaves(base), **leaves(over)}


@settings(max_examples=80, deadline=None)
@given(said, said, said)
def test_the_order_of_laying_over_does_not_matter_but_who_lies_on_top_does(
    first: dict[str, Any], second: dict[str, Any], third: dict[str, Any]
) -> None:
    kind = policy.QosStrategy
    assert merge(merge(first, second, kind), third, kind) == merge(first, merge(second, third, kind), kind)
    assert merge(first, first, kind) == first


@settings(max_examples=80, deadline=None)
@given(said)
def test_what_is_known_stays_as_it_is_and_is_right(value: dict[str, Any]) -> None:
    unknown: list[str] = []
    assert known(value, policy.QosStrategy, unknown) == value
    checks = strategies.Checks(policy_values.RANGES, policy_values.CHOICES, policy_values.ORDERED)
    assert (unknown, list(complaints(value, policy.QosStrategy, checks))) == ([], [])


def test_the_defaults_are_right() -> None:
    checks = strategies.Checks(policy_values.RANGES, policy_values.CHOICES, policy_values.ORDERED)
    kinds = {
        "resourceUsedThresholdWithBE": policy.ThresholdStrategy, "resourceQOSStrategy": policy.QosStrategy,
        "cpuBurstStrategy": policy.CpuBurstStrategy, "systemStrategy": policy.SystemStrategy,
    }  # fmt: skip
    for name, value in policy.DEFAULT_SPEC.items():
        assert list(complaints(value, kinds[name], checks)) == []
