from collections.abc import Callable
from typing import Any

import pytest
from tests.act.machine import Machine, usage

from cotenant.act import cpu_evict, planning
from cotenant.act.contesting import RETRY_SECONDS, WRITTEN_AGAIN, Contesting
from cotenant.act.draft import Plan
from cotenant.model import policy
from cotenant.model.enforcement import Contest

Make = Callable[..., Machine]
DIRECTORY = "kubepods/besteffort"


class Bench:
    """A node with two offline pods in the kubelet's directory, one outside of it, and somebody who writes as well."""

    def __init__(self, node: Machine, by: str = "cfsQuota") -> None:
        self.node, self.where, self.now = node, Contesting(), 100.0
        spec: dict[str, Any] = {"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressPolicy": by}}
        self.slo = policy.decode({"spec": spec})[0]
        self.off = policy.decode({"spec": {}})[0]
        self.pods = [node.pod(name, "BestEffort", "BE") for name in ("a", "b")]
        self.apart = node.pod("apart", "Burstable", "BE", containers=[{"requests": {"cpu": "1"}}])
        self.cpus = len(node.look().topology.cpus)
        self.journal: dict[str, str | None] = {}

    @property
    def file(self) -> str:
        return "cpu.max" if self.node.v2 else "cpu.cfs_quota_us"

    def path(self, group: str, controller: str = "cpu") -> str:
        return self.node.path(controller, group, self.file if controller == "cpu" else "cpuset.cpus")

    def look(self, on: bool = True) -> Plan:
        self.now += 1
        # 65 % of the CPUs less the node's use: 2 of 8 CPUs for offline work.
        used = usage(node=self.cpus * 650 - 2000 + 300, system=self.cpus * 650 - 2000, a=100, b=100, apart=100)
        seen = self.node.look(usage=used, journal=self.journal)
        self.seen, slo = self.where.applied(seen, self.slo if on else self.off, self.now)
        self.plan = planning.plan(self.seen, slo)
        for item in self.plan.items:
            self.journal.setdefault(str(item.path), item.old)
        self.node.apply(self.plan)
        return self.plan

    def contest(self, group: str, controller: str = "cpu", text: str = "-1") -> str:
        """Have somebody win over a file; return what is done about it."""
        contested = [Contest(path=self.path(group, controller), rewrites=5, found=text)]
        contests, new = self.where.follow(contested, self.plan.targets, self.seen, self.slo, self.now)
        assert contests == new
        return contests[0].answer

    def written(self) -> set[str]:
        """Return the groups of which a next look states quota or CPU set, by file."""
        self.look()
        return {target.path for target in self.plan.targets if target.strategy == "cpu_suppress"}

    def held(self) -> float:
        """Return how many CPUs all offline work may use by the groups' own quotas."""
        quotas = [self.node.quota(group) for group in (*self.pods, self.apart)]
        assert not {"-1", "max"} & set(quotas)
        return sum(map(int, quotas)) / 100_000


@pytest.mark.parametrize("flavour", ["mainline-v1", "mainline-v2", "openeuler"])
def test_from_the_directory_to_each_pod_to_cpu_sets_and_back_after_a_while(machine: Make, flavour: str) -> None:
    bench = Bench(machine(flavour, cpus=8))
    free = "max" if bench.node.v2 else "-1"
    bench.look()
    assert bench.node.quota(DIRECTORY) not in ("-1", "max")
    bench.node.write("cpu", DIRECTORY, bench.file, free)
    assert bench.contest(DIRECTORY) == "each group has a quota of its own instead"
    assert bench.path(DIRECTORY) not in bench.written(), "not fought over"
    assert bench.node.quota(DIRECTORY) == free
    assert bench.held() == pytest.approx(2.0, abs=0.1)
    assert bench.look().items == ()

    assert bench.contest(bench.pods[0]) == "offline work is held by CPU sets instead"
    written = bench.written()
    assert not {bench.path(group) for group in (DIRECTORY, *bench.pods, bench.apart)} & written
    assert len(bench.node.read("cpuset", bench.pods[0], "cpuset.cpus").split(",")) <= 2

    bench.now += RETRY_SECONDS
    bench.where.follow([], bench.plan.targets, bench.seen, bench.slo, bench.now)
    bench.look()
    assert bench.node.quota(DIRECTORY) not in ("-1", "max")
    assert [bench.node.quota(group) for group in bench.pods] == [free, free], "the directory holds them again"
    assert bench.look().items == ()


