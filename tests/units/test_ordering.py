"""The order against a small model of the kernel: nothing is refused, no leaf is ever freer than at both ends."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.units import cpulist, ordering
from cotenant.units.plan import PlanItem

TOP = "sys/fs/cgroup/cpu/kubepods"
GROUPS = (TOP, f"{TOP}/a", f"{TOP}/a/1", f"{TOP}/a/2", f"{TOP}/b", f"{TOP}/b/1")
LEAVES = (f"{TOP}/a/1", f"{TOP}/a/2", f"{TOP}/b/1")
NO_QUOTA = 1 << 62


class Refused(Exception):
    pass


def parent(group: str) -> str:
    return group.rpartition("/")[0]


def children(group: str) -> list[str]:
    return [other for other in GROUPS if parent(other) == group]


@dataclasses.dataclass
class Model:
    """The v1 rules that refuse: quota and burst (as strict as openEuler), CPU sets, ascending memory limits."""

    files: dict[str, str]

    def number(self, group: str, file: str) -> int:
        text = self.files.get(f"{group}/{file}", "-1")
        return NO_QUOTA if text in ("-1", "max") else int(text)

    def limit(self, group: str, file: str = "cpu.cfs_quota_us") -> int:
        """The tightest on the way up."""
        own = self.number(group, file)
        return own if group not in GROUPS or group == TOP else min(own, self.limit(parent(group), file))

    def cpus(self, group: str) -> frozenset[int]:
        return cpulist.parse(self.files[f"{group}/cpuset.cpus"])

    def write(self, item: PlanItem) -> None:
        assert item.path is not None
        assert item.new is not None
        before = dict(self.files)
        self.files[item.path] = item.new
        group, _, file = item.path.rpartition("/")
        if file == "cpu.cfs_quota_us" and item.new == "-1":
            self.files[f"{group}/cpu.cfs_burst_us"] = "0"
        if not self.valid(group, file):
            self.files = before
            raise Refused(item)

    def valid(self, group: str, file: str) -> bool:
        if file == "cpu.cfs_quota_us":
            return all(self.quota_fits(other) for other in GROUPS) and self.burst_fits(group)
        if file == "cpu.cfs_burst_us":
            return self.burst_fits(group)
        if file == "cpuset.cpus":
            above = group == TOP or self.cpus(group) <= self.cpus(parent(group))
            return above and all(self.cpus(child) <= self.cpus(group) for child in children(group))
        chain = [self.number(group, name) for name in ordering.CHAINS[0]]
        return chain == sorted(chain)

    def quota_fits(self, group: str) -> bool:
        own = self.number(group, "cpu.cfs_quota_us")
        return group == TOP or own == NO_QUOTA or own <= self.limit(parent(group))

    def burst_fits(self, group: str) -> bool:
        quota = self.number(group, "cpu.cfs_quota_us")
        return int(self.files.get(f"{group}/cpu.cfs_burst_us", "0")) <= (0 if quota == NO_QUOTA else quota)


def quotas(numbers: list[int], bursts: list[int]) -> dict[str, str]:
    """Turn any numbers into a valid tree of quotas and bursts: 0 is no quota."""
    model = Model({})
    for group, number, burst in zip(GROUPS, numbers, bursts, strict=True):
        above = NO_QUOTA if group == TOP else model.limit(parent(group))
        model.files[f"{group}/cpu.cfs_quota_us"] = "-1" if number == 0 else str(min(number, above))
        model.files[f"{group}/cpu.cfs_burst_us"] = "0" if number == 0 else str(min(burst, number, above))
    return model.files


def cpusets(masks: list[int]) -> dict[str, str]:
    files: dict[str, str] = {}
    sets: dict[str, frozenset[int]] = {}
    for group, mask in zip(GROUPS, masks, strict=True):
        cpus = frozenset(cpu for cpu in range(4) if mask >> cpu & 1)
        above = sets.get(parent(group), frozenset(range(4)))
        sets[group] = (cpus & above) or above
        files[f"{group}/cpuset.cpus"] = cpulist.render(sets[group])
    return files


def memories(numbers: list[list[int]]) -> dict[str, str]:
    return {
        f"{group}/{name}": "max" if value == 9 else str(value << 20)
        for group, row in zip(GROUPS, numbers, strict=True)
        for name, value in zip(ordering.CHAINS[0], sorted(row), strict=True)
    }


def plan(start: dict[str, str], end: dict[str, str], shuffled: list[str]) -> list[PlanItem]:
    return [
        PlanItem(op="write", path=path, old=start[path], new=end[path], strategy="test", reason="test")
        for path in shuffled
        if start[path] != end[path]
    ]


ONE_QUOTA = st.sampled_from([0, 1000, 20000, 50000, 100000])
QUOTAS = st.builds(
    quotas,
    st.lists(ONE_QUOTA, min_size=len(GROUPS), max_size=len(GROUPS)),
    st.lists(st.sampled_from([0, 5000, 60000]), min_size=len(GROUPS), max_size=len(GROUPS)),
)
SETS = st.builds(cpusets, st.lists(st.integers(0, 15), min_size=len(GROUPS), max_size=len(GROUPS)))
ROWS = st.lists(st.integers(0, 9), min_size=4, max_size=4)
MEMORIES = st.builds(memories, st.lists(ROWS, min_size=len(GROUPS), max_size=len(GROUPS)))


def walk(start: dict[str, str], end: dict[str, str], items: list[PlanItem]) -> list[Model]:
    """Apply the ordered items and return the state after each, the start first."""
    model = Model(dict(start))
    states = [Model(dict(start))]
    for item in ordering.order(items, start):
        model.write(item)
        states.append(Model(dict(model.files)))
    assert model.files == end
    return states


@settings(max_examples=60, deadline=None)
@given(start=QUOTAS, end=QUOTAS, data=st.data())
def test_quota_and_burst(start: dict[str, str], end: dict[str, str], data: st.DataObject) -> None:
    states = walk(start, end, plan(start, end, data.draw(st.permutations(sorted(start)))))
    for leaf in LEAVES:
        ends = max(states[0].limit(leaf), states[-1].limit(leaf))
        assert all(state.limit(leaf) <= ends for state in states)


@settings(max_examples=40, deadline=None)
@given(start=SETS, end=SETS, data=st.data())
def test_cpusets(start: dict[str, str], end: dict[str, str], data: st.DataObject) -> None:
    states = walk(start, end, plan(start, end, data.draw(st.permutations(sorted(start)))))
    for leaf in LEAVES:
        ends = (states[0].cpus(leaf), states[-1].cpus(leaf))
        assert all(any(state.cpus(leaf) <= one for one in ends) for state in states)


@settings(max_examples=30, deadline=None)
@given(start=MEMORIES, end=MEMORIES, data=st.data())
def test_memory_chain(start: dict[str, str], end: dict[str, str], data: st.DataObject) -> None:
    states = walk(start, end, plan(start, end, data.draw(st.permutations(sorted(start)))))
    for leaf in LEAVES:
        for name in ("memory.high", "memory.max"):
            ends = max(states[0].limit(leaf, name), states[-1].limit(leaf, name))
            assert all(state.limit(leaf, name) <= ends for state in states)


def write(path: str, new: str, old: str | None = None) -> PlanItem:
    return PlanItem(op="write", path=path, old=old, new=new, strategy="test", reason="test")


def names(items: list[PlanItem]) -> list[str]:
    return [f"{(item.path or '').rpartition('/')[2]}={item.new}" for item in items]


def test_a_cpuset_parent_holds_the_union() -> None:
    items = [write("p/cpuset.cpus", "1"), write("p/c/cpuset.cpus", "1")]
    ordered = ordering.order(items, {"p/cpuset.cpus": "0", "p/c/cpuset.cpus": "0"})
    assert [(item.path, item.new) for item in ordered] == [
        ("p/cpuset.cpus", "0-1"),
        ("p/c/cpuset.cpus", "1"),
        ("p/cpuset.cpus", "1"),
    ]


def test_a_burst_in_the_way_of_a_quota_is_lowered() -> None:
    ordered = ordering.order(
        [write("g/cpu.max", "10000 100000")], {"g/cpu.max": "50000 100000", "g/cpu.max.burst": "40000"}
    )
    assert names(ordered) == ["cpu.max.burst=10000", "cpu.max=10000 100000"]


@pytest.mark.parametrize(("quota", "new"), [("240000", "288000"), ("240000", "200000")], ids=["up", "down"])
def test_a_burst_beyond_its_quota_is_left_where_the_kernel_has_taken_it(quota: str, new: str) -> None:
    quotas, burst = "g/cpu.cfs_quota_us", "g/cpu.cfs_burst_us"
    current = {quotas: quota, burst: "2000000"}
    assert names(ordering.order([write(quotas, new, quota)], current)) == [f"cpu.cfs_quota_us={new}"]
    both = [write(quotas, new, quota), write(burst, "1000000", "2000000")]
    assert sorted(names(ordering.order(both, current))) == ["cpu.cfs_burst_us=1000000", f"cpu.cfs_quota_us={new}"]


def test_a_quota_too_small_for_its_period_is_not_held_on_the_way() -> None:
    inner, around = f"{TOP}/a/1/cpu.cfs_quota_us", f"{TOP}/a/cpu.cfs_quota_us"
    current = {inner: "4000", around: "400000", f"{TOP}/a/1/cpu.cfs_period_us": "1000"}
    items = ordering.order([write(around, "50000"), write(inner, "-1")], current)
    assert [(item.path, item.new) for item in items] == [(inner, "-1"), (around, "50000")]


def test_shares_follow_the_end_of_idle_and_are_left_out_in_idle() -> None:
    items = [write("g/cpu.shares", "512"), write("g/cpu.idle", "0")]
    assert names(ordering.order(items, {"g/cpu.idle": "1"})) == ["cpu.idle=0", "cpu.shares=512"]
    assert names(ordering.order([items[0]], {"g/cpu.idle": "1"})) == []
    assert names(ordering.order([items[0], write("g/cpu.idle", "1")], {"g/cpu.idle": "0"})) == ["cpu.idle=1"]


def test_v1_swap_limit_is_never_below_the_memory_limit() -> None:
    limit, swap = "g/memory.limit_in_bytes", "g/memory.memsw.limit_in_bytes"
    low, high = str(1 << 20), str(1 << 30)
    down = ordering.order([write(swap, low), write(limit, low)], {limit: high, swap: high})
    assert [item.path for item in down] == [limit, swap]
    up = ordering.order([write(limit, high), write(swap, high)], {limit: low, swap: low})
    assert [item.path for item in up] == [swap, limit]


IDENTITY = "proc/sys/kernel/sched_group_identity_enabled"
CORE = "proc/sys/kernel/sched_core"
BVT = "sys/fs/cgroup/cpu/pod/cpu.bvt_warp_ns"


def test_core_scheduling_ends_before_group_identity_begins() -> None:
    items = [write(BVT, "2"), write(IDENTITY, "1"), write(CORE, "0")]
    assert names(ordering.order(items, {IDENTITY: "0", CORE: "1"})) == [
        "sched_core=0",
        "sched_group_identity_enabled=1",
        "cpu.bvt_warp_ns=2",
    ]


def test_group_identity_is_zeroed_before_core_scheduling_begins() -> None:
    items = [write(CORE, "1"), write(IDENTITY, "0"), write(BVT, "0")]
    assert names(ordering.order(items, {IDENTITY: "1", CORE: "0"})) == [
        "cpu.bvt_warp_ns=0",
        "sched_group_identity_enabled=0",
        "sched_core=1",
    ]


@pytest.mark.parametrize("extra", [[], [write(IDENTITY, "1")]])
def test_never_both(extra: list[PlanItem]) -> None:
    ordered = ordering.order([write(CORE, "1"), *extra], {IDENTITY: "0" if extra else "1", CORE: "0"})
    assert "sched_core=1" not in names(ordered)


def test_directories_first_and_evictions_last() -> None:
    def item(op: str) -> PlanItem:
        return PlanItem(op=op, path=f"g/{op}", strategy="test", reason="test")  # type: ignore[arg-type]

    ops = ["evict", "rmdir", "move_task", "mkdir", "write"]
    assert [i.op for i in ordering.order([item(op) for op in ops], {})] == [
        "mkdir",
        "write",
        "move_task",
        "rmdir",
        "evict",
    ]


def test_each_file_is_written_once_and_each_device_of_a_keyed_file() -> None:
    items = [write("g/cpu.shares", "2"), write("g/io.max", "8:0 rbps=1"), write("g/io.max", "8:16 rbps=1")]
    ordered = ordering.order([*items, write("g/cpu.shares", "3")], {})
    assert names(ordered) == ["io.max=8:0 rbps=1", "io.max=8:16 rbps=1", "cpu.shares=3"]
