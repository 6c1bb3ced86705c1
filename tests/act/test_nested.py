"""The double refuses on v1 to narrow a parent below its child, so that a forgotten group fails these tests."""

from collections.abc import Callable
from typing import Any

from tests.act.machine import Machine, usage

from cotenant.units import cpulist

Make = Callable[..., Machine]
ON: dict[str, Any] = {"resourceUsedThresholdWithBE": {"enable": True}}
OFF: dict[str, Any] = {"resourceUsedThresholdWithBE": {"enable": False}}
DAEMON = "kubepods/besteffort/batchd"
BUSY, CALM = usage(node=5000, system=5000), usage(node=0, system=0)


class Journalled:
    """A machine whose plans are carried out with a journal of what was there before."""

    def __init__(self, node: Machine) -> None:
        self.node = node
        self.journal: dict[str, str | None] = {}

    def enforce(self, slo: dict[str, Any], times: int = 1, **seen: Any) -> None:
        for _ in range(times):
            plan = self.node.enforce(slo, journal=dict(self.journal), **seen)
            for item in plan.items:
                self.journal.setdefault(str(item.path), item.old)

    def is_settled(self, slo: dict[str, Any], **seen: Any) -> bool:
        return self.node.plan(slo, journal=dict(self.journal), **seen).items == ()


def cpus(node: Machine, group: str) -> frozenset[int]:
    return cpulist.parse(node.read("cpuset", group, "cpuset.cpus"))


def test_groups_that_nobody_lists_follow_those_they_are_in(machine: Make) -> None:
    node = machine()
    container = node.container(node.pod("be", "BestEffort", "BE"))
    groups = [DAEMON, f"{container}/docker", f"{container}/docker/1"]
    for group in groups:
        node.group(group)
    writer = Journalled(node)
    writer.enforce(ON, 6, usage=BUSY)
    narrow = cpus(node, "kubepods/besteffort")
    assert len(narrow) == 2
    assert {cpus(node, group) for group in (container, *groups)} == {narrow}
    assert writer.is_settled(ON, usage=BUSY)
    writer.enforce(ON, 8, usage=CALM)
    assert {cpus(node, group) for group in groups} == {cpus(node, container)}
    assert len(cpus(node, container)) > 2
    writer.enforce(OFF)
    assert {len(cpus(node, group)) for group in groups} == {8}
    assert writer.is_settled(OFF)


def test_a_group_inside_keeps_its_own_choice_as_far_as_it_can(machine: Make) -> None:
    node = machine()
    node.pod("be", "BestEffort", "BE")
    node.group(DAEMON)
    node.write("cpuset", DAEMON, "cpuset.cpus", "1-5")
    writer = Journalled(node)
    writer.enforce(ON, 6, usage=BUSY)
    assert cpus(node, DAEMON) == cpus(node, "kubepods/besteffort") & frozenset(range(1, 6))
    writer.enforce(OFF)
    assert cpus(node, DAEMON) == frozenset(range(1, 6))


def test_v2_needs_none_of_it(machine: Make) -> None:
    node = machine("mainline-v2")
    node.pod("be", "BestEffort", "BE")
    node.group(DAEMON)
    before = node.read("cpuset", DAEMON, "cpuset.cpus")
    node.enforce(ON, usage=BUSY)
    assert node.read("cpuset", DAEMON, "cpuset.cpus") == before
