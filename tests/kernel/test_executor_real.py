"""The executor on this machine's own v1 files: written, read back, restored; and after a death at each write."""

import contextlib
import os
import pathlib
import signal
import subprocess
from collections.abc import Iterator

import pytest
from tests.kernel.test_undo import dying, in_a_child

from cotenant.kernel import executor, paths, tasks, undo
from cotenant.units import ordering
from cotenant.units.plan import PlanItem

pytestmark = pytest.mark.real

GROUP = f"cotenant-test-{os.getpid()}"
CONTROLLERS = ("cpu", "cpuset", "memory", "blkio")


class Groups:
    """A parent and a child group in each hierarchy, and a root whose journal is a test's own."""

    def __init__(self, journal: pathlib.Path) -> None:
        self.root = paths.Root("/")
        self.root.run_dir = journal
        self.top = {}
        for controller in CONTROLLERS:
            mount = self.root.hierarchy(controller)
            assert mount is not None
            self.top[controller] = mount.path / GROUP

    def make(self) -> None:
        for top in self.top.values():
            (top / "child").mkdir(parents=True)
        for directory in (self.top["cpuset"], self.top["cpuset"] / "child"):
            (directory / "cpuset.cpus").write_text("0")
            (directory / "cpuset.mems").write_text("0")

    def remove(self) -> None:
        for top in self.top.values():
            for directory in (top / "child", top):
                if directory.exists():
                    directory.rmdir()

    def path(self, name: str) -> str:
        """Return the plan's path of ``cpu/child/cpu.shares``."""
        controller, _, below = name.partition("/")
        return self.root.relative(self.top[controller] / below)

    def contents(self) -> dict[str, str]:
        found = {}
        for top in self.top.values():
            for file in sorted(top.rglob("*")):
                if file.is_file() and file.stat().st_mode & 0o222 and file.stat().st_mode & 0o444:
                    try:
                        found[self.root.relative(file)] = file.read_text()
                    except OSError:
                        continue  # event files answer EINVAL to a read
        return found


@pytest.fixture
def groups(tmp_path: pathlib.Path) -> Iterator[Groups]:
    root = paths.Root("/")
    if os.geteuid() != 0:
        pytest.skip("needs root")
    for controller in CONTROLLERS:
        mount = root.hierarchy(controller)
        if mount is None or mount.version != 1:
            pytest.skip(f"needs the v1 controller {controller}")
    if os.cpu_count() == 1:
        pytest.skip("needs two CPUs")
    made = Groups(tmp_path / "run")
    try:
        made.make()
        yield made
    finally:
        made.remove()


def disk() -> str | None:
    """Return a disk's number, or None where there is none."""
    for device in sorted(pathlib.Path("/sys/block").iterdir()):
        if not device.name.startswith(("loop", "ram", "zram", "dm-", "sr")):
            return (device / "dev").read_text().strip()
    return None


def plan(groups: Groups) -> list[PlanItem]:
    values = {
        "cpu/cpu.cfs_quota_us": "50000",
        "cpu/child/cpu.cfs_quota_us": "20000",
        "cpu/child/cpu.cfs_burst_us": "10000",
        "cpu/cpu.shares": "2",
        "cpu/child/cpu.shares": "512",
        "cpu/child/cpu.idle": "1",
        "cpuset/cpuset.cpus": "1",
        "cpuset/child/cpuset.cpus": "1",
        "memory/memory.limit_in_bytes": str(64 << 20),
        "memory/child/memory.limit_in_bytes": str((32 << 20) + 1),
        "memory/child/memory.soft_limit_in_bytes": str(16 << 20),
    }
    number = disk()
    if number is not None:
        values["blkio/child/blkio.throttle.read_bps_device"] = f"{number} 1048576"
    return [
        PlanItem(op="write", path=groups.path(name), new=value, strategy="test", reason="a test")
        for name, value in values.items()
    ]


def ordered(groups: Groups) -> list[PlanItem]:
    return ordering.order(plan(groups), {path: text.strip() for path, text in groups.contents().items()})


def test_written_read_back_and_restored(groups: Groups) -> None:
    before = groups.contents()
    writer = executor.Executor(groups.root)
    outcomes = writer.apply(ordered(groups))
    assert {outcome.state for outcome in outcomes} == {"written"}, outcomes
    for _ in range(3):
        assert {outcome.state for outcome in writer.apply(ordered(groups))} <= {"same"}
    assert writer.writes_total == len(outcomes)
    result = undo.restore(executor.Executor(groups.root))
    assert result.complete, result
    assert groups.contents() == before


def test_killed_at_any_write_a_restore_loses_nothing(groups: Groups) -> None:
    before = groups.contents()
    items = ordered(groups)
    for at in range(1, 200):
        status = in_a_child(lambda at=at: executor.Executor(groups.root, write=dying(at, "after")).apply(items))
        result = undo.restore(executor.Executor(groups.root))
        assert groups.contents() == before, f"killed at write {at}"
        assert result.complete, f"killed at write {at}"
        if status == 0:
            return
    raise AssertionError("the plan never ended")


