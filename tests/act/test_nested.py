"""The double refuses on v1 to narrow a parent below its child, so that a forgotten group fails these tests."""

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.act.machine import Machine, usage

from cotenant.act import cpu_suppress, planning
from cotenant.act.draft import ISOLATION, Draft
from cotenant.model import policy
from cotenant.units import cpulist
from cotenant.units.plan import PlanItem

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
            self.take(self.node.enforce(slo, journal=dict(self.journal), **seen).items)

    def take(self, items: Iterable[PlanItem]) -> None:
        """Remember what files held before; nothing of those that hold it again."""
        for item in items:
            self.journal.setdefault(str(item.path), item.old)
        for path in [path for path, old in self.journal.items() if self.node.kernel.read(path).strip() == old]:
            del self.journal[path]

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


QUOTA: dict[str, Any] = {"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressPolicy": "cfsQuota"}}
FLOOR_USEC = 200_000
"""What offline work keeps on eight CPUs."""


def with_own_quotas(node: Machine, *own: int) -> list[str]:
    """Return nested groups inside an offline container, each with a quota of its own."""
    groups = [node.container(node.pod("be", "BestEffort", "BE"))]
    for number, usec in enumerate(own):
        groups.append(f"{groups[-1]}/{number}")
        node.group(groups[-1])
        node.write("cpu", groups[-1], "cpu.cfs_quota_us", str(usec))
    return groups[1:]


def quotas(node: Machine, groups: Iterable[str]) -> list[int]:
    return [int(node.quota(group)) for group in groups]


def test_a_quota_inside_gives_way_while_it_does_not_fit_and_comes_back_when_it_does(machine: Make) -> None:
    node = machine()
    groups = with_own_quotas(node, 500_000, 300_000, 100_000)
    writer = Journalled(node)
    writer.enforce(QUOTA, usage=BUSY)
    assert quotas(node, ["kubepods/besteffort", *groups]) == [FLOOR_USEC, -1, -1, 100_000]
    assert writer.is_settled(QUOTA, usage=BUSY)
    while (most := quotas(node, ["kubepods/besteffort"])[0]) < 500_000:
        assert quotas(node, groups) == [-1, 300_000 if most >= 300_000 else -1, 100_000]
        writer.enforce(QUOTA, usage=CALM)
    assert quotas(node, groups) == [500_000, 300_000, 100_000]
    writer.enforce(QUOTA, usage=BUSY)
    writer.enforce(OFF)
    assert quotas(node, ["kubepods/besteffort", *groups]) == [-1, 500_000, 300_000, 100_000]
    assert writer.is_settled(OFF)
    assert writer.journal == {}


@pytest.mark.parametrize("label", [None, "BE"])
def test_offline_pods_outside_the_directory_have_groups_inside_too(machine: Make, label: str | None) -> None:
    node = machine()
    four_cpus = {"limits": {"cpu": "4"}, "requests": {"cpu": "1"}}
    pod = node.pod("be", "Burstable", "BE", containers=[four_cpus])
    container = node.container(pod)
    for group in (pod, container):
        node.write("cpu", group, "cpu.cfs_quota_us", "400000")
    inner = f"{container}/inner"
    node.group(inner)
    node.write("cpu", inner, "cpu.cfs_quota_us", "350000")
    if label is None:
        node.group(DAEMON)
        node.write("cpu", DAEMON, "cpu.cfs_quota_us", "700000")
    writer = Journalled(node)
    writer.enforce(QUOTA, usage=BUSY)
    assert quotas(node, [container, inner]) == [-1, -1]
    assert quotas(node, [pod])[0] < FLOOR_USEC
    writer.enforce(OFF)
    assert quotas(node, [pod, container, inner]) == [400_000, 400_000, 350_000]
    if label is None:
        assert quotas(node, [DAEMON]) == [700_000]


def test_what_its_owner_changes_meanwhile_is_what_it_gets_back(machine: Make) -> None:
    node = machine()
    (group,) = with_own_quotas(node, 500_000)
    writer = Journalled(node)
    writer.enforce(QUOTA, usage=BUSY)
    node.write("cpu", group, "cpu.cfs_quota_us", "150000")
    writer.journal[node.path("cpu", group, "cpu.cfs_quota_us")] = "150000"  # as the executor's journal has it then
    assert writer.is_settled(QUOTA, usage=BUSY)


def test_the_fast_path_makes_room_inside_before_it_tightens(machine: Make) -> None:
    node = machine()
    groups = with_own_quotas(node, 700_000)
    slo, _ = policy.decode({"spec": QUOTA})
    items = cpu_suppress.tightened(node.look(usage=usage(node=5000, be=5000)), slo)
    for item in items:
        node.kernel.write(str(item.path), f"{item.new}\n")
    assert quotas(node, ["kubepods/besteffort", *groups]) == [350_000, -1]
    assert {item.strategy for item in items} == {cpu_suppress.FAST_PATH}


def test_isolation_makes_room_inside_its_suspect(machine: Make) -> None:
    node = machine()
    groups = with_own_quotas(node, 300_000)
    pod = groups[0].rpartition("/")[0].rpartition("/")[0]
    seen = node.look()
    held = Draft(seen, ISOLATION)
    held.write(node.path("cpu", pod, "cpu.cfs_quota_us"), "50000", "a suspect")
    node.apply(planning.plan(seen, policy.NodeSlo(), first=[held]))
    assert quotas(node, [pod, *groups]) == [50_000, -1]


@settings(max_examples=20, deadline=None)
@given(
    own=st.lists(st.sampled_from([2000, 150_000, 250_000, 450_000, 790_000]), min_size=1, max_size=3),
    periods=st.lists(st.sampled_from([1000, 100_000, 1_000_000]), min_size=3, max_size=3),
    used=st.lists(st.sampled_from([0, 1500, 3000, 5000]), min_size=1, max_size=6),
)
def test_no_quota_is_refused_and_all_are_given_back(
    tmp_path_factory: pytest.TempPathFactory, own: list[int], periods: list[int], used: list[int]
) -> None:
    node = Machine(tmp_path_factory.getbasetemp())
    groups = with_own_quotas(node, *([-1] * len(own)))
    for group, usec, period in zip(groups, own, periods, strict=False):
        node.write("cpu", group, "cpu.cfs_period_us", str(period))
        with contextlib.suppress(OSError):  # more than the one around it: it has none of its own
            node.write("cpu", group, "cpu.cfs_quota_us", str(max(usec * period // 100_000, 1000)))
    before = [node.read("cpu", group, "cpu.cfs_quota_us") for group in groups]
    writer = Journalled(node)
    for each in used:
        writer.enforce(QUOTA, usage=usage(node=each, system=each))
    writer.enforce(OFF)
    assert [node.read("cpu", group, "cpu.cfs_quota_us") for group in groups] == before
