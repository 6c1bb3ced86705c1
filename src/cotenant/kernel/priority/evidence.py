"""What probing looks at: files of the cpu and memory hierarchies, sysctls, the boot command line, SMT."""

import collections
import os
import pathlib
from collections.abc import Iterator

from cotenant.kernel import paths
from cotenant.model.priority import CgroupVersion

SEARCHED_DIRECTORIES_MAX = 512
"""How many groups are looked into for a file that the root does not show. Kubelet's come first."""


class Evidence:
    """Read-only view of one root for one round of probing; the groups are listed once. Make another to look again."""

    def __init__(self, root: paths.Root) -> None:
        self.root = root
        self._found: dict[pathlib.Path, list[str]] = {}

    def version(self, controller: str) -> CgroupVersion | None:
        """Return the version of the hierarchy that has the controller, or None where none is mounted."""
        mount = self.root.hierarchy(controller)
        return None if mount is None else mount.version

    def find(self, controller: str, file: str) -> pathlib.Path | None:
        """Return a directory of the controller's hierarchy that shows the file, the root first; None if none does.

        On v2, and for some files on v1, only children have it.
        """
        mount = self.root.hierarchy(controller)
        return None if mount is None else self.find_below(mount.path, file)

    def find_below(self, top: pathlib.Path, file: str) -> pathlib.Path | None:
        """Return the first directory, ``top`` itself or below it, that shows the file; None if none does."""
        # Text, not pathlib: some files are asked for in hundreds of groups.
        return next((pathlib.Path(group) for group in self._groups(top) if os.path.exists(f"{group}/{file}")), None)

    def has_groups(self, controller: str) -> bool:
        """Return whether the controller's hierarchy has any group besides its root."""
        mount = self.root.hierarchy(controller)
        return mount is not None and len(self._groups(mount.path)) > 1

    def _groups(self, top: pathlib.Path) -> list[str]:
        if top not in self._found:
            self._found[top] = list(_breadth_first(os.fspath(top)))
        return self._found[top]

    def sysctl(self, name: str) -> str | None:
        """Return the value of ``kernel.<name>`` spelled as a path below ``proc/sys``, or None if it cannot be read."""
        return _text(self.root.proc / "sys" / name)

    def sysctl_exists(self, name: str) -> bool:
        return (self.root.proc / "sys" / name).exists()

    def boot_words(self) -> frozenset[str]:
        """Return the words of the kernel's command line; none if it cannot be read."""
        return self.words(self.root.proc / "cmdline")

    def words(self, path: pathlib.Path) -> frozenset[str]:
        """Return the words of a file; none if it cannot be read."""
        return frozenset((_text(path) or "").split())

    def text(self, path: pathlib.Path) -> str | None:
        """Return a file's text without blanks around it, or None if it cannot be read."""
        return _text(path)

    def controller_state(self, controller: str) -> str | None:
        """Return ``on`` or ``off`` as the kernel lists a controller (``proc/cgroups``), or None if it does not."""
        for line in (_text(self.root.proc / "cgroups") or "").splitlines():
            fields = line.split()
            if len(fields) == 4 and fields[0] == controller:
                return "on" if fields[3] == "1" else "off"
        return None

    def smt_active(self) -> bool | None:
        """Return whether sibling threads are in use, or None where the kernel does not say."""
        text = _text(self.root.sys / "devices/system/cpu/smt/active")
        return {"1": True, "0": False}.get(text or "")

    def trace_event(self, group: str, event: str) -> bool | None:
        """Return whether the kernel has a trace event, or None where tracefs cannot be seen."""
        for events in (self.root.sys / "kernel/tracing/events", self.root.sys / "kernel/debug/tracing/events"):
            if (events / group).is_dir():
                return (events / group / event).is_dir()
        return None


def _text(path: pathlib.Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def _breadth_first(top: str) -> Iterator[str]:
    queue = collections.deque([top])
    for _ in range(SEARCHED_DIRECTORIES_MAX):
        if not queue:
            return
        directory = queue.popleft()
        yield directory
        try:
            with os.scandir(directory) as entries:
                names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            continue  # gone, or not ours to look into
        for name in sorted(names, key=lambda name: (not name.startswith("kubepods"), name)):
            queue.append(f"{directory}/{name}")
