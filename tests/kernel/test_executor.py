import errno
import os
import pathlib
import resource
import shutil
from collections.abc import Callable

import pytest
from tests.kernel.tree import Tree

from cotenant.kernel import errno_table, executor, journal, lock, restoration, undo
from cotenant.units.clock import ManualClock
from cotenant.units.plan import PlanItem

POD = "sys/fs/cgroup/cpu/kubepods/pod1"
SHARES = f"{POD}/cpu.shares"


def write(path: str, new: str, *, irreversible: bool = False) -> PlanItem:
    return PlanItem(op="write", path=path, new=new, strategy="test", reason="a test", irreversible=irreversible)


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> Tree:
    tree = Tree(tmp_path, v1=("cpu", "cpuset", "memory"))
    tree.file(SHARES, "1024")
    tree.file(f"{POD}/cpu.cfs_quota_us", "-1")
    return tree


def refusing(name: str, number: int, times: int = 1 << 30) -> Callable[[int, bytes], int]:
    """Return a write(2) that a kernel refuses for files of one name."""
    left = [times]

    def refuse(descriptor: int, data: bytes) -> int:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(name) and left[0] > 0:
            left[0] -= 1
            raise OSError(number, os.strerror(number))
        return os.write(descriptor, data)

    return refuse


def test_writes_once_and_then_nothing(tree: Tree) -> None:
    clock = ManualClock()
    writer = executor.Executor(tree.root, clock=clock)
    items = [write(SHARES, "512"), write(f"{POD}/cpu.cfs_quota_us", "50000")]
    assert [outcome.state for outcome in writer.apply(items)] == ["written", "written"]
    assert tree.read(SHARES) == "512\n"
    journal = writer.journal.path.read_bytes()
    for _ in range(60):
        clock.advance(1)
        assert {outcome.state for outcome in writer.apply(items)} == {"same"}
    assert writer.writes_total == 2
    assert writer.journal.path.read_bytes() == journal


def test_dry_run_touches_nothing(tree: Tree) -> None:
    before = tree.contents()
    writer = executor.Executor(tree.root, dry_run=True)
    made = "sys/fs/cgroup/cpu/cotenant"
    items = [
        PlanItem(op="mkdir", path=made, strategy="test", reason="a test"),
        write(f"{made}/cpu.shares", "2"),
        write(SHARES, "512"),
        write(f"{POD}/cpu.cfs_quota_us", "-1"),
    ]
    assert [outcome.state for outcome in writer.apply(items)] == ["planned", "planned", "planned", "same"]
    assert tree.contents() == before
    assert not tree.root.run_dir.exists()


def test_the_journal_has_the_old_value_before_the_write(tree: Tree) -> None:
    seen: list[bytes] = []

    def watch(descriptor: int, data: bytes) -> int:
        if data == b"512\n":
            seen.append((tree.root.run_dir / "journal").read_bytes())
        return os.write(descriptor, data)

    executor.Executor(tree.root, write=watch).apply([write(SHARES, "512")])
    assert b'"old":"1024\\n"' in seen[0]


@pytest.mark.parametrize("path", ["/etc/passwd", "sys/../../etc/passwd", "../x", "", "sys/fs/cgroup/out/file"])
def test_paths_stay_below_the_root(tree: Tree, tmp_path_factory: pytest.TempPathFactory, path: str) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "file").write_text("mine\n")
    (tree.directory / "sys/fs/cgroup/out").symlink_to(outside)
    (outcome,) = executor.Executor(tree.root).apply([write(path, "0")])
    assert outcome.state == "refused"
    assert (outside / "file").read_text() == "mine\n"


def test_a_link_that_stays_below_the_root_is_followed_and_a_linked_file_is_not(tree: Tree) -> None:
    (tree.directory / "sys/fs/cgroup/cpu,cpuacct").symlink_to("cpu")
    linked = "sys/fs/cgroup/cpu,cpuacct/kubepods/pod1/cpu.shares"
    assert executor.Executor(tree.root).apply([write(linked, "512")])[0].state == "written"
    (tree.directory / POD / "cpu.idle").symlink_to("cpu.shares")
    assert executor.Executor(tree.root).apply([write(f"{POD}/cpu.idle", "1")])[0].state == "refused"
    assert tree.read(SHARES) == "512\n"


def test_a_group_that_is_gone_is_dropped(tree: Tree) -> None:
    (outcome,) = executor.Executor(tree.root).apply([write("sys/fs/cgroup/cpu/gone/cpu.shares", "2")])
    assert (outcome.state, outcome.errno) == ("gone", errno.ENOENT)


