"""The cgroup mounts of a machine as one place: where its groups are looked for, and how one is opened."""

import os
import pathlib
from collections.abc import Sequence
from typing import Protocol

from cotenant.kernel import paths
from cotenant.kernel.cgroup.counters import GroupFiles
from cotenant.kernel.cgroup.v1 import V1Files
from cotenant.kernel.cgroup.v2 import Disks, V2Files


class Hierarchy(Protocol):
    """The groups of a machine, whichever version."""

    @property
    def tops(self) -> Sequence[str]:
        """Directories below which groups are looked for."""
        ...

    def open(self, path: str) -> GroupFiles:
        """Return a group's files."""
        ...

    def procs(self, path: str) -> str | None:
        """Return the file that lists a group's processes where their own accounts tell what it writes, else None."""
        ...

    @property
    def cpu_top(self) -> str | None:
        """The hierarchy that has cpu: a tracer knows groups by their inodes there."""
        ...

    @property
    def block_top(self) -> str | None:
        """The hierarchy that has io or blkio."""
        ...


class V2Hierarchy:
    """One tree with all controllers."""

    def __init__(self, top: pathlib.Path, disks: Disks, *, live: bool) -> None:
        self._top = os.fspath(top)
        self.tops = (self._top,)
        self._disks = disks
        self._live = live

    def open(self, path: str) -> GroupFiles:
        return V2Files(f"{self._top}/{path}", self._disks, live=self._live)

    def procs(self, path: str) -> str | None:
        return None

    @property
    def cpu_top(self) -> str | None:
        return self._top

    @property
    def block_top(self) -> str | None:
        return self._top


class V1Hierarchy:
    """A tree for each controller, and perhaps a v2 tree that has only pressure."""

    def __init__(self, tops: dict[str, pathlib.Path], v2: pathlib.Path | None, disks: Disks, *, live: bool) -> None:
        """Take the mounts by controller."""
        self._tops = {controller: os.fspath(top) for controller, top in tops.items()}
        self._v2 = None if v2 is None else os.fspath(v2)
        found = [self._tops.get(name) for name in ("cpu", "cpuacct", "memory", "blkio")]
        self.tops = tuple(dict.fromkeys(top for top in (*found, self._v2) if top is not None))
        self._disks = disks
        self._live = live

    def open(self, path: str) -> GroupFiles:
        directories = {controller: f"{top}/{path}" for controller, top in self._tops.items()}
        v2 = None if self._v2 is None else f"{self._v2}/{path}"
        return V1Files(directories, v2, self._disks, live=self._live)

    def procs(self, path: str) -> str | None:
        for controller in ("blkio", "cpuacct", "memory"):
            if controller in self._tops and os.path.exists(f"{self._tops[controller]}/{path}/cgroup.procs"):
                return f"{self._tops[controller]}/{path}/cgroup.procs"
        return None

    @property
    def cpu_top(self) -> str | None:
        return self._tops.get("cpu")

    @property
    def block_top(self) -> str | None:
        return self._tops.get("blkio")


def open_hierarchy(root: paths.Root, disks: Disks) -> Hierarchy | None:
    """Return the machine's groups, or None where no cgroup file system is mounted."""
    mounts = root.cgroup_mounts()
    v1 = {controller: mount.path for mount in mounts if mount.version == 1 for controller in mount.controllers}
    v2 = next((mount.path for mount in mounts if mount.version == 2), None)
    if {"cpu", "cpuacct", "memory", "blkio"}.intersection(v1):
        return V1Hierarchy(v1, v2, disks, live=root.is_machine)
    return None if v2 is None else V2Hierarchy(v2, disks, live=root.is_machine)
