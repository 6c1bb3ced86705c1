import pathlib

import pytest
from tests.kernel.tree import Tree

from cotenant.kernel import features
from cotenant.kernel.priority.evidence import Evidence


def found(tree: Tree, name: str) -> tuple[str, str | None]:
    finding = features.FEATURES[name].probe(Evidence(tree.root))
    return finding.state, finding.remedy


def test_every_feature_says_something_of_an_empty_machine(tmp_path: pathlib.Path) -> None:
    findings = features.probe_all(Evidence(Tree(tmp_path).root))
    assert list(findings) == [feature.name for feature in sorted_features()]
    assert {finding.state for finding in findings.values()} <= {"missing", "unknown"}
    assert all(finding.reason for finding in findings.values())


def sorted_features() -> list[features.Feature]:
    order = ["observe", "cgroup", "limit", "schedule", "vendor"]
    return sorted(features.FEATURES.values(), key=lambda feature: order.index(feature.area))


def test_psi_of_groups_on_v2_and_on_vendors_v1(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu", "cpuacct"))
    assert found(tree, "psi-cgroup")[0] == "missing"
    assert "psi_v1=1" in (found(tree, "psi-cgroup")[1] or "")
    tree.file("sys/fs/cgroup/cpuacct/kubepods/cpu.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0")
    assert found(tree, "psi-cgroup")[0] == "available"


def test_psi(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path)
    assert found(tree, "psi") == ("missing", "boot with psi=1 (kernel 4.20 or newer, CONFIG_PSI)")
    tree.file("proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0")
    assert found(tree, "psi")[0] == "available"


def test_resctrl_mounted_mountable_and_missing(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path)
    assert found(tree, "resctrl")[0] == "missing"
    tree.file("proc/filesystems", "nodev\tresctrl")
    assert found(tree, "resctrl")[0] == "unknown"
    tree.file("proc/cpuinfo", "flags : fpu lm cat_l3")
    assert found(tree, "resctrl") == ("disabled", "mount -t resctrl resctrl /sys/fs/resctrl")
    tree.file("sys/fs/resctrl/info/L3/cbm_mask", "fffff")
    tree.file("proc/self/mountinfo", "30 20 0:30 / /sys/fs/resctrl rw - resctrl resctrl rw")
    assert [found(tree, name)[0] for name in ("resctrl", "resctrl-cat", "resctrl-mba")] == [
        "available",
        "available",
        "missing",
    ]


def test_controllers_turned_off_and_not_mounted(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    tree.file("proc/cgroups", "#subsys_name hierarchy num_cgroups enabled\ncpu 1 5 1\nmemory 0 1 0\nblkio 0 1 1")
    assert [found(tree, name)[0] for name in ("cpu", "memory", "io", "cpuset")] == [
        "available",
        "disabled",
        "disabled",
        "missing",
    ]
    assert found(tree, "memory")[1] == "boot without cgroup_disable=memory"


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("cpu-burst", "cpu.max.burst"),
        ("memory-qos", "memory.min"),
        ("memory-high", "memory.high"),
        ("io-max", "io.max"),
        ("cpuset-partition", "cpuset.cpus.partition"),
    ],
)
def test_files_that_only_children_show(tmp_path: pathlib.Path, name: str, file: str) -> None:
    tree = Tree(tmp_path, v2="/sys/fs/cgroup")
    tree.file("sys/fs/cgroup/cgroup.controllers", "cpu cpuset memory io")
    assert found(tree, name)[0] == "unknown"
    tree.file("sys/fs/cgroup/a/b/cgroup.procs")
    assert found(tree, name)[0] == "missing"
    tree.file(f"sys/fs/cgroup/a/b/{file}", "0")
    assert found(tree, name)[0] == "available"


def test_smt(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path)
    assert found(tree, "smt")[0] == "unknown"
    for active, control, state in (
        ("1", "on", "available"),
        ("0", "off", "disabled"),
        ("0", "notsupported", "missing"),
    ):
        tree.file("sys/devices/system/cpu/smt/active", active)
        tree.file("sys/devices/system/cpu/smt/control", control)
        assert found(tree, "smt")[0] == state


def test_switches_of_vendors(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu", "memory"))
    tree.file("sys/fs/cgroup/memory/memory.qos_level", "0")
    tree.file("proc/sys/vm/memcg_qos_enable", "0")
    assert found(tree, "memory-qos-level")[0] == "disabled"
    tree.file("proc/sys/vm/memcg_qos_enable", "1")
    assert found(tree, "memory-qos-level")[0] == "available"
    tree.file("proc/sys/kernel/sched_group_identity_enabled", "0")
    assert found(tree, "group-identity")[0] == "disabled"
    tree.file("proc/qos/net_qos_enable", "0")
    assert found(tree, "net-qos")[0] == "available"


def test_core_scheduling_of_a_copied_tree_is_unknown_without_a_sign(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path)
    assert found(tree, "core-scheduling")[0] == "unknown"
    tree.file("proc/sys/kernel/sched_core", "0")
    assert found(tree, "core-scheduling")[0] == "available"
