"""Reading what strategies decide on: which pod has which cgroup, and the files there as they are asked for.

The kubelet names pod directories ``kubepods/[besteffort/|burstable/]pod<uid>`` (cgroupfs driver) or
``kubepods.slice/kubepods-<qos>.slice/kubepods-<qos>-pod<uid>.slice`` (systemd driver, ``-`` in the uid as ``_``),
below a cgroup root of its own in some set-ups (kind). Container directories are the id, bare or in a scope's name.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TypedDict

import msgspec

from cotenant.kernel import errors, paths
from cotenant.kernel.directories import Directories
from cotenant.kernel.file import File, read_once
from cotenant.model.node import Node, Topology, Usage
from cotenant.model.pod import Container, KubeQos, Pod
from cotenant.model.priority import PriorityInterface
from cotenant.model.snapshot import ContainerGroup, Controller, Files, Hierarchy, PodGroup, Snapshot

CONTROLLERS: tuple[Controller, ...] = ("cpu", "cpuset", "cpuacct", "memory", "blkio", "net_cls")
_V2_NAMES: Mapping[Controller, str] = {"blkio": "io", "cpuacct": "cpu"}
_KUBEPODS = re.compile(r"kubepods|(?:.*-)?kubepods\.slice")
_QOS = re.compile(r"(burstable|besteffort)|.*kubepods-(burstable|besteffort)\.slice")
_POD = re.compile(r"pod([0-9a-zA-Z_.-]+)|.*kubepods(?:-(?:burstable|besteffort))?-pod([0-9a-zA-Z_.-]+?)\.slice")
_KUBEPODS_DEPTH_MAX = 3
_CLASSES: Mapping[str, KubeQos] = {"burstable": "Burstable", "besteffort": "BestEffort"}


LISTED_AFTER = 2
"""A directory of which more than so many files are asked for is listed once: vendors' files are mostly not there."""


_OPENED_EACH_TIME = ("cgroup.procs", "tasks")
"""On v1 an open list of tasks shows the same for as long as it is read."""


class Earlier:
    """What the looks of one thread at a live tree have found that the next look need not find again.

    Files of control groups stay open. Which files a group has is taken as known, since the kernel settles it when it
    makes the group: whoever keeps this begins anew now and then, for controllers that are switched on later. That the
    groups are the same is told by the directories of one hierarchy. Of all else (tasks, resctrl) nothing is kept.
    """

    def __init__(self, root: paths.Root) -> None:
        self.hierarchies = hierarchies(root)
        self.names: dict[str, frozenset[str]] = {}
        """Of the files in a group, by its path below the root."""
        self._tops = tuple(f"{hierarchy.path}/" for hierarchy in self.hierarchies.values())
        self._shared: dict[frozenset[str], frozenset[str]] = {}
        self._prefix = _prefix(root)
        self._directories = Directories(live=True)
        self._files: dict[str, File] = {}
        self._parts: _Parts | None = None
        self._outline: list[tuple[str, ...]] | None = None

    def settles(self, path: str) -> bool:
        """Return whether a path is in a control group, whose files come and go with it."""
        return path.startswith(self._tops)

    def shared(self, names: frozenset[str]) -> frozenset[str]:
        """Return an equal set that is kept already: the groups of a hierarchy have the same files."""
        return self._shared.setdefault(names, names)

    def read(self, path: str) -> bytes:
        """Return what a file holds, by its path below the root; a group's stays open if that shows what it holds now.

        :raises FileError: if it cannot be read.
        """
        if not self.settles(path) or path.rpartition("/")[2] in _OPENED_EACH_TIME:
            return read_once(f"{self._prefix}/{path}")
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = File(f"{self._prefix}/{path}")
        return file.read()

    def parts(self, files: Files, pods: Sequence[Pod]) -> "_Parts":
        """Return the parts of a snapshot that say which pod has which group: the same objects where they are equal."""
        known = self._parts
        outline = None if known is None else self._look(known["qos_paths"])
        if known is None or outline is None or outline != self._outline or known["pods"] != tuple(pods):
            # Compared with what was there before the groups are read, so that what comes meanwhile is seen next time.
            self._outline = outline
            known = self._parts = assemble(files, self.hierarchies, pods)
        return {**known, "files": files}

    def _look(self, qos_paths: Mapping[KubeQos, str]) -> list[tuple[str, ...]] | None:
        """Return the names of the directories of pods and containers; None where they cannot be told."""
        top = next((f"{self._prefix}/{hierarchy.path}" for hierarchy in self.hierarchies.values()), None)
        if top is None or not qos_paths:
            return None
        self._directories.turn()
        found = []
        try:
            for directory in qos_paths.values():
                names = self._directories.standing(f"{top}/{directory}")
                pods = [name for name in names if _POD.fullmatch(name)]
                found += [names, *(self._directories.standing(f"{top}/{directory}/{name}") for name in pods)]
        except OSError:
            return None  # a group went while we looked
        return found