def test_a_file_that_the_kernel_lacks_is_reported_once(tree: Tree) -> None:
    writer = executor.Executor(tree.root)
    assert [writer.apply([write(f"{POD}/cpu.idle", "1")])[0].state for _ in range(3)] == ["refused", "held", "held"]


def test_groups_that_come_and_go_leave_nothing_in_memory(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "COMPACTED_ABOVE_BYTES", 4000)
    writer = executor.Executor(tree.root)
    for number in range(200):
        group = tree.directory / f"sys/fs/cgroup/cpu/kubepods/pod{number}x"
        shares = f"sys/fs/cgroup/cpu/kubepods/{group.name}/cpu.shares"
        tree.file(shares, "1024")
        writer.apply([write(shares, "512")])
        tree.file(shares, "1024")  # somebody else
        writer.apply([write(shares, "512")])
        shutil.rmtree(group)
    assert writer.remembered < 50
    assert writer.rewrites.total == 200


def test_what_the_kernel_refused_is_not_in_force_because_of_us(tree: Tree) -> None:
    def refuse(descriptor: int, data: bytes) -> int:
        if data != b"7\n":
            return os.write(descriptor, data)
        os.write(descriptor, b"1024\n")  # as a kernel leaves it
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    writer = executor.Executor(tree.root, write=refuse)
    assert writer.apply([write(SHARES, "7")])[0].state == "refused"
    assert writer.journalled() == {}
    writer.apply([write(SHARES, "8")])
    assert writer.apply([write(SHARES, "7")])[0].state == "refused"
    assert writer.journalled() == {SHARES: "1024"}


def test_a_refused_value_is_not_tried_again_until_it_changes(tree: Tree) -> None:
    writer = executor.Executor(tree.root, write=refusing("cpu.shares", errno.EINVAL))
    states = [writer.apply([write(SHARES, value)])[0].state for value in ("7", "7", "7", "8", "8")]
    assert states == ["refused", "held", "held", "refused", "held"]


def test_what_does_not_fit_its_neighbours_is_tried_again_soon(tree: Tree) -> None:
    clock, quota = ManualClock(), f"{POD}/cpu.cfs_quota_us"
    writer = executor.Executor(tree.root, clock=clock, write=refusing("cpu.cfs_quota_us", errno.EINVAL, times=1))
    states = []
    for _ in range(3):
        states.append(writer.apply([write(quota, "50000")])[0].state)
        clock.advance(6)
    assert states == ["refused", "held", "written"]


def test_a_neighbour_that_was_written_is_a_reason_to_try_again(tree: Tree) -> None:
    quota, around = f"{POD}/cpu.cfs_quota_us", "sys/fs/cgroup/cpu/kubepods/cpu.cfs_quota_us"
    tree.file(around, "-1")
    tree.file("sys/fs/cgroup/cpu/kubepods/pod2/cpu.cfs_quota_us", "-1")
    writer = executor.Executor(tree.root, write=refusing("pod1/cpu.cfs_quota_us", errno.EINVAL, times=1))

    def states(*paths: str) -> list[str]:
        return [outcome.state for outcome in writer.apply([write(path, "50000") for path in paths])]

    assert states(quota) == ["refused"]
    assert states("sys/fs/cgroup/cpu/kubepods/pod2/cpu.cfs_quota_us", quota) == ["written", "held"]
    assert states(around, quota) == ["written", "written"]


def test_an_undo_is_tried_again_at_once(tree: Tree) -> None:
    writer = executor.Executor(tree.root, write=refusing("cpu.shares", errno.EINVAL, times=1))
    undoing = PlanItem(op="write", path=SHARES, new="7", strategy=journal.UNDOING, reason="a test")
    assert writer.apply([write(SHARES, "7")])[0].state == "refused"
    assert writer.apply([write(SHARES, "7")])[0].state == "held"
    assert writer.apply([undoing])[0].state == "written"


def test_denied_is_tried_again_after_a_minute(tree: Tree) -> None:
    clock = ManualClock()
    writer = executor.Executor(tree.root, clock=clock, write=refusing("cpu.shares", errno.EROFS, times=1))
    states = []
    for _ in range(3):
        states.append(writer.apply([write(SHARES, "7")])[0].state)
        clock.advance(31)
    assert states == ["denied", "held", "written"]


def test_busy_is_tried_again_at_once_and_then_next_time(tree: Tree) -> None:
    waits: list[float] = []
    writer = executor.Executor(tree.root, sleep=waits.append, write=refusing("cpu.shares", errno.EBUSY, times=4))
    assert [writer.apply([write(SHARES, "7")])[0].state for _ in range(2)] == ["busy", "written"]
    assert len(waits) == executor.RETRIES - 1 + 1


