import pathlib

import pytest
from tests.kernel.tree import Tree

from cotenant.kernel import priority
from cotenant.kernel.priority import protocol
from cotenant.model.priority import NAMES


def test_every_name_has_a_family() -> None:
    assert {name for names in protocol.FAMILIES for name in names} == set(NAMES)


def test_an_override_must_be_there(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    tree.file("sys/fs/cgroup/cpu/cpu.idle", "0")
    tree.file("sys/fs/cgroup/cpu/cpu.qos_level", "0")
    assert priority.choose(tree.root, "mainline-idle").name == "mainline-idle"
    assert priority.choose(tree.root, "weights-only").name == "weights-only"
    with pytest.raises(priority.OverrideUnavailable, match="anolis-bvt is not on this node"):
        priority.choose(tree.root, "anolis-bvt")
    with pytest.raises(priority.OverrideUnavailable):
        priority.choose(tree.root, "openeuler-qos-level-multi")


def test_probing_writes_nothing(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu", "memory"), v2="/sys/fs/cgroup/unified")
    tree.file("sys/fs/cgroup/cpu/a/cpu.qos_level", "0")
    before = tree.contents()
    priority.probe(tree.root)
    assert tree.contents() == before