def _prefix(root: paths.Root) -> str:
    return str(root.directory).rstrip("/")


class KernelFiles:
    """Files below a root, each read at most once."""

    def __init__(self, root: paths.Root, earlier: Earlier | None = None) -> None:
        # Text, not pathlib: with 150 pods this is asked some thousand times a second.
        self._prefix = _prefix(root)
        self._earlier = earlier
        self._content: dict[str, str | None] = {}
        self._exists: dict[str, bool] = {}
        self._asked: dict[str, int] = {}
        self._names: dict[str, frozenset[str]] = {}

    def read(self, path: str) -> str | None:
        if path not in self._content:
            self._content[path] = self._read(path)
        return self._content[path]

    def _read(self, path: str) -> str | None:
        try:
            data = read_once(f"{self._prefix}/{path}") if self._earlier is None else self._earlier.read(path)
        except errors.KernelError:
            return None
        return data.decode(errors="replace").removesuffix("\n")

    def exists(self, path: str) -> bool:
        if path not in self._exists:
            self._exists[path] = self._look(path)
        return self._exists[path]

    def _look(self, path: str) -> bool:
        directory, _, name = path.rpartition("/")
        earlier = self._earlier if self._earlier is not None and self._earlier.settles(path) else None
        known = self._names if earlier is None else earlier.names
        names = known.get(directory)
        if names is None:
            asked = self._asked[directory] = self._asked.get(directory, 0) + 1
            if asked <= LISTED_AFTER and earlier is None:
                return os.path.exists(f"{self._prefix}/{path}")
            try:
                names = frozenset(os.listdir(f"{self._prefix}/{directory}"))
            except OSError:
                return False  # not there, or not yet
            known[directory] = names if earlier is None else earlier.shared(names)
        return name in names

    def directories(self, path: str) -> tuple[str, ...]:
        place = f"{self._prefix}/{path}"
        try:
            if os.stat(place).st_nlink == 2:
                return ()  # itself and its name: each directory below would link to it
            with os.scandir(place) as entries:
                return tuple(sorted(e.name for e in entries if e.is_dir(follow_symlinks=False)))
        except OSError:
            return ()


def hierarchies(root: paths.Root) -> dict[Controller, Hierarchy]:
    """Return where each controller is mounted; absent where it is not."""
    mounts = root.cgroup_mounts()
    found: dict[Controller, Hierarchy] = {}
    for controller in CONTROLLERS:
        mount = paths.hierarchy_among(mounts, controller)
        if mount is None or mount.version == 2:
            unified = paths.hierarchy_among(mounts, _V2_NAMES.get(controller, controller))
            mount = unified if unified is not None and unified.version == 2 and controller != "net_cls" else None
        if mount is None:
            continue
        found[controller] = Hierarchy(root.relative(mount.path), mount.version)
    return found


class Units(msgspec.Struct, frozen=True):
    """Groups that were named by somebody, each as the group of a pod; ``directory`` holds offline ones alone."""

    groups: tuple[PodGroup, ...] = ()
    directory: str | None = None


def read(
    root: paths.Root,
    pods: Sequence[Pod],
    interface: PriorityInterface,
    topology: Topology,
    node: Node,
    usage: Usage | None = None,
    journal: Mapping[str, str | None] | None = None,
    units: Units | None = None,
    earlier: Earlier | None = None,
) -> Snapshot:
    """Return the node as it is now. Files are read when they are asked for, and then kept.

    With ``units`` these are all the groups there are: the kubelet's are not looked for.
    """
    resctrl = root.resctrl()
    if units is not None:
        parts = _given(root, units)
    elif earlier is not None:
        parts = earlier.parts(KernelFiles(root, earlier), pods)
    else:
        parts = assemble(KernelFiles(root), hierarchies(root), pods)
    return Snapshot(
        **parts,
        topology=topology,
        node=node,
        priority=interface,
        usage=usage,
        journal=journal or {},
        page_bytes=os.sysconf("SC_PAGE_SIZE"),
        proc=root.relative(root.proc),
        sys=root.relative(root.sys),
        resctrl=None if resctrl is None else root.relative(resctrl),
    )


class _Parts(TypedDict):
    files: Files
    hierarchies: Mapping[Controller, Hierarchy]
    groups: tuple[PodGroup, ...]
    qos_paths: Mapping[KubeQos, str]
    pods: tuple[Pod, ...]


def _given(root: paths.Root, units: Units) -> _Parts:
    directories: dict[KubeQos, str] = {} if units.directory is None else {"BestEffort": units.directory}
    return {
        "files": KernelFiles(root),
        "hierarchies": hierarchies(root),
        "groups": units.groups,
        "qos_paths": directories,
        "pods": tuple(group.pod for group in units.groups if group.pod is not None),
    }


