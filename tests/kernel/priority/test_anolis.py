import pathlib

from tests.kernel.tree import Tree

from cotenant.kernel import priority

CPU = "sys/fs/cgroup/cpu"


def test_generation_1_with_its_switches(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    tree.file(f"{CPU}/cpu.bvt_warp_ns", "0")
    tree.file("proc/sys/kernel/sched_group_identity_enabled", "0")
    tree.file("proc/sys/kernel/sched_core", "1")
    tree.file("sys/devices/system/cpu/smt/active", "1")
    found = priority.probe(tree.root)
    assert (found.name, found.levels, found.sticky, found.smt_expulsion) == ("anolis-bvt", (2, 1, 0, -1), False, True)
    assert [found.settings[i][0].value for i in (2, 1, 0, -1)] == ["2", "1", "0", "-1"]
    assert [(s.path, s.value) for s in found.switches] == [
        ("proc/sys/kernel/sched_core", "0"),
        ("proc/sys/kernel/sched_group_identity_enabled", "1"),
    ]
    assert found.core_scheduling == "must_be_off"


def test_older_generation_1_has_no_switch(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    tree.file(f"{CPU}/kubepods/cpu.bvt_warp_ns", "0")
    assert priority.probe(tree.root).switches == ()


def test_the_sysctl_alone_is_generation_1(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v2="/sys/fs/cgroup")
    tree.file("proc/sys/kernel/sched_group_identity_enabled", "0")
    tree.file("sys/fs/cgroup/kubepods/cpu.priority", "0")
    assert priority.probe(tree.root).name == "anolis-bvt"


def test_both_files_are_generation_1(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v2="/sys/fs/cgroup")
    for name in ("cpu.priority", "cpu.identity", "cpu.bvt_warp_ns", "cpu.idle"):
        tree.file(f"sys/fs/cgroup/kubepods/{name}", "0")
    assert priority.probe(tree.root).name == "anolis-bvt"


def test_generation_2_writes_two_files_and_needs_core_scheduling(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v2="/sys/fs/cgroup")
    tree.file("sys/fs/cgroup/kubepods/cpu.priority", "0")
    tree.file("sys/fs/cgroup/kubepods/cpu.identity", "0")
    tree.file("proc/sys/kernel/sched_core", "0")
    found = priority.probe(tree.root)
    assert (found.name, found.levels, found.core_scheduling) == ("anolis-priority", (1, 0, -1), "must_be_on")
    values = [[(s.file, s.value) for s in found.settings[i]] for i in (2, 1, 0, -1)]
    assert values == [
        [("cpu.priority", p), ("cpu.identity", i)] for p, i in (("1", "1"), ("1", "0"), ("0", "0"), ("-1", "-1"))
    ]
    assert [(s.path, s.value) for s in found.switches] == [("proc/sys/kernel/sched_core", "1")]
