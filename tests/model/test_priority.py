import pathlib

import pytest
from tests.kernel.tree import Tree

from cotenant.kernel import priority as probes
from cotenant.model import priority


def test_the_mapping_is_the_users_to_change(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    tree.file("sys/fs/cgroup/cpu/cpu.qos_level", "0")
    changed = priority.remapped(probes.probe(tree.root), {1: -1})
    assert changed.settings[1] == changed.settings[-1]
    assert changed.settings[2][0].value == "0"
    assert changed.files() == ("cpu.qos_level",)
    with pytest.raises(KeyError):
        priority.remapped(changed, {7: 0})
