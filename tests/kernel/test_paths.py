import pathlib

import pytest

from cotenant.kernel import paths

V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


def test_hybrid_has_v1_controllers_and_v2(tree):
    root = tree.root
    assert root.cgroup_version() == "hybrid"
    assert root.hierarchy("cpu").path == tree.directory / "sys/fs/cgroup/cpu"
    assert root.hierarchy("cpu").version == 1
    assert [m.name for m in root.cgroup_mounts() if not m.controllers and m.version == 1] == ["systemd"]


def test_v2_alone(empty):
    empty.write("proc/self/mountinfo", V2)
    empty.write("sys/fs/cgroup/cgroup.controllers", "cpu io memory\n")
    assert empty.root.cgroup_version() == "v2"
    assert empty.root.hierarchy("memory").path == empty.directory / "sys/fs/cgroup"
    assert empty.root.hierarchy("hugetlb") is None


def test_v1_with_joined_controllers_and_links(empty):
    empty.write(
        "proc/self/mountinfo",
        "31 23 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "32 23 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n",
    )
    assert empty.root.cgroup_version() == "v1"
    assert empty.root.hierarchy("cpu") == empty.root.hierarchy("cpuacct")


def test_systemd_naming_hierarchy_beside_v2_is_v2(empty):
    empty.write("proc/self/mountinfo", V2 + "32 23 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n")
    assert empty.root.cgroup_version() == "v2"


def test_a_mount_below_a_deeper_group_gives_way_to_the_whole(empty):
    empty.write(
        "proc/self/mountinfo",
        "31 23 0:28 /docker/a /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
        "33 23 0:28 / /host/cgroup/memory rw - cgroup cgroup rw,memory\n",
    )
    assert empty.root.hierarchy("memory").path == empty.directory / "host/cgroup/memory"


def test_without_mountinfo_the_usual_places_are_looked_at(empty):
    assert empty.root.cgroup_version() is None
    for name in ("cpu,cpuacct", "memory"):
        empty.write(f"sys/fs/cgroup/{name}/cgroup.procs", "")
    (empty.directory / "sys/fs/cgroup/cpu").symlink_to("cpu,cpuacct")
    assert empty.root.cgroup_version() == "v1"
    assert empty.root.hierarchy("cpu").path.name == "cpu,cpuacct"
    empty.write("sys/fs/cgroup/unified/cgroup.procs", "")
    assert empty.root.cgroup_version() == "hybrid"


def test_bare_groups_are_v2(empty):
    empty.write("sys/fs/cgroup/system.slice/cpu.stat", "usage_usec 1\n")
    assert empty.root.cgroup_version() == "v2"


@pytest.mark.parametrize("text", ["", "x\n", "1 2 3 4 5 6 - a\n", " - cgroup2 x y\n", "\x00\n"])
def test_odd_mountinfo_lines_are_left_out(text):
    assert paths.parse_mountinfo(text) == []


def test_later_mounts_hide_and_spaces_are_unescaped():
    mounts = paths.parse_mountinfo("1 0 0:1 / /a\\040b rw - tmpfs x rw\n2 0 0:2 / /a\\040b rw - cgroup2 x rw\n")
    assert [(m.point, m.fstype) for m in mounts] == [("/a b", "cgroup2")]


def test_relative_paths_and_the_run_directory():
    root = paths.Root("/srv/tree")
    assert root.relative(root.sys / "fs") == "sys/fs"
    assert root.run_dir == pathlib.Path("/srv/tree/run/cotenant")
    assert not root.is_machine
    assert paths.Root().is_machine
