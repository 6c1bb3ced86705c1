"""What strategies see in one tick: pods and their cgroups, the files there, topology, usage, and what we wrote before.

All strategies of a tick see the same content of a file, because :class:`Files` keeps what it has read.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, Protocol

import msgspec

from cotenant.model.node import Node, Topology, Usage
from cotenant.model.pod import Container, KubeQos, Pod
from cotenant.model.priority import PriorityInterface

Controller = Literal["cpu", "cpuset", "cpuacct", "memory", "blkio", "net_cls"]
"""By the v1 names; ``blkio`` is ``io`` on v2."""
Place = Literal["directory quota", "group quotas", "CPU sets"]
"""Where offline work is held: by one quota of the directory that all share, by one of each group, or by CPU sets."""


class Files(Protocol):
    """Content of files by path relative to the root, as it was at the first look of this tick."""

    def read(self, path: str) -> str | None:
        """Return the content without the final newline, or None where the file is missing or cannot be read."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether the file or directory is there."""
        ...

    def directories(self, path: str) -> tuple[str, ...]:
        """Return the names of the directories below, sorted; none when the path is missing."""
        ...


class HeldFiles:
    """Files held in memory: content by path, None for one that exists and cannot be read."""

    def __init__(self, content: Mapping[str, str | None], directories: Iterable[str] = ()) -> None:
        self.content = dict(content)
        names = [*(path.rpartition("/")[0] for path in content), *directories]
        self._directories = {
            "/".join(parts[:n]) for parts in (name.split("/") for name in names) for n in range(len(parts) + 1)
        }

    def read(self, path: str) -> str | None:
        return self.content.get(path)

    def exists(self, path: str) -> bool:
        return path in self.content or path in self._directories

    def directories(self, path: str) -> tuple[str, ...]:
        prefix = f"{path}/"
        found = (d[len(prefix) :] for d in self._directories if d.startswith(prefix))
        return tuple(sorted(name for name in found if name and "/" not in name))


class Hierarchy(msgspec.Struct, frozen=True):
    """Where a controller is mounted (relative to the root, no leading slash), and its cgroup version."""

    path: str
    version: Literal[1, 2]


class ContainerGroup(msgspec.Struct, frozen=True):
    """One cgroup below a pod's: a container of the list, or (None) the sandbox or one that is not listed any more."""

    path: str
    container: Container | None = None


class PodGroup(msgspec.Struct, frozen=True):
    """One pod's cgroup, below every hierarchy's mount. ``pod`` None: the directory is there, the pod is not listed."""

    path: str
    qos: KubeQos
    """By the directory that it is in."""
    pod: Pod | None = None
    containers: tuple[ContainerGroup, ...] = ()


class Task(msgspec.Struct, frozen=True):
    """One thread and its scheduling policy (``other``, ``idle``, ``batch``, ``fifo``, ``rr``, ``deadline``, ``bt``)."""

    id: int
    policy: str


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One node at one moment."""

    files: Files
    hierarchies: Mapping[Controller, Hierarchy]
    groups: tuple[PodGroup, ...]
    """Pods with a cgroup, and cgroups without a listed pod; by path."""
    qos_paths: Mapping[KubeQos, str] = {}
    """The kubelet's QoS directories (``Guaranteed`` is kubepods itself); only those that exist."""
    pods: tuple[Pod, ...] = ()
    topology: Topology
    node: Node
    priority: PriorityInterface
    usage: Usage | None = None
    """None: nobody measures."""
    journal: Mapping[str, str | None] = {}
    """What we wrote before and have not put back: path to the value that was there."""
    evicting: frozenset[str] = frozenset()
    """Pods (``namespace/name``) that were asked to go and are still there: what they hold is on its way back."""
    spared: frozenset[str] = frozenset()
    """Pods that somebody (a disruption budget) does not let go now."""
    left_to_others: frozenset[Place] = frozenset()
    """Where somebody else keeps writing: suppression writes nothing there."""
    burst_spent: frozenset[str] = frozenset()
    """Containers' groups whose time above their CPU limit is used up for now."""
    burst_rebased: frozenset[str] = frozenset()
    """Containers' groups whose CPU limit, or what it is worth here, is another than their quota was set by."""
    page_bytes: int = 4096
    proc: str = "proc"
    sys: str = "sys"
    resctrl: str | None = None
    """Where resctrl is mounted, relative to the root; None where it is not."""

    @property
    def cpu_count(self) -> int:
        """How many CPUs the node has: those that are listed, by its capacity where none is; 0 where neither says."""
        return len(self.topology.cpus) or (self.node.capacity_millicores or 0) // 1000

    def path(self, controller: Controller, group: str, file: str) -> str | None:
        """Return the path of a group's file under a controller, or None where that controller is not mounted."""
        hierarchy = self.hierarchies.get(controller)
        if hierarchy is None:
            return None
        if hierarchy.path and group and file:  # asked some thousand times a round
            return f"{hierarchy.path}/{group}/{file}"
        return "/".join(part for part in (hierarchy.path, group, file) if part)

    def sysctl(self, name: str) -> str:
        """Return the path of a sysctl that is spelled as a path (``vm/min_free_kbytes``)."""
        return f"{self.proc}/sys/{name}"

    def version(self, controller: Controller) -> int | None:
        """Return the cgroup version of a controller, or None where it is not mounted."""
        hierarchy = self.hierarchies.get(controller)
        return hierarchy.version if hierarchy else None