def test_cpu_sets_that_somebody_writes_over_give_way_to_quotas(machine: Make) -> None:
    bench = Bench(machine(cpus=8), "cpuset")
    bench.look()
    assert bench.contest(bench.pods[0], "cpuset", "0-7") == "offline work is held by quotas instead"
    written = bench.written()
    assert not {bench.path(group, "cpuset") for group in (DIRECTORY, *bench.pods, bench.apart)} & written
    assert int(bench.node.quota(DIRECTORY)) + int(bench.node.quota(bench.apart)) == pytest.approx(200_000, abs=10_000)


@pytest.mark.parametrize("by", ["cfsQuota", "cpuset"])
def test_where_every_place_is_contested_the_policys_own_is_written_again(machine: Make, by: str) -> None:
    bench = Bench(machine(cpus=8), by)
    bench.look()
    for controller in ("cpu", "cpuset") if by == "cfsQuota" else ("cpuset", "cpu"):
        answer = bench.contest(bench.apart, controller)
        bench.look()
    assert answer.startswith(WRITTEN_AGAIN)
    wanted = bench.path(bench.apart, "cpu" if by == "cfsQuota" else "cpuset")
    other = bench.path(bench.apart, "cpuset" if by == "cfsQuota" else "cpu")
    assert wanted in bench.written()
    assert other not in bench.written()


def test_on_v1_no_pod_is_asked_to_have_more_than_the_directory_that_is_somebody_elses(machine: Make) -> None:
    bench = Bench(machine(cpus=8))
    bench.look()
    bench.node.write("cpu", DIRECTORY, bench.file, "-1")
    bench.contest(DIRECTORY)
    bench.node.write("cpu", DIRECTORY, bench.file, "30000")
    bench.look()  # the double refuses what v1 refuses
    assert [int(bench.node.quota(group)) for group in bench.pods] == [30_000, 30_000]


def test_files_that_hold_nothing_back_are_written_again(machine: Make) -> None:
    bench = Bench(machine(cpus=8))
    online = bench.node.pod("web", "Burstable", "LS", containers=[{"limits": {"cpu": "1"}}])
    bench.look()
    for path in (bench.node.path("cpu", DIRECTORY, "cpu.idle"), bench.path(online), bench.path(online, "cpuset")):
        contested = [Contest(path=path, rewrites=5, found="0")]
        ((contest,), _) = bench.where.follow(contested, bench.plan.targets, bench.seen, bench.slo, bench.now)
        assert contest.answer == WRITTEN_AGAIN
    assert bench.where.left(bench.slo, bench.now) == frozenset()


def test_a_contest_is_told_once_and_again_when_it_comes_back(machine: Make) -> None:
    bench = Bench(machine(cpus=8))
    bench.look()
    path = bench.path(DIRECTORY)

    def follow(contested: list[Contest]) -> tuple[list[Contest], list[Contest]]:
        return bench.where.follow(contested, bench.plan.targets, bench.seen, bench.slo, bench.now)

    assert [len(part) for part in follow([Contest(path=path, rewrites=5, found="-1")])] == [1, 1]
    bench.look()
    assert [len(part) for part in follow([Contest(path=path, rewrites=5, found="-1")])] == [1, 0]
    assert follow([]) == ([], [])
    assert [len(part) for part in follow([Contest(path=path, rewrites=5, found="-1")])] == [1, 1]


def test_the_real_limit_is_that_of_the_groups_where_the_directory_is_somebody_elses(machine: Make) -> None:
    bench = Bench(machine(cpus=8))
    bench.look()
    bench.node.write("cpu", DIRECTORY, bench.file, "-1")
    bench.contest(DIRECTORY)
    bench.look()
    bench.look()
    inside = sum(int(bench.node.quota(group)) for group in bench.pods)
    assert cpu_evict.real_limit(bench.seen) == pytest.approx(inside / 100, abs=2)


def test_when_suppression_ends_nothing_of_it_stays(machine: Make) -> None:
    bench = Bench(machine(cpus=8))
    bench.look()
    bench.node.write("cpu", DIRECTORY, bench.file, "-1")
    bench.contest(DIRECTORY)
    bench.look()
    bench.look(on=False)
    assert {bench.node.quota(group) for group in (*bench.pods, bench.apart, DIRECTORY)} == {"-1"}
