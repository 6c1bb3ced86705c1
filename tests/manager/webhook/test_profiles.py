"""Profiles that are refused, and whom a percentage meets."""

from typing import Any

import pytest
from tests.manager.webhook import objects

from cotenant.manager.webhook import profiles


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"selector": {"matchExpressions": [{"key": "a", "operator": "in"}]}}, "spec.selector.matchExpressions[0]"),
        ({"namespaceSelector": {"matchLabels": {"a b": "c"}}}, "spec.namespaceSelector.matchLabels"),
        ({"probability": 101}, "spec.probability: 101"),
        ({"probability": -1}, "spec.probability: -1"),
        ({"probability": "101%"}, "spec.probability: '101%'"),
        ({"probability": "12.5%"}, "spec.probability: '12.5%'"),
        ({"probability": "30"}, "spec.probability: '30'"),
        ({"qosClass": "be"}, "spec.qosClass: 'be'"),
        ({"labels": {"a": "b c"}}, "spec.labels: 'b c'"),
        ({"labels": {"a b": "c"}}, "spec.labels: 'a b'"),
        ({"annotations": {"a b": "c"}}, "spec.annotations: 'a b'"),
        ({"labelKeysMapping": {"a": "b c"}}, "spec.labelKeysMapping: 'b c'"),
        ({"annotationKeysMapping": {"a": "/"}}, "spec.annotationKeysMapping"),
        ({"labelSuffixes": {"a": "-"}}, "spec.labelSuffixes"),
        ({"koordinatorPriority": 2**31}, "spec.koordinatorPriority"),
        ({"koordinatorPriority": -1}, "spec.koordinatorPriority"),
        ({"priorityClassName": "Not A Name"}, "spec.priorityClassName"),
        ({"schedulerName": "a/b"}, "spec.schedulerName"),
        ({"patch": {"status": {}}}, "spec.patch.status"),
    ],
)
def test_what_is_refused(spec: dict[str, Any], problem: str) -> None:
    with pytest.raises(profiles.BadProfile) as caught:
        objects.ready(**spec)
    assert problem in str(caught.value)


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(profiles.BadProfile) as caught:
        objects.ready(probability=200, qosClass="X", labels={"a": " "})
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize(("probability", "expected"), [(0, 0), ("0%", 0), (100, 1000), ("100%", 1000), (None, 1000)])
def test_none_and_all_are_exact(probability: Any, expected: int) -> None:
    profile = objects.ready(probability=probability)
    assert sum(profile.draws(f"shop/web-{index}") for index in range(1000)) == expected


@pytest.mark.parametrize(("probability", "percent"), [(1, 1), ("30%", 30), (50, 50), ("99%", 99)])
def test_a_percentage_is_met_closely_and_each_pod_the_same_every_time(probability: Any, percent: int) -> None:
    count = 6_000
    drawn = [objects.ready(probability=probability).draws(f"shop/web-{index}") for index in range(count)]
    share = percent / 100
    deviation = (share * (1 - share) / count) ** 0.5
    assert abs(sum(drawn) / count - share) < 4 * deviation
    again = objects.ready(probability=probability)
    assert [again.draws(f"shop/web-{index}") for index in range(500)] == drawn[:500]


def test_two_profiles_draw_independently() -> None:
    one, other = objects.ready("one", probability=50), objects.ready("other", probability=50)
    both = sum(one.draws(f"shop/{index}") and other.draws(f"shop/{index}") for index in range(4_000))
    assert 880 < both < 1120


def test_a_larger_percentage_keeps_those_of_a_smaller_one() -> None:
    small, large = objects.ready(probability=10), objects.ready(probability=40)
    assert all(large.draws(f"{index}") for index in range(2000) if small.draws(f"{index}"))
