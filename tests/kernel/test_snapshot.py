import json
import os
import pathlib
import shutil

import pytest
from tests.kernel.tree import Tree

from cotenant.kernel import snapshot, topology
from cotenant.kernel.priority import probing
from cotenant.model import pod, pod_list
from cotenant.model.node import Cpu, Node, Topology
from cotenant.model.snapshot import Snapshot

UID = "11111111-2222-3333-4444-555555555555"
UNDERSCORED = UID.replace("-", "_")
ID = "c" * 64


def pods(container: str = f"containerd://{ID}") -> tuple[pod.Pod, ...]:
    status = {"qosClass": "BestEffort", "containerStatuses": [{"name": "c", "containerID": container}]}
    listed = {"metadata": {"name": "p", "uid": UID}, "spec": {"containers": [{"name": "c"}]}, "status": status}
    return pod_list.decode(json.dumps({"items": [listed]}))


def look(tree: Tree, listed: tuple[pod.Pod, ...], earlier: snapshot.Earlier | None = None) -> Snapshot:
    node = Node(capacity_millicores=1000, capacity_memory_bytes=1 << 30)
    interface = probing.probe(tree.root)
    return snapshot.read(tree.root, listed, interface, Topology(cpus=(Cpu(0),)), node, earlier=earlier)