def test_a_value_that_the_kernel_changes_is_told(tree: Tree) -> None:
    def clamp(descriptor: int, data: bytes) -> int:
        return os.write(descriptor, b"99\n" if data == b"77\n" else data) and len(data)

    (outcome,) = executor.Executor(tree.root, write=clamp).apply([write(f"{POD}/cpu.cfs_quota_us", "77")])
    assert (outcome.state, outcome.actual) == ("not_taken", "99")


def test_openeulers_level_is_never_taken_back_and_no_root_is_written(tree: Tree) -> None:
    level = f"{POD}/cpu.qos_level"
    tree.file(level, "0")
    tree.file("sys/fs/cgroup/cpu/cpu.qos_level", "0")
    writer = executor.Executor(tree.root)
    assert writer.apply([write(level, "-1", irreversible=True)])[0].state == "written"
    (back,) = writer.apply([write(level, "0")])
    assert back.state == "left_out"
    assert "recreate the pod" in back.detail
    assert tree.read(level) == "-1\n"
    assert writer.apply([write("sys/fs/cgroup/cpu/cpu.qos_level", "-1")])[0].state == "left_out"


def test_commands_have_no_state(tree: Tree) -> None:
    reclaim = "sys/fs/cgroup/memory/a/memory.reclaim"
    (tree.file(reclaim)).chmod(0o200)
    writer = executor.Executor(tree.root)
    assert writer.apply([write(reclaim, "1048576")])[0].state == "written"
    assert writer.journal.entries == {}


def test_what_was_journalled_and_given_back(tree: Tree) -> None:
    writer = executor.Executor(tree.root)
    writer.apply([write(SHARES, "512")])
    assert executor.Executor(tree.root).journalled() == {SHARES: "1024"}
    writer.apply([write(SHARES, "1024")])
    assert writer.journalled() == {}


def test_rewrites_are_answered_and_a_contest_is_told(tree: Tree) -> None:
    clock = ManualClock()
    writer = executor.Executor(tree.root, clock=clock)
    writer.apply([write(SHARES, "512")])
    for _ in range(5):
        clock.advance(61)
        tree.file(SHARES, "1024")
        (outcome,) = writer.apply([write(SHARES, "512")])
        assert (outcome.state, outcome.rewritten) == ("written", True)
    assert writer.contested() == []
    for _ in range(5):
        clock.advance(1)
        tree.file(SHARES, "1024")
        writer.apply([write(SHARES, "512")])
    assert [(contest.path, contest.found) for contest in writer.contested()] == [(SHARES, "1024")]
    assert writer.rewrites.total == 10


def test_a_contest_is_told_also_where_our_value_follows_the_load(tree: Tree) -> None:
    writer = executor.Executor(tree.root, clock=ManualClock())
    for value in range(500, 506):
        writer.apply([write(SHARES, str(value))])
        tree.file(SHARES, "1024")
    assert [contest.path for contest in writer.contested()] == [SHARES]


def test_a_change_of_mind_is_no_rewrite(tree: Tree) -> None:
    writer = executor.Executor(tree.root)
    for value in ("2", "3", "2", "3"):
        assert not writer.apply([write(SHARES, value)])[0].rewritten
    assert writer.rewrites.total == 0


def test_one_writer_at_a_time(tree: Tree) -> None:
    with lock.writing(tree.root), pytest.raises(lock.Locked, match=f"process {os.getpid()}"):
        executor.Executor(tree.root, sleep=lambda seconds: None).apply([write(SHARES, "2")])
    assert tree.read(SHARES) == "1024\n"


def test_the_lock_needs_no_room_for_who_holds_it(tree: Tree) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # no file can grow, as on a full disk
    try:
        with lock.writing(tree.root):
            held = (tree.root.run_dir / "lock").read_bytes()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert held == b""


def test_without_a_place_for_the_journal_nothing_is_written(tree: Tree) -> None:
    tree.file("run", "a file in the way")
    with pytest.raises(lock.RunDirectoryUnusable, match="nothing is written without a journal"):
        executor.Executor(tree.root).apply([write(SHARES, "2")])
    assert tree.read(SHARES) == "1024\n"


def test_evictions_are_handed_over_or_left_out(tree: Tree) -> None:
    item = PlanItem(op="evict", new="ns/pod", strategy="test", reason="a test")
    assert executor.Executor(tree.root).apply([item])[0].state == "left_out"
    writer = executor.Executor(tree.root, evict=lambda item: executor.Outcome(item, "written"))
    assert writer.apply([item])[0].state == "written"


