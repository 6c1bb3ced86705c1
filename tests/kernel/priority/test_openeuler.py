import pathlib

import pytest
from tests.kernel.tree import Tree

from cotenant.kernel import priority

CPU = "sys/fs/cgroup/cpu"


def test_two_levels_at_the_v1_root(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    tree.file(f"{CPU}/cpu.qos_level", "0")
    tree.file(f"{CPU}/cpu.idle", "0")
    found = priority.probe(tree.root)
    assert found.name == "openeuler-qos-level"
    assert found.levels == (0, -1)
    assert found.sticky
    assert [[s.value for s in found.settings[i]] for i in (2, 1, 0, -1)] == [["0"], ["0"], ["0"], ["-1"]]
    assert [found.settings[i][0].irreversible for i in (2, 1, 0, -1)] == [False, False, False, True]
    assert not found.qos_directories_allowed()
    assert any("identity 1" in notice for notice in found.notices)


def test_five_levels_where_the_kernel_weighs_them(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    tree.file(f"{CPU}/cpu.qos_level", "0")
    tree.file("proc/sys/kernel/qos_level_weights", "1 10 100 1000 10000")
    found = priority.probe(tree.root)
    assert found.name == "openeuler-qos-level-multi"
    assert found.settings[-1][0].value == "-1"


def test_memory_level_comes_with_its_switch(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu", "memory"))
    tree.file(f"{CPU}/cpu.qos_level", "0")
    tree.file("sys/fs/cgroup/memory/memory.qos_level", "0")
    tree.file("proc/sys/vm/memcg_qos_enable", "0")
    found = priority.probe(tree.root)
    assert [(s.controller, s.file, s.value) for s in found.settings[-1]] == [
        ("cpu", "cpu.qos_level", "-1"),
        ("memory", "memory.qos_level", "-1"),
    ]
    assert [(s.path, s.value, s.controller) for s in found.switches] == [
        ("proc/sys/vm/memcg_qos_enable", "1", "memory")
    ]


@pytest.mark.parametrize(
    ("smt", "cmdline", "expels"),
    [("1", "quiet", True), ("1", "quiet nosmtexpell", False), ("0", "quiet", False), (None, "quiet", None)],
)
def test_expulsion(tmp_path: pathlib.Path, smt: str | None, cmdline: str, expels: bool | None) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    tree.file(f"{CPU}/cpu.qos_level", "0")
    tree.file("proc/cmdline", cmdline)
    if smt is not None:
        tree.file("sys/devices/system/cpu/smt/active", smt)
    assert priority.probe(tree.root).smt_expulsion is expels


def test_a_kernel_without_the_trace_event_was_built_without_expulsion(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    tree.file(f"{CPU}/cpu.qos_level", "0")
    tree.file("sys/devices/system/cpu/smt/active", "1")
    tree.file("sys/kernel/tracing/events/sched/sched_switch/format")
    assert priority.probe(tree.root).smt_expulsion is False


def test_found_on_v2_children_too(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v2="/sys/fs/cgroup")
    tree.file("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory")
    tree.file("sys/fs/cgroup/kubepods.slice/cpu.qos_level", "0")
    found = priority.probe(tree.root)
    assert (found.name, found.versions["cpu"]) == ("openeuler-qos-level", 2)
