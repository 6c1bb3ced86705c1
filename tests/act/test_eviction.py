"""Who is on its way out counts, and who may not go is passed over."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.act.machine import Machine, steps, usage, use

from cotenant.act import planning
from cotenant.model import policy

Make = Callable[..., Machine]
GIB = 1 << 30
SLO = policy.decode({"spec": {"resourceUsedThresholdWithBE": {"enable": True, "memoryEvictThresholdPercent": 70}}})[0]


def node(machine: Make) -> tuple[Machine, dict[str, Any]]:
    """Return a node whose memory is so full that three of its four pods of 4 GiB have to go."""
    made = machine()
    for number, name in enumerate(("a", "b", "c", "d")):
        made.pod(name, "BestEffort", "BE", priority=5000 + number)
    capacity = made.look().node.capacity_memory_bytes
    assert capacity is not None
    own = capacity * 4 // 100
    used = usage(memory=capacity * 79 // 100, **dict.fromkeys("abcd", use(0, own)))
    return made, {"usage": used}


def victims(made: Machine, seen: dict[str, Any], **changes: Any) -> list[str | None]:
    looked = msgspec.structs.replace(made.look(**seen), **changes)
    return [item.new for item in steps(planning.plan(looked, SLO), "evict")]


def test_all_that_is_needed_at_once(machine: Make) -> None:
    assert victims(*node(machine)) == ["default/a", "default/b", "default/c"]


@pytest.mark.parametrize(
    ("evicting", "spared", "expected"),
    [
        ({"default/a"}, set(), ["default/b", "default/c"]),
        ({"default/a", "default/b", "default/c"}, set(), []),
        ({"default/a", "default/b", "default/c", "default/d"}, set(), []),
        (set(), {"default/a"}, ["default/b", "default/c", "default/d"]),
        ({"default/b"}, {"default/a"}, ["default/c", "default/d"]),
    ],
)
def test_who_was_asked_to_go_counts_and_who_is_spared_does_not(
    machine: Make, evicting: set[str], spared: set[str], expected: list[str]
) -> None:
    made, seen = node(machine)
    assert victims(made, seen, evicting=frozenset(evicting), spared=frozenset(spared)) == expected