def assemble(files: Files, mounted: Mapping[Controller, Hierarchy], pods: Sequence[Pod]) -> _Parts:
    """Return the parts of a snapshot that say which pod has which group."""
    qos_paths = _qos_paths(files, mounted, _find_kubepods(files, mounted))
    return {
        "files": files,
        "hierarchies": mounted,
        "groups": _groups(files, mounted, qos_paths, pods),
        "qos_paths": qos_paths,
        "pods": tuple(pods),
    }


def _below(files: Files, mounted: Mapping[Controller, Hierarchy], group: str) -> list[str]:
    """Return the names of the groups below one, in any hierarchy: right after a start some have it and some do not."""
    places = dict.fromkeys(f"{h.path}/{group}".rstrip("/") for h in mounted.values())
    return sorted({name for place in places for name in files.directories(place)})


def _find_kubepods(files: Files, mounted: Mapping[Controller, Hierarchy]) -> str | None:
    level = [""]
    for _ in range(_KUBEPODS_DEPTH_MAX):
        below = [f"{group}/{name}".lstrip("/") for group in level for name in _below(files, mounted, group)]
        for group in below:
            if _KUBEPODS.fullmatch(group.rpartition("/")[2]):
                return group
        level = below
    return None


def _qos_paths(files: Files, mounted: Mapping[Controller, Hierarchy], kubepods: str | None) -> dict[KubeQos, str]:
    if kubepods is None:
        return {}
    found: dict[KubeQos, str] = {"Guaranteed": kubepods}
    for name in _below(files, mounted, kubepods):
        match = _QOS.fullmatch(name)
        if match:
            found[_CLASSES[match[1] or match[2]]] = f"{kubepods}/{name}"
    return found


def _groups(
    files: Files,
    mounted: Mapping[Controller, Hierarchy],
    qos_paths: Mapping[KubeQos, str],
    pods: Sequence[Pod],
) -> tuple[PodGroup, ...]:
    by_uid = {pod.uid.replace("_", "-"): pod for pod in pods}
    groups = []
    for qos, path, uid in _pod_directories(files, mounted, qos_paths):
        pod = by_uid.get(uid)
        groups.append(PodGroup(path, qos, pod, _containers(files, mounted, path, pod)))
    return tuple(sorted(groups, key=lambda group: group.path))


def _pod_directories(
    files: Files, mounted: Mapping[Controller, Hierarchy], qos_paths: Mapping[KubeQos, str]
) -> Iterator[tuple[KubeQos, str, str]]:
    """Yield each pod's class, path and uid by the directories that there are."""
    for qos, directory in qos_paths.items():
        for name in _below(files, mounted, directory):
            match = _POD.fullmatch(name)
            if match is not None:
                yield qos, f"{directory}/{name}", (match[1] or match[2]).replace("_", "-")


class Arrivals:
    """Tells whether pods' groups came since a look, by the directories that they come in: far cheaper than a look."""

    def __init__(self, root: paths.Root) -> None:
        self._root = root
        self._prefix = _prefix(root)
        self._directories = Directories(live=root.is_machine)

    def since(self, seen: Snapshot) -> bool:
        """Return whether there is a pod's group, or a class's, that the look did not see.

        One that came in the same instant as another went is not noticed.
        """
        if not seen.qos_paths:
            files, mounted = KernelFiles(self._root), hierarchies(self._root)
            return _find_kubepods(files, mounted) is not None
        known = {group.path.rpartition("/")[2] for group in seen.groups}
        known.update(path.rpartition("/")[2] for path in seen.qos_paths.values())
        tops = dict.fromkeys(hierarchy.path for hierarchy in seen.hierarchies.values())
        self._directories.turn()
        return any(self._holds_other(f"{top}/{path}", known) for top in tops for path in seen.qos_paths.values())

    def _holds_other(self, directory: str, known: Set[str]) -> bool:
        try:
            names = self._directories.below(f"{self._prefix}/{directory}")
        except OSError:
            return False  # not in this hierarchy, or removed
        return any(_POD.fullmatch(name) or _QOS.fullmatch(name) for name in set(names).difference(known))


def _containers(
    files: Files, mounted: Mapping[Controller, Hierarchy], path: str, pod: Pod | None
) -> tuple[ContainerGroup, ...]:
    by_id = {c.container_id: c for c in pod.containers if c.container_id} if pod else {}
    found = []
    for name in _below(files, mounted, path):
        found.append(ContainerGroup(f"{path}/{name}", _named(name, by_id)))
    return tuple(found)


def _named(name: str, by_id: Mapping[str, Container]) -> Container | None:
    """Return the container whose id a directory carries: bare, or after the words that the runtime puts before it."""
    word = name.removesuffix(".scope")
    while word not in by_id and "-" in word:
        word = word.partition("-")[2]
    return by_id.get(word)