def test_tasks_of_another_root_are_not_ours(tree: Tree) -> None:
    item = PlanItem(op="set_policy", path=f"proc/{os.getpid()}", new="idle", strategy="test", reason="a test")
    assert executor.Executor(tree.root).apply([item])[0].state == "left_out"
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def test_what_was_in_a_group_that_we_remove_is_no_business_of_a_later_one(tree: Tree) -> None:
    """``cotenant run`` twice under one name: the second group's restore has nothing to say of the first's files."""
    made = "sys/fs/cgroup/cpu/made"
    writer = executor.Executor(tree.root)
    for _ in range(2):
        writer.apply([PlanItem(op="mkdir", path=made, strategy="test", reason="a test")])
        tree.file(f"{made}/cpu.shares", "1024")
        assert writer.apply([write(f"{made}/cpu.shares", "2")])[0].state == "written"
        (tree.directory / made / "cpu.shares").unlink()
        removal = PlanItem(op="rmdir", path=made, strategy="test", reason="a test")
        assert writer.apply([removal])[0].state == "written"
        assert executor.Executor(tree.root).journal.entries == {}
    assert undo.restore(executor.Executor(tree.root)) == restoration.Restoration()


def test_only_our_own_groups_are_removed(tree: Tree) -> None:
    def item(op: str, path: str) -> PlanItem:
        return PlanItem(op=op, path=path, strategy="test", reason="a test")  # type: ignore[arg-type]

    writer = executor.Executor(tree.root)
    theirs, made = "sys/fs/cgroup/cpu/theirs", "sys/fs/cgroup/cpu/made"
    (tree.directory / theirs).mkdir()
    assert [o.state for o in writer.apply([item("mkdir", made), item("rmdir", made), item("rmdir", theirs)])] == [
        "written",
        "written",
        "left_out",
    ]
    assert (tree.directory / theirs).is_dir()
    assert not (tree.directory / made).exists()


@pytest.mark.parametrize(
    ("number", "file", "state"),
    [
        (errno.ENODEV, "cpu.max", "gone"),
        (errno.ESRCH, "cgroup.procs", "gone"),
        (errno.EBUSY, "cpuset.cpus", "busy"),
        (errno.EINVAL, "cpu.max", "refused"),
        (errno.ERANGE, "cpu.weight", "refused"),
        (errno.EACCES, "cpuset.cpus", "refused"),
        (errno.EACCES, "memory.qos_level", "refused"),
        (errno.EACCES, "cpu.max", "denied"),
        (errno.EROFS, "cpu.max", "denied"),
        (errno.EIO, "cpu.max", "failed"),
        (errno.EXDEV, "cpu.max", "failed"),
    ],
)
def test_one_table_says_what_a_refusal_means(number: int, file: str, state: str) -> None:
    assert errno_table.decide(number, file).state == state


@pytest.mark.parametrize("kind", ["pipe", "link", "directory", "endless"])
def test_what_is_no_kernel_file_is_neither_waited_for_nor_written(tmp_path: pathlib.Path, kind: str) -> None:
    tree = Tree(tmp_path / "root", v1=("cpu",))
    tree.file("sys/fs/cgroup/cpu/a/cpu.weight", "1")
    path = tree.directory / "sys/fs/cgroup/cpu/a/cpu.shares"
    outside = tmp_path / "outside"
    outside.write_text("1024\n")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(outside)
    elif kind == "directory":
        path.mkdir()
    else:
        path.touch()
        os.truncate(path, 1 << 40)
    plan = [PlanItem(op="write", path="sys/fs/cgroup/cpu/a/cpu.shares", new="2", strategy="test", reason="a test")]
    plan.append(
        PlanItem(op="move_task", path="sys/fs/cgroup/cpu/a/cpu.shares", new="1", strategy="test", reason="a test")
    )
    states = [outcome.state for outcome in executor.Executor(tree.root).apply(plan)]
    assert set(states) <= {"refused", "failed", "gone"}, states
    assert outside.read_text() == "1024\n"


def test_a_group_that_somebody_made_again_under_our_name_is_theirs(tree: Tree) -> None:
    made = "sys/fs/cgroup/cpu/made"
    writer = executor.Executor(tree.root)
    writer.apply([PlanItem(op="mkdir", path=made, strategy="test", reason="a test")])
    (tree.directory / made).rename(tree.directory / "sys/fs/cgroup/cpu/kept")  # its inode is not given away
    (tree.directory / made).mkdir()
    (outcome,) = writer.apply([PlanItem(op="rmdir", path=made, strategy="test", reason="a test")])
    assert outcome.state == "left_out"
    assert (tree.directory / made).is_dir()
