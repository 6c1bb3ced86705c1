import itertools
import pathlib

import pytest
from tests.kernel.tree import Tree

from cotenant.kernel import executor, journal, undo
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
