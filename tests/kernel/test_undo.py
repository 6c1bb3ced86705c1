import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.kernel.tree import Tree

from cotenant.kernel import executor, restoration, undo
from cotenant.units import ordering
from cotenant.units.plan import PlanItem

pytestmark = pytest.mark.slow

CPU = "sys/fs/cgroup/cpu/kubepods"
UID = "0a1b2c3d-0000-1111-2222-333344445555"


def write(path: str, new: str, *, irreversible: bool = False) -> PlanItem:
    return PlanItem(op="write", path=path, new=new, strategy="test", reason="a test", irreversible=irreversible)


@pytest.fixture
def memory(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A directory in memory where there is one: a disk waits on every truncation, and there are thousands here."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        yield pathlib.Path(directory)


@pytest.fixture
def tree(memory: pathlib.Path) -> Tree:
    tree = Tree(memory, v1=("cpu", "cpuset", "blkio"))
    for group in (CPU, f"{CPU}/a"):
        tree.file(f"{group}/cpu.shares", "1024")
        tree.file(f"{group}/cpu.cfs_quota_us", "-1")
        tree.file(f"{group}/cpu.cfs_burst_us", "0")
        tree.file(f"{group}/cpu.idle", "0")
    (tree.directory / f"{CPU}/a/cpu.shares").write_bytes(b"77")  # no final newline: every byte counts
    for group in ("kubepods", "kubepods/a"):
        tree.file(f"sys/fs/cgroup/cpuset/{group}/cpuset.cpus", "0")
    tree.file("sys/fs/cgroup/blkio/a/blkio.throttle.read_bps_device", "8:0 5\n8:16 6")
    tree.file("proc/sys/vm/min_free_kbytes", "11")
    return tree


PLAN = [
    PlanItem(op="mkdir", path=f"{CPU}/made", strategy="test", reason="a test"),
    PlanItem(op="mkdir", path=f"{CPU}/made/deep", strategy="test", reason="a test"),
    write(f"{CPU}/cpu.shares", "2"),
    write(f"{CPU}/a/cpu.shares", "3"),
    write(f"{CPU}/cpu.cfs_quota_us", "50000"),
    write(f"{CPU}/a/cpu.cfs_quota_us", "20000"),
    write(f"{CPU}/a/cpu.cfs_burst_us", "1000"),
    write(f"{CPU}/a/cpu.idle", "1"),
    write("sys/fs/cgroup/cpuset/kubepods/cpuset.cpus", "1"),
    write("sys/fs/cgroup/cpuset/kubepods/a/cpuset.cpus", "1"),
    write("sys/fs/cgroup/blkio/a/blkio.throttle.read_bps_device", "8:0 100"),
    write("proc/sys/vm/min_free_kbytes", "22"),
]


def ordered(tree: Tree) -> list[PlanItem]:
    current = {path: text.decode().strip() for path, text in tree.contents().items()}
    return ordering.order(PLAN, current)


def dying(at: int, how: str) -> Callable[[int, bytes], int]:
    """Return a write(2) in which the process dies: before, half-way through or after the one with this number."""
    calls = [0]

    def write(descriptor: int, data: bytes) -> int:
        calls[0] += 1
        if calls[0] == at:
            if how == "half":
                os.write(descriptor, data[: len(data) // 2])
            elif how == "after":
                os.write(descriptor, data)
            os._exit(9)
        return os.write(descriptor, data)

    return write


def in_a_child(work: Callable[[], object]) -> int:
    """Run work in a process that dies without any clean-up; return its exit status."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("how", ["half", "after"])
def test_killed_at_any_write_restore_gives_every_byte_back(tree: Tree, how: str) -> None:
    before = tree.contents()
    items = ordered(tree)
    for at in range(1, 200):
        status = in_a_child(lambda at=at: executor.Executor(tree.root, write=dying(at, how)).apply(items))
        result = undo.restore(executor.Executor(tree.root))
        assert tree.contents() == before, f"killed at write {at}"
        assert result.complete, f"killed at write {at}"
        assert not (tree.directory / CPU / "made").exists()
        assert not (tree.root.run_dir / "journal").exists()
        if status == 0:
            assert at > len(items)
            return
    raise AssertionError("the plan never ended")


@pytest.mark.parametrize("how", ["half"])
def test_restore_itself_may_be_killed(tree: Tree, how: str) -> None:
    before = tree.contents()
    items = [item for item in PLAN if "/a" in (item.path or "") or item.op == "mkdir"]
    for at in range(1, 200):
        executor.Executor(tree.root).apply(items)
        status = in_a_child(lambda at=at: undo.restore(executor.Executor(tree.root, write=dying(at, how))))
        result = undo.restore(executor.Executor(tree.root))
        assert tree.contents() == before, f"killed at write {at}"
        assert result.complete, f"killed at write {at}"
        if status == 0:
            return
    raise AssertionError("restore never ended")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(st.tuples(st.integers(2, 11), st.integers(1, 9999)), max_size=12))
def test_any_number_of_plans_and_one_restore(tree: Tree, values: list[tuple[int, int]]) -> None:
    before = tree.contents()
    writer = executor.Executor(tree.root)
    for index, value in values:
        text = f"8:0 {value}" if "blkio" in (PLAN[index].path or "") else str(value)
        writer.apply([write(PLAN[index].path or "", text)])
    assert undo.restore(executor.Executor(tree.root)).complete
    assert tree.contents() == before


def test_a_second_restore_finds_nothing(tree: Tree) -> None:
    executor.Executor(tree.root).apply(ordered(tree))
    assert undo.restore(executor.Executor(tree.root)).restored
    again = undo.restore(executor.Executor(tree.root))
    assert (again.restored, again.unchanged, again.complete) == ([], 0, True)


def test_another_boot_is_named_and_not_applied(tree: Tree) -> None:
    shares = f"{CPU}/cpu.shares"
    executor.Executor(tree.root).apply([write(shares, "2")])
    tree.file("proc/sys/kernel/random/boot_id", "another")
    result = undo.restore(executor.Executor(tree.root))
    assert [left.path for left in result.stale] == [shares]
    assert undo.restore(executor.Executor(tree.root)) == restoration.Restoration()  # named once, then forgotten
    assert tree.read(shares) == "2\n"


def test_an_unreadable_boot_id_is_the_empty_one(tree: Tree) -> None:
    (tree.directory / "proc/sys/kernel/random/boot_id").unlink()
    executor.Executor(tree.root).apply([write(f"{CPU}/cpu.shares", "2")])
    assert undo.restore(executor.Executor(tree.root)).complete
    assert tree.read(f"{CPU}/cpu.shares") == "1024\n"


def test_a_group_made_again_under_the_same_name_is_not_written(tree: Tree) -> None:
    shares = f"{CPU}/a/cpu.shares"
    executor.Executor(tree.root).apply([write(shares, "2")])
    (tree.directory / CPU / "a").rename(tree.directory / CPU / "old")
    tree.file(shares, "2")
    result = undo.restore(executor.Executor(tree.root))
    assert [left.reason for left in result.stale] == ["another group has this name now"]
    assert tree.read(shares) == "2\n"


def test_any_other_file_gets_its_old_content_whoever_wrote_since(tree: Tree) -> None:
    idle = f"{CPU}/a/cpu.idle"
    tree.file(idle, "0")
    executor.Executor(tree.root).apply([write(idle, "1")])
    tree.file(idle, "7")
    result = undo.restore(executor.Executor(tree.root))
    assert result.complete
    assert [(back.path, back.found) for back in result.restored] == [(idle, "7")]
    assert tree.read(idle) == "0\n"


def test_a_newer_value_of_the_kubelet_stays(tree: Tree) -> None:
    shares = f"{CPU}/cpu.shares"
    executor.Executor(tree.root).apply([write(shares, "2")])
    tree.file(shares, "555")
    result = undo.restore(executor.Executor(tree.root))
    assert [(left.path, left.found) for left in result.foreign] == [(shares, "555")]
    assert tree.read(shares) == "555\n"
    assert undo.restore(executor.Executor(tree.root)) == restoration.Restoration()


def test_a_quota_that_its_owner_changed_meanwhile_is_the_one_to_give_back(tree: Tree) -> None:
    quota, shares = f"{CPU}/a/cpu.cfs_quota_us", f"{CPU}/cpu.shares"
    writer = executor.Executor(tree.root)
    items = [write(quota, "20000"), write(shares, "2")]
    writer.apply(items)
    tree.file(quota, "90000")  # the pod is resized
    tree.file(shares, "4000")
    assert [outcome.rewritten for outcome in writer.apply(items)] == [True, True]
    assert undo.restore(executor.Executor(tree.root)).complete
    assert (tree.read(quota), tree.read(shares)) == ("90000\n", "1024\n")


def test_openeulers_level_is_listed_with_its_pod(tree: Tree) -> None:
    level = f"{CPU}/pod{UID}/cpu.qos_level"
    tree.file(level, "0")
    executor.Executor(tree.root).apply([write(level, "-1", irreversible=True), write(f"{CPU}/cpu.shares", "2")])
    result = undo.restore(executor.Executor(tree.root))
    assert [(left.path, left.found, left.remedy) for left in result.irreversible] == [(level, "-1", "recreate the pod")]
    assert result.pods_to_recreate == [UID]
    assert tree.read(level) == "-1\n"
    assert tree.read(f"{CPU}/cpu.shares") == "1024\n"
    # The pod is recreated: there is nothing left to say.
    for file in (tree.directory / f"{CPU}/pod{UID}").iterdir():
        file.unlink()
    (tree.directory / f"{CPU}/pod{UID}").rmdir()
    assert undo.restore(executor.Executor(tree.root)).complete
    assert not (tree.root.run_dir / "journal").exists()


def test_the_weight_that_idle_forgets_comes_back(tree: Tree) -> None:
    group = f"{CPU}/b"
    tree.file(f"{group}/cpu.idle", "0")
    tree.file(f"{group}/cpu.shares", "300")
    executor.Executor(tree.root).apply([write(f"{group}/cpu.idle", "1")])
    tree.file(f"{group}/cpu.shares", "3")  # as the kernel does
    assert undo.restore(executor.Executor(tree.root)).complete
    assert (tree.read(f"{group}/cpu.idle"), tree.read(f"{group}/cpu.shares")) == ("0\n", "300\n")


def test_moved_tasks_and_their_list(tree: Tree) -> None:
    procs = f"{CPU}/a/cgroup.procs"
    tree.file(procs, "7")
    item = PlanItem(op="move_task", path=procs, new="42", strategy="test", reason="a test")
    assert executor.Executor(tree.root).apply([item])[0].state == "written"
    assert tree.read(procs) == "42\n"
    assert undo.restore(executor.Executor(tree.root)).complete
    assert tree.read(procs) == "7\n"


@pytest.mark.parametrize(
    ("name", "original", "current", "values", "texts"),
    [
        ("io.max", "8:16 rbps=1 wbps=max riops=max wiops=max", "", ["8:0 rbps=5"], []),
        (
            "io.max",
            "",
            "8:0 rbps=5 wbps=max riops=max wiops=max",
            ["8:0 rbps=5"],
            ["8:0 rbps=max wbps=max riops=max wiops=max"],
        ),
        ("io.weight", "default 100", "default 10\n8:0 5", ["10", "8:0 5"], ["default 100", "8:0 default"]),
        ("schemata", "L3:0=ff;1=ff", "L3:0=f;1=ff", ["L3:0=f"], ["L3:0=ff"]),
        ("blkio.throttle.read_bps_device", "", "8:0 5", ["8:0 5"], ["8:0 0"]),
    ],
)
def test_lines_that_give_a_device_back(
    name: str, original: str, current: str, values: list[str], texts: list[str]
) -> None:
    assert undo._lines_back(name, original, current, values) == texts


def test_toggles_are_turned_back() -> None:
    assert undo._toggles_back("GENTLE NO_IDLE", ["NO_GENTLE", "IDLE", "NO_IDLE"]) == ["GENTLE", "NO_IDLE"]
