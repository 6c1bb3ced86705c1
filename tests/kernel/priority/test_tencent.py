import pathlib

from tests.kernel.tree import Tree

from cotenant.kernel import priority


def test_offline_is_reversible_and_inherited(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    tree.file("sys/fs/cgroup/cpu/cpu.offline", "0")
    found = priority.probe(tree.root)
    assert (found.name, found.levels) == ("tencent-offline", (0, 1))
    assert (found.sticky, found.inherits, found.pushes, found.smt_expulsion) == (False, True, False, False)
    assert [found.settings[i][0].value for i in (2, 1, 0, -1)] == ["0", "0", "0", "1"]
