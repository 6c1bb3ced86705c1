import itertools
import os
import pathlib
import shutil

import msgspec
import pytest
from tests.kernel.tree import Tree

from cotenant.kernel import executor, journal, lock, tasks, undo
from cotenant.units.plan import PlanItem

PATH = "sys/fs/cgroup/cpu/a/cpu.shares"


def written(tree: Tree, *values: str) -> executor.Executor:
    writer = executor.Executor(tree.root)
    for value in values:
        writer.apply([PlanItem(op="write", path=PATH, new=value, strategy="test", reason="a test")])
    return writer


def test_the_first_old_value_stays(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    tree.file(PATH, "1024")
    written(tree, "2", "3")
    read = journal.Journal(tree.root)
    read.refresh()
    (entry,) = read.of_this_boot()
    assert (entry.old, entry.values, entry.complete) == ("1024\n", ["2", "2", "3", "3"], True)


def test_what_a_commands_start_wrote_is_its_groups_own_to_whoever_enforces(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    tree.file(PATH, "1024")

    def put(value: str, strategy: str) -> dict[str, str | None]:
        item = PlanItem(op="write", path=PATH, new=value, strategy=strategy, reason="a test")
        executor.Executor(tree.root).apply([item])
        return executor.Executor(tree.root).journalled()

    assert put("512", journal.STARTING) == {}
    assert put("2", "suppress") == put("3", "isolate") == {PATH: "512"}
    executor.Executor(tree.root).journal.compact()
    assert executor.Executor(tree.root).journalled() == {PATH: "512"}
    assert put("512", "suppress") == {}
    assert put("7", "suppress") == {PATH: "512"}
    assert undo.restore(executor.Executor(tree.root)).complete
    assert tree.read(PATH) == "1024\n"


def test_a_torn_line_is_no_change_and_the_next_starts_anew(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    tree.file(PATH, "1024")
    written(tree, "2")
    with (tree.root.run_dir / "journal").open("ab") as file:
        file.write(b'{"kind":"change","boo')
    writer = written(tree, "3")
    assert writer.journal.unreadable_lines == 1
    (entry,) = executor.Executor(tree.root).journal.of_this_boot()
    assert entry.values[-1] == "3"


def test_compaction_keeps_one_line_a_key(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    tree.file(PATH, "1024")
    writer = written(tree, *(str(value) for value in range(2, 40)))
    before = [(e.path, e.old, set(e.values), e.complete) for e in writer.journal.of_this_boot()]
    writer.journal.compact()
    assert len(writer.journal.path.read_text().splitlines()) == 1
    again = journal.Journal(tree.root)
    again.refresh()
    assert [(e.path, e.old, set(e.values), e.complete) for e in again.of_this_boot()] == before


def test_the_journal_is_bounded(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "COMPACTED_ABOVE_BYTES", 4000)
    tree = Tree(tmp_path, v1=("cpu",))
    tree.file(PATH, "1024")
    writer = executor.Executor(tree.root)
    for value in range(2, 120):
        writer.apply([PlanItem(op="write", path=PATH, new=str(value), strategy="test", reason="a test")])
    assert writer.journal.path.stat().st_size < 5000
    assert undo.restore(writer).complete
    assert tree.read(PATH) == "1024\n"


def test_a_journal_of_many_live_groups_is_not_compacted_at_every_plan(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "COMPACTED_ABOVE_BYTES", 1000)
    tree = Tree(tmp_path, v1=("cpu",))
    paths = [f"sys/fs/cgroup/cpu/{number}/cpu.shares" for number in range(20)]
    for path in paths:
        tree.file(path, "1024")
    writer = executor.Executor(tree.root)

    def write(path: str, value: int) -> PlanItem:
        return PlanItem(op="write", path=path, new=str(value), strategy="test", reason="a test")

    writer.apply([write(path, 2) for path in paths])
    sizes = [writer.journal.path.stat().st_size]
    for value in range(3, 63):
        writer.apply([write(paths[0], value)])
        sizes.append(writer.journal.path.stat().st_size)
    assert min(sizes) > 1000
    compactions = sum(after < before for before, after in itertools.pairwise(sizes))
    assert 1 <= compactions <= 10, sizes
    assert len(list(writer.journal.of_this_boot())) == len(paths)


def item(value: str) -> PlanItem:
    return PlanItem(op="write", path=PATH, new=value, strategy="test", reason="a test")


def no_room(descriptor: int, data: bytes) -> int:
    return os.write(descriptor, data[: len(data) // 2])


def test_without_room_for_a_line_nothing_is_written_and_the_journal_stays_whole(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    tree.file(PATH, "1024")
    writer = written(tree, "2")
    before = writer.journal.path.read_bytes()
    writer.journal._write = no_room
    (outcome,) = writer.apply([item("3")])
    assert (outcome.state, outcome.errno) == ("failed", None)
    assert "nothing is written without a journal" in outcome.detail
    assert (tree.read(PATH), writer.journal.path.read_bytes()) == ("2\n", before)
    writer.journal._write = os.write
    assert [outcome.state for outcome in writer.apply([item("3")])] == ["written"], "it is not held against the file"


def test_a_mark_that_there_is_no_room_for_costs_no_undo(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    tree.file(PATH, "1024")
    writer = written(tree)
    writer.journal._write = lambda fd, data: (no_room if b'"done"' in data else os.write)(fd, data)
    assert [outcome.state for outcome in writer.apply([item("2")])] == ["written"]
    assert writer.journal.lost_marks == 1
    assert undo.restore(executor.Executor(tree.root)).complete
    assert tree.read(PATH) == "1024\n"


def test_a_restore_needs_no_room(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    for path in (PATH, f"{PATH}.b"):
        tree.file(path, "1024")
    writer = written(tree, "2")
    gone = PlanItem(op="write", path=f"{PATH}.b", new="3", strategy="test", reason="a test")
    writer.apply([gone])
    (tree.directory / f"{PATH}.b").unlink()
    again = executor.Executor(tree.root)
    again.journal._write = no_room
    result = undo.restore(again)
    assert (result.complete, len(result.restored), result.gone) == (True, 1, 1)
    assert tree.read(PATH) == "1024\n"
    assert not again.journal.path.exists()


def test_compaction_without_room_leaves_the_journal(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    tree.file(PATH, "1024")
    writer = written(tree, "2", "3")
    before = writer.journal.path.read_bytes()
    writer.journal.path.with_suffix(".new").mkdir()
    writer.journal.compact()
    assert writer.journal.path.read_bytes() == before


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_what_is_no_journal_is_refused_at_once(tmp_path: pathlib.Path, kind: str) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    tree.file(PATH, "1024")
    path = tree.root.run_dir / "journal"
    path.parent.mkdir(parents=True)
    if kind == "link":
        path.symlink_to("/etc/passwd")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(journal.JournalUnusable, match="not a plain file"):
        executor.Executor(tree.root)


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_the_lock_is_in_a_directory_of_its_own(tmp_path: pathlib.Path, kind: str) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    tree.file(PATH, "1024")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    tree.root.run_dir.parent.mkdir(parents=True, exist_ok=True)
    if kind == "link":
        tree.root.run_dir.symlink_to(elsewhere)
    else:
        tree.root.run_dir.mkdir()
        os.mkfifo(tree.root.run_dir / "lock")
    with pytest.raises(lock.RunDirectoryUnusable):
        executor.Executor(tree.root).apply([item("2")])
    assert tree.read(PATH) == "1024\n"
    assert list(elsewhere.iterdir()) == []


def test_what_a_tree_says_of_tasks_is_never_done_to_this_machines(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    task = str(os.getpid())
    tree.file(f"proc/{task}/stat", f"{task} (x) S " + " ".join(str(n) for n in range(4, 30)))
    started = tasks.start_time(tree.root, task)
    assert started
    line = journal.Line(
        kind="change", boot=journal.boot_id(tree.root), path=f"proc/{task}", dev=0, ino=0, task=task, op="set_policy",
        old="idle", values=(tasks.policy(int(task)),), started=started,
    )  # fmt: skip
    tree.root.run_dir.mkdir(parents=True)
    (tree.root.run_dir / "journal").write_bytes(msgspec.json.encode(line) + b"\n")
    result = undo.restore(executor.Executor(tree.root))
    assert os.sched_getscheduler(0) == os.SCHED_OTHER
    assert [left.reason for left in result.failed] == ["the tasks of another root are not this machine's"]


def test_compaction_forgets_moved_tasks_that_ended_but_not_where_their_group_has_them_from(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    (tmp_path / "proc").mkdir(exist_ok=True)
    for group in ("a", "b"):
        tree.file(f"sys/fs/cgroup/cpu/{group}/tasks")
    writer = executor.Executor(tree.root)

    def move(group: str, task: int) -> str:
        (tmp_path / f"proc/{task}").mkdir(exist_ok=True)
        fields = " ".join(["S", *["0"] * 18, str(task), "0"])
        (tmp_path / f"proc/{task}/stat").write_text(f"{task} (task) {fields}\n")
        path = f"sys/fs/cgroup/cpu/{group}/tasks"
        item = PlanItem(op="move_task", path=path, old="sys/fs/cgroup/cpu", new=str(task), strategy="test", reason="t")
        return writer.apply([item])[0].state

    moved = [("a", 100), ("a", 101), ("a", 102), ("b", 200), ("b", 201)]
    assert {move(group, task) for group, task in moved} == {"written"}
    for task in (100, 102, 200, 201):
        shutil.rmtree(tmp_path / f"proc/{task}")
    monkeypatch.setattr(journal.Journal, "is_large", lambda _: True)
    assert move("a", 103) == "written"
    kept = {entry.line.task for entry in executor.Executor(tree.root).journal.entries.values()}
    assert kept == {"101", "103", "201"}