@pytest.mark.parametrize(
    ("top", "directory", "container"),
    [
        ("kubepods", f"besteffort/pod{UID}", ID),
        (
            "kubepods.slice",
            f"kubepods-besteffort.slice/kubepods-besteffort-pod{UNDERSCORED}.slice",
            f"cri-containerd-{ID}.scope",
        ),
        ("kubelet/kubepods", f"besteffort/pod{UID}", ID),
        (
            "kubelet.slice/kubelet-kubepods.slice",
            f"kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod{UNDERSCORED}.slice",
            f"docker-{ID}.scope",
        ),
        ("kubepods.slice", f"kubepods-besteffort.slice/kubepods-besteffort-pod{UNDERSCORED}.slice", f"crio-{ID}.scope"),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_a_pod_is_found_by_either_driver_runtime_and_version(
    tmp_path: pathlib.Path, version: int, top: str, directory: str, container: str
) -> None:
    tree = Tree(tmp_path, v1=("cpu", "memory")) if version == 1 else Tree(tmp_path, v2="/sys/fs/cgroup")
    mount = "sys/fs/cgroup/cpu" if version == 1 else "sys/fs/cgroup"
    tree.file(f"{mount}/{top}/{directory}/{container}/cpu.shares", "2")
    found = look(tree, pods())
    assert [(g.path, g.qos, g.pod.key if g.pod else None) for g in found.groups] == [
        (f"{top}/{directory}", "BestEffort", "default/p")
    ]
    assert [c.container.name if c.container else None for c in found.groups[0].containers] == ["c"]
    assert found.qos_paths["Guaranteed"] == top
    arrivals = snapshot.Arrivals(tree.root)
    assert not arrivals.since(found)
    tree.file(f"{mount}/{top}/{directory.replace('1111', '9999')}/{container}/cpu.shares", "2")
    assert arrivals.since(found)
    assert not arrivals.since(look(tree, pods()))


@pytest.mark.parametrize("directory", ["{}", "docker-{}.scope", "cri-containerd-{}.scope", "crio-{}", "crio-{}.scope"])
@pytest.mark.parametrize("identifier", ["web-1", "my-long-one-2"])
def test_a_container_is_found_whatever_its_id_looks_like(
    tmp_path: pathlib.Path, directory: str, identifier: str
) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    group = f"sys/fs/cgroup/cpu/kubepods/besteffort/pod{UID}"
    tree.file(f"{group}/{directory.format(identifier)}/cpu.shares", "2")
    tree.file(f"{group}/{directory.format('1')}/cpu.shares", "2")
    found = look(tree, pods(f"containerd://{identifier}")).groups[0].containers
    named = {child.path.rpartition("/")[2]: child.container is not None for child in found}
    assert named == {directory.format(identifier): True, directory.format("1"): False}


def test_the_first_pod_and_the_first_of_its_class_are_noticed(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu", "memory"))
    arrivals = snapshot.Arrivals(tree.root)
    nobody = look(tree, ())
    assert not arrivals.since(nobody)
    tree.file(f"sys/fs/cgroup/memory/kubepods/pod{UID}/memory.stat", "")
    assert arrivals.since(nobody)
    guaranteed = look(tree, ())
    assert not arrivals.since(guaranteed)
    tree.file("sys/fs/cgroup/memory/kubepods/burstable/memory.stat", "")
    assert arrivals.since(guaranteed)
    tree.file("sys/fs/cgroup/memory/kubepods/elsewhere/memory.stat", "")
    assert not arrivals.since(look(tree, ())), "what is no pod and no class is nobody's"


def test_a_directory_without_a_listed_pod_is_seen_and_a_guaranteed_pod_has_no_directory_of_its_class(
    tmp_path: pathlib.Path,
) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    tree.file(f"sys/fs/cgroup/cpu/kubepods/pod{UID}/sandbox/cpu.shares", "2")
    tree.file("sys/fs/cgroup/cpu/kubepods/burstable/podgone/cpu.shares", "2")
    found = look(tree, pods())
    assert [(g.path, g.qos, g.pod is None) for g in found.groups] == [
        ("kubepods/burstable/podgone", "Burstable", True),
        (f"kubepods/pod{UID}", "Guaranteed", False),
    ]
    assert [child.container for child in found.groups[1].containers] == [None]


def test_without_kubepods_there_are_no_groups_and_no_error(tmp_path: pathlib.Path) -> None:
    found = look(Tree(tmp_path, v1=("cpu",)), pods())
    assert (found.groups, found.qos_paths) == ((), {})


def test_a_hybrid_machines_controllers_are_where_they_are_mounted(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu", "blkio"), v2="/sys/fs/cgroup/unified")
    tree.file("sys/fs/cgroup/unified/cgroup.controllers", "memory")
    found = look(tree, pods())
    assert {name: (h.path, h.version) for name, h in found.hierarchies.items()} == {
        "cpu": ("sys/fs/cgroup/cpu", 1),
        "blkio": ("sys/fs/cgroup/blkio", 1),
        "memory": ("sys/fs/cgroup/unified", 2),
    }


def test_on_v2_blkio_is_io_and_there_is_no_net_cls(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v2="/sys/fs/cgroup")
    tree.file("sys/fs/cgroup/cgroup.controllers", "cpu cpuset io memory")
    assert set(look(tree, pods()).hierarchies) == {"cpu", "cpuset", "cpuacct", "memory", "blkio"}


def test_files_are_read_once_and_missing_is_none(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    path = "sys/fs/cgroup/cpu/a/cpu.shares"
    tree.file(path, "2")
    files = snapshot.KernelFiles(tree.root)
    assert files.read(path) == "2"
    tree.file(path, "3")
    assert (files.read(path), files.read("sys/none"), files.exists("sys/none")) == ("2", None, False)


def kept(tree: Tree) -> snapshot.Earlier:
    if (tree.directory / "sys").stat().st_nlink < 3:
        pytest.skip("this file system does not count subdirectories as links; cgroupfs does")
    return snapshot.Earlier(tree.root)


def test_looks_that_keep_something_see_what_a_first_look_sees(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu", "memory"))
    burstable, other = "kubepods/burstable", f"kubepods/besteffort/pod{UID}"
    tree.file(f"sys/fs/cgroup/cpu/{burstable}/podgone/cpu.shares", "2")
    earlier = kept(tree)

    def agrees() -> Snapshot:
        found, first = look(tree, pods(), earlier), look(tree, pods())
        assert (found.groups, found.qos_paths, found.pods) == (first.groups, first.qos_paths, first.pods)
        return found

    agrees()
    seen = agrees()
    assert look(tree, pods(), earlier).groups is look(tree, pods(), earlier).groups
    assert agrees().groups == seen.groups
    for controller in ("cpu", "memory"):
        tree.file(f"sys/fs/cgroup/{controller}/{other}/{ID}/{controller}.x", "2")  # a directory of a class, too
    assert agrees().groups != seen.groups
    # A container that takes another's place leaves the count of directories as it was.
    for controller in ("cpu", "memory"):
        shutil.rmtree(tmp_path / f"sys/fs/cgroup/{controller}/{other}/{ID}")
        (tmp_path / f"sys/fs/cgroup/{controller}/{other}/{'d' * 64}").mkdir()
    assert agrees().groups[0].containers[0].path.endswith("d" * 64)
    assert look(tree, pods(f"containerd://{'d' * 64}"), earlier).groups[0].containers[0].container is not None
    for controller in ("cpu", "memory"):
        shutil.rmtree(tmp_path / f"sys/fs/cgroup/{controller}/kubepods", ignore_errors=True)
    assert agrees().groups == ()


def test_what_a_file_holds_is_read_anew_in_each_look(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    place = f"sys/fs/cgroup/cpu/kubepods/pod{UID}"
    tree.file(f"{place}/cpu.shares", "2")
    earlier = kept(tree)
    for value in ("3", "4"):
        tree.file(f"{place}/cpu.shares", value)
        files = look(tree, pods(), earlier).files
        assert files.exists(f"{place}/cpu.shares")
        assert files.read(f"{place}/cpu.shares") == value
    shutil.rmtree(tmp_path / place)
    assert look(tree, pods(), earlier).files.read(f"{place}/cpu.shares") is None


def test_a_group_that_one_hierarchy_does_not_have_yet_is_not_taken_for_one_without_files(
    tmp_path: pathlib.Path,
) -> None:
    tree = Tree(tmp_path, v1=("cpu", "memory"))
    tree.file(f"sys/fs/cgroup/cpu/kubepods/pod{UID}/cpu.shares", "2")
    earlier, path = kept(tree), f"sys/fs/cgroup/memory/kubepods/pod{UID}/memory.min"
    assert not look(tree, pods(), earlier).files.exists(path)
    tree.file(path, "0")
    assert look(tree, pods(), earlier).files.exists(path)


def test_what_comes_outside_of_groups_is_there_in_the_next_look(tmp_path: pathlib.Path) -> None:
    """A resctrl group of ours, made between two looks, would be made again and take another of the few there are."""
    tree = Tree(tmp_path, v1=("cpu",))
    tree.file(f"sys/fs/cgroup/cpu/kubepods/pod{UID}/cpu.shares", "2")
    tree.file("sys/fs/resctrl/schemata", "L3:0=ff")
    tree.file("proc/17/stat", "17 (a) S")
    earlier = kept(tree)
    descriptors = len(os.listdir("/proc/self/fd"))
    for name in ("BE", "LS"):
        files = look(tree, pods(), earlier).files
        assert [files.exists(f"sys/fs/resctrl/{other}") for other in ("x", "y", "z", name)] == [False] * 4
        (tmp_path / "sys/fs/resctrl" / name).mkdir()
        assert look(tree, pods(), earlier).files.exists(f"sys/fs/resctrl/{name}")
        assert files.read("proc/17/stat") == "17 (a) S"
    assert len(os.listdir("/proc/self/fd")) == descriptors, "no task is held by an open file"


def test_topology_places_cpus_by_core_socket_and_node(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path)
    base = "sys/devices/system"
    tree.file(f"{base}/cpu/online", "0-3")
    for cpu in range(4):
        tree.file(f"{base}/cpu/cpu{cpu}/topology/core_id", str(cpu % 2))
        tree.file(f"{base}/cpu/cpu{cpu}/topology/physical_package_id", "0")
    tree.file(f"{base}/node/node1/cpulist", "1,3")
    cpus = topology.read(tree.root).cpus
    assert cpus == (Cpu(0, 0, 0, 0), Cpu(1, 1, 0, 1), Cpu(2, 0, 0, 0), Cpu(3, 1, 0, 1))


def test_cpus_without_topology_are_cores_of_their_own(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path)
    tree.file("proc/stat", "cpu 1 1\ncpu0 1 1\ncpu1 1 1")
    assert topology.read(tree.root).cpus == (Cpu(0, 0), Cpu(1, 1))


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("sys/devices/system/cpu/online", "0,2"),
        ("sys/devices/system/cpu/cpu0/x", ""),
        ("proc/stat", "cpu  1 2\ncpu0 1 2\ncpu2 1 2\nintr 5\n"),
        ("proc/cpuinfo", "processor\t: 0\nmodel\t\t: 85\n\nprocessor\t: 2\nmodel\t\t: 85\n"),
    ],
)
def test_cpus_are_found_wherever_a_tree_lists_them(tmp_path: pathlib.Path, file: str, text: str) -> None:
    tree = Tree(tmp_path)
    tree.file(file, text)
    if file.endswith("/x"):
        tree.file(file.replace("cpu0", "cpu2"), text)
    assert topology.read(tree.root).ids == {0, 2}


def test_what_a_tree_does_not_say_of_the_node_is_unknown(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path)
    assert topology.read(tree.root).cpus == ()
    node = topology.node(tree.root, Topology(cpus=()))
    assert (node.capacity_millicores, node.capacity_memory_bytes, node.reserved_millicores) == (None, None, 0)
