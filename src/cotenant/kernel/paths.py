"""Where the kernel's files are: the one module that spells ``/proc`` and ``/sys``.

``--root DIR`` stands ``DIR/proc`` and ``DIR/sys`` in for the machine's; mount points are then taken below DIR.
"""

import dataclasses
import os
import pathlib
import re
from collections.abc import Sequence
from typing import Literal

from cotenant.kernel import errors
from cotenant.kernel.file import File

CgroupVersion = Literal["v1", "v2", "hybrid"]

V1_CONTROLLERS = frozenset(
    {"cpu", "cpuacct", "cpuset", "memory", "blkio", "devices", "freezer", "net_cls", "net_prio", "pids"}
    | {"perf_event", "hugetlb", "rdma", "misc"}
)
_V2_FILES = ("cgroup.procs", "cpu.stat", "memory.current")
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclasses.dataclass(frozen=True, slots=True)
class CgroupMount:
    """One mounted hierarchy.

    ``root`` is the group that is mounted: ``/``, or a deeper one in a container without its own cgroup namespace.
    """

    path: pathlib.Path
    version: Literal[1, 2]
    controllers: frozenset[str]
    root: str = "/"
    name: str | None = None
    """The name of a v1 hierarchy without controllers (``systemd``)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Mount:
    """One line of ``/proc/self/mountinfo``."""

    root: str
    point: str
    fstype: str
    source: str
    super_options: tuple[str, ...]


def parse_mountinfo(text: str) -> list[Mount]:
    """Return the mounts in order, without those that a later mount on the same point hides, and without odd lines."""
    mounts: dict[str, Mount] = {}
    for line in text.splitlines():
        before, separator, after = line.partition(" - ")
        fields, rest = before.split(" "), after.split(" ")
        if not separator or len(fields) < 6 or len(rest) < 3:
            continue
        root, point = _unescape(fields[3]), _unescape(fields[4])
        mounts.pop(point, None)
        mounts[point] = Mount(root, point, rest[0], _unescape(rest[1]), tuple(rest[2].split(",")))
    return list(mounts.values())


def _unescape(word: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), word)


class Root:
    """One machine's files: its own (``/``), or a directory that holds ``proc``, ``sys`` and ``run``."""

    __slots__ = ("directory", "proc", "run_dir", "sys")

    def __init__(self, directory: str | os.PathLike[str] = "/") -> None:
        self.directory = pathlib.Path(os.path.abspath(directory))
        self.proc = self.directory / "proc"
        self.sys = self.directory / "sys"
        self.run_dir = self.directory / "run" / "cotenant"

    @property
    def is_machine(self) -> bool:
        """True for the running kernel's own files: only then do BPF, perf and clocks belong to the same machine."""
        return self.directory == pathlib.Path("/")

    def relative(self, path: str | os.PathLike[str]) -> str:
        """Return a path below the root without the root and without a leading slash."""
        return os.path.relpath(path, self.directory)

    def mounts(self) -> list[Mount]:
        """Return the mounts of ``proc/self/mountinfo``; empty where it cannot be read."""
        return parse_mountinfo(_text(self.proc / "self" / "mountinfo"))

    def mount_point(self, mount: Mount) -> pathlib.Path:
        """Return where a mount is found below this root.

        A container that bind-mounts the host's ``/`` at the root sees the root's own path in mountinfo already.
        """
        own = self.directory / mount.point.lstrip("/")
        seen = pathlib.Path(mount.point)
        if not self.is_machine and seen.is_relative_to(self.directory) and not own.is_dir():
            return seen
        return own

    def resctrl(self) -> pathlib.Path | None:
        """Return where resctrl is mounted, or None."""
        for mount in self.mounts():
            if mount.fstype == "resctrl":
                return self.mount_point(mount)
        default = self.sys / "fs" / "resctrl"
        return default if not self.is_machine and (default / "info").is_dir() else None

    def cgroup_mounts(self) -> tuple[CgroupMount, ...]:
        """Return the mounted hierarchies, v1 before v2; each controller once, the mount nearest to its root first."""
        found = [m for m in map(self._cgroup_mount, self.mounts()) if m is not None]
        found = found or self._unlisted_cgroup_mounts()
        found.sort(key=lambda m: (m.version, m.root != "/", len(m.path.parts)))
        taken: set[object] = set()
        kept = []
        for mount in found:
            identity: object = mount.name or mount.controllers if mount.version == 1 else "v2"
            if identity not in taken:
                taken.add(identity)
                kept.append(mount)
        return tuple(kept)

    def _cgroup_mount(self, mount: Mount) -> CgroupMount | None:
        path = self.mount_point(mount)
        if mount.fstype == "cgroup2":
            return CgroupMount(path, 2, _v2_controllers(path), mount.root)
        if mount.fstype != "cgroup":
            return None
        names = [o.removeprefix("name=") for o in mount.super_options if o.startswith("name=")]
        controllers = V1_CONTROLLERS.intersection(mount.super_options)
        return CgroupMount(path, 1, controllers, mount.root, names[0] if names else None)

    def _unlisted_cgroup_mounts(self) -> list[CgroupMount]:
        """Return what the usual places hold, for a tree without mountinfo."""
        top = self.sys / "fs" / "cgroup"
        if (top / "cgroup.controllers").exists() or (top / "cgroup.procs").exists():
            return [CgroupMount(top, 2, _v2_controllers(top))]
        found = []
        unified = top / "unified"
        if unified.is_dir():
            found.append(CgroupMount(unified, 2, _v2_controllers(unified)))
        try:
            names = sorted(os.listdir(top))
        except OSError:
            names = []
        for name in names:
            controllers = frozenset(name.split(","))
            # `cpu -> cpu,cpuacct` are links to one mount.
            if controllers <= V1_CONTROLLERS and not (top / name).is_symlink():
                found.append(CgroupMount(top / name, 1, controllers))
        if not found and any((top / name / file).exists() for name in names for file in _V2_FILES):
            return [CgroupMount(top, 2, frozenset())]
        return found

    def cgroup_version(self) -> CgroupVersion | None:
        """Return which hierarchies carry controllers or tasks, or None where no hierarchy is mounted."""
        mounts = self.cgroup_mounts()
        v1 = any(mount.version == 1 and mount.controllers for mount in mounts)
        v2 = any(mount.version == 2 for mount in mounts)
        if v1:
            return "hybrid" if v2 else "v1"
        return "v2" if v2 else None

    def hierarchy(self, controller: str) -> CgroupMount | None:
        """Return where a controller's files are: the v1 hierarchy that has it, else v2 unless v2 says it lacks it."""
        return hierarchy_among(self.cgroup_mounts(), controller)


def hierarchy_among(mounts: Sequence[CgroupMount], controller: str) -> CgroupMount | None:
    """Return where a controller's files are, by mounts that were read before: see :meth:`Root.hierarchy`."""
    for mount in mounts:
        if mount.version == 1 and controller in mount.controllers:
            return mount
    for mount in mounts:
        listed = (mount.path / "cgroup.controllers").exists()
        if mount.version == 2 and (controller in mount.controllers or not listed):
            return mount
    return None


def _v2_controllers(path: pathlib.Path) -> frozenset[str]:
    return frozenset(_text(path / "cgroup.controllers").split())


def _text(path: pathlib.Path) -> str:
    """Return a file's text, empty where it cannot be read."""
    file = File(path)
    try:
        return file.read().decode(errors="surrogateescape")
    except errors.KernelError:
        return ""
    finally:
        file.close()
