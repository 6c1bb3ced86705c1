import pathlib

import pytest
from tests.kernel.tree import Tree

from cotenant.kernel import paths, priority


def test_idle_in_a_deep_v2_child_only(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v2="/sys/fs/cgroup")
    tree.file("sys/fs/cgroup/cgroup.controllers", "cpu memory")
    tree.file("sys/fs/cgroup/system.slice/nginx.service/cpu.idle", "0")
    found = priority.probe(tree.root)
    assert (found.name, found.versions) == ("mainline-idle", {"cpu": 2})
    assert [found.settings[i][0].value for i in (2, 1, 0, -1)] == ["0", "0", "0", "1"]
    assert not found.qos_directories_allowed()


def test_probed_again_when_kubepods_appears(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v2="/sys/fs/cgroup")
    tree.file("sys/fs/cgroup/cgroup.controllers", "cpu memory")
    assert priority.probe(tree.root).name == "weights-only"
    tree.file("sys/fs/cgroup/kubepods/cpu.idle", "0")
    assert priority.probe(tree.root).name == "mainline-idle"


def test_hybrid_takes_the_hierarchy_that_has_the_controller(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu",), v2="/sys/fs/cgroup/unified")
    tree.file("sys/fs/cgroup/unified/cgroup.controllers", "")
    tree.file("sys/fs/cgroup/cpu/cpu.idle", "0")
    assert priority.probe(tree.root).versions == {"cpu": 1}


@pytest.mark.parametrize(("v1", "file", "value"), [(("cpu",), "cpu.shares", "2"), ((), "cpu.weight", "1")])
def test_weights_are_the_last_resort(tmp_path: pathlib.Path, v1: tuple[str, ...], file: str, value: str) -> None:
    tree = Tree(tmp_path, v1=v1, v2=None if v1 else "/sys/fs/cgroup")
    found = priority.probe(tree.root)
    assert (found.name, found.levels) == ("weights-only", ())
    assert [(s.file, s.value) for s in found.settings[-1]] == [(file, value)]
    assert found.settings[0] == ()


def test_no_controller_at_all_writes_nothing(tmp_path: pathlib.Path) -> None:
    found = priority.probe(Tree(tmp_path).root)
    assert (found.name, found.settings[-1]) == ("weights-only", ())


@pytest.mark.real
def test_this_machine_has_what_its_files_say() -> None:
    root = paths.Root("/")
    mount = root.hierarchy("cpu")
    if mount is None or mount.version != 1 or not (mount.path / "cpu.idle").exists():
        pytest.skip("needs a v1 cpu hierarchy with cpu.idle")
    assert priority.probe(root).name == "mainline-idle"