def test_a_task_is_moved_and_moved_back_and_its_group_removed(groups: Groups) -> None:
    made = groups.path("cpu/made")
    worker = subprocess.Popen(["sleep", "900"])
    try:
        home = tasks.group_of(groups.root, str(worker.pid), made)
        items = [
            PlanItem(op="mkdir", path=made, strategy="test", reason="a test"),
            PlanItem(
                op="move_task", path=f"{made}/cgroup.procs", new=str(worker.pid), strategy="test", reason="a test"
            ),
            PlanItem(op="set_policy", path=f"proc/{worker.pid}", new="idle", strategy="test", reason="a test"),
        ]
        writer = executor.Executor(groups.root)
        assert [outcome.state for outcome in writer.apply(items)] == ["written", "written", "written"]
        assert [outcome.state for outcome in writer.apply(items)] == ["same", "same", "same"]
        assert tasks.group_of(groups.root, str(worker.pid), made) == made
        assert tasks.policy(worker.pid) == "idle"
        assert undo.restore(executor.Executor(groups.root)).complete
        assert tasks.group_of(groups.root, str(worker.pid), made) == home
        assert tasks.policy(worker.pid) == "other"
        assert not (groups.root.directory / made).exists()
    finally:
        worker.kill()
        worker.wait()
        if (groups.root.directory / made).exists():
            (groups.root.directory / made).rmdir()


def test_the_kernel_refuses_what_is_out_of_order(groups: Groups) -> None:
    """What the order is for: the same plan, parents first, is refused."""
    items = [
        PlanItem(op="write", path=groups.path(name), new="1", strategy="test", reason="a test")
        for name in ("cpuset/cpuset.cpus", "cpuset/child/cpuset.cpus")
    ]
    states = [outcome.state for outcome in executor.Executor(groups.root, sleep=lambda seconds: None).apply(items)]
    assert states == ["busy", "refused"]


def members(groups: Groups, controller: str, below: str = "") -> set[str]:
    return set((groups.top[controller] / below / "cgroup.procs").read_text().split())


def making(groups: Groups) -> Iterator[PlanItem]:
    """Yield what makes a group in two hierarchies."""
    for controller in ("cpu", "cpuset"):
        yield PlanItem(op="mkdir", path=groups.path(f"{controller}/made"), strategy="test", reason="a test")
    for file in ("cpuset.cpus", "cpuset.mems"):
        yield PlanItem(op="write", path=groups.path(f"cpuset/made/{file}"), new="0", strategy="test", reason="a test")


@pytest.mark.parametrize("parent_lives", [True, False])
def test_restore_takes_children_out_of_a_group_that_we_made(groups: Groups, parent_lives: bool) -> None:
    """A command's children are in its group by their parent; restore must not leave them behind in it."""
    command = ("sh", "-c", "sleep 900 & echo $!; exec sleep 900")
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0)
    assert parent.stdout is not None
    with parent.stdout:
        child = parent.stdout.readline().strip()
    try:
        writer = executor.Executor(groups.root)
        assert all(outcome.state == "written" for outcome in writer.apply(list(making(groups))))
        before = {}
        for controller in ("cpu", "cpuset"):
            before[controller] = tasks.group_of(groups.root, str(parent.pid), groups.path(f"{controller}/made/x"))
            path = groups.path(f"{controller}/made/cgroup.procs")
            item = PlanItem(op="move_task", path=path, new=str(parent.pid), strategy="test", reason="a test")
            assert [outcome.state for outcome in writer.apply([item])] == ["written"]
            (groups.top[controller] / "made/cgroup.procs").write_text(child)  # as a fork would have it
        if not parent_lives:
            parent.kill()
            parent.wait()
        done = undo.restore(executor.Executor(groups.root))
        assert done.failed == []
        for controller in ("cpu", "cpuset"):
            assert not (groups.top[controller] / "made").exists()
            assert tasks.group_of(groups.root, child, groups.path(f"{controller}/x")) == before[controller]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()


def test_who_is_in_a_group_that_stays_is_named(groups: Groups) -> None:
    """One that others put a process into, which was never ours to move."""
    writer = executor.Executor(groups.root)
    path = groups.path("cpu/made")
    writer.apply([PlanItem(op="mkdir", path=path, strategy="test", reason="a test")])
    process = subprocess.Popen(["sleep", "900"])
    procs = groups.top["cpu"] / "made/cgroup.procs"
    try:
        procs.write_text(str(process.pid))
        (left,) = undo.restore(executor.Executor(groups.root)).failed
        assert left.reason == f"processes are in it: {process.pid}"
    finally:
        process.kill()
        process.wait()
        procs.parent.rmdir()
