from typing import Any

import pytest

from cotenant.api import conditions
from cotenant.api.report import Condition

THEN, NOW = "2026-11-30T00:00:00Z", 1_796_000_400.0
HELD = [Condition(type="Valid", status="True", last_transition_time=THEN)]


def test_the_time_stays_while_the_status_does() -> None:
    (same,) = conditions.dated([Condition(type="Valid", status="True", message="other words")], HELD, NOW)
    assert (same.last_transition_time, same.message) == (THEN, "other words")


@pytest.mark.parametrize("new", [Condition(type="Valid", status="False"), Condition(type="Other", status="True")])
def test_what_changed_or_is_new_is_of_now(new: Condition) -> None:
    (changed,) = conditions.dated([new], HELD, NOW)
    assert changed.last_transition_time not in (None, THEN)
    assert conditions.dated([changed], [changed], NOW + 60) == [changed]


@pytest.mark.parametrize(
    "value", [{}, {"status": None}, {"status": {"conditions": None}}, {"status": {"conditions": [{"status": 7}]}}]
)
def test_an_object_without_usable_conditions_has_none(value: dict[str, Any]) -> None:
    assert conditions.read(value) == []


def test_conditions_as_the_api_server_gives_them() -> None:
    written = {"type": "Valid", "status": "True", "lastTransitionTime": THEN, "somethingNew": 1}
    assert conditions.read({"status": {"conditions": [written]}}) == HELD
