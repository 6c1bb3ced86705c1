"""Which control groups of a machine matter, found without walking everything every second."""

import contextlib
import os
import re
from collections.abc import Callable, Sequence

from cotenant.kernel.directories import Directories

MAX_GROUPS = 2000
"""No more groups than this are sampled, those nearest to the root first; a node has 250 pods at most."""
MAX_INNER = 10_000
"""Groups inside of containers that are told apart at most, when one of them is seen at work."""
MAX_DEPTH = 10
MAX_PLAIN_DEPTH = 3
"""How deep groups are sampled that somebody made by hand or by a tool that we do not know."""
RESCAN_SECONDS = 30.0
"""How long a group may stay unnoticed that came in the same instant as another one went."""

_OURS = re.compile(r"cotenant-(?:lse|lsr|ls|system|be)")
_UNIT = re.compile(r".*\.(?:slice|service|scope)")
_LEAF_UNIT = re.compile(r"(?!user@).*\.(?:service|scope)")
_POD = re.compile(r"(?:.*-)?pod[0-9a-f][0-9a-f_-]{7,}(?:\.slice)?")
_CONTAINER = re.compile(r"(?:[a-z-]+-)?[0-9a-f]{64}(?:\.scope)?")


def matters(path: str) -> bool:
    """Return whether a group is sampled though nobody asked for it.

    Those are systemd's slices, services and scopes, everything of Kubernetes down to containers, containers of other
    engines, ours below ``cotenant-QOS``, and what lies at the top or, where no manager of these kinds made it, down to
    :data:`MAX_PLAIN_DEPTH`: the group that did it is to be named, not the one around it.
    """
    names = path.split("/")
    if _OURS.fullmatch(names[0]):
        return len(names) == 2
    if len(names) == 1 or _UNIT.fullmatch(names[-1]) or _CONTAINER.fullmatch(names[-1]):
        return True
    if any("kubepods" in name for name in names):
        return True
    return len(names) <= MAX_PLAIN_DEPTH and not any(_UNIT.fullmatch(name) for name in names)


def is_end(path: str) -> bool:
    """Return whether groups below this one are its own affair: a container's, a service's, or one of ours."""
    names = path.split("/")
    if _OURS.fullmatch(names[0]):
        return len(names) >= 2
    if len(names) > 1 and _POD.fullmatch(names[-2]):
        return True
    return bool(_CONTAINER.fullmatch(names[-1]) or _LEAF_UNIT.fullmatch(names[-1]))


class Tree:
    """The groups below some mounts of the same tree; one ``stat`` for each that is not an end finds what is new.

    ``live`` False (plain files) lists all directories each time.
    """

    def __init__(self, tops: Sequence[str], *, live: bool, wanted: Callable[[str], bool], deep: Sequence[str]) -> None:
        """Look below the directories ``tops`` for what matters or is ``wanted``.

        ``deep`` are beginnings of paths below which ends are looked into as well.
        """
        self._tops = tuple(tops)
        self._directories = [Directories(live=live) for _ in tops]
        self._looked = 0
        self._wanted = wanted
        self._deep = tuple(deep)
        self._found: list[str] = []
        self._scanned_s: float | None = None
        self.left_out = 0
        """Groups beyond :data:`MAX_GROUPS` at the last look."""

    def forget(self) -> None:
        """List all directories at the next look: a group was removed, or what is wanted has changed."""
        self._scanned_s = None

    def groups(self, now_s: float) -> list[str]:
        """Return the paths of the groups that matter, parents first, without a leading slash."""
        if self._scanned_s is None or now_s - self._scanned_s > RESCAN_SECONDS or now_s < self._scanned_s:
            for directories in self._directories:
                directories.forget()
            self._scanned_s = now_s
        elif self._is_unchanged():
            return self._found
        else:
            for directories in self._directories:
                directories.turn()
        found = self._walk()
        self.left_out = max(len(found) - MAX_GROUPS, 0)
        self._found = found[:MAX_GROUPS]
        return self._found

    def _is_unchanged(self) -> bool:
        """Return whether the first hierarchy is as it was, and one of the others, each of which has its turn.

        Who makes a group makes it in all of them, but for the odd one.
        """
        if not self._directories:
            return True
        first, *others = self._directories
        self._looked += 1
        return first.is_unchanged() and (not others or others[self._looked % len(others)].is_unchanged())

    def _walk(self) -> list[str]:
        found: dict[str, None] = {}
        level = [""]
        for _ in range(MAX_DEPTH):
            below: dict[str, None] = {}
            for parent in level:
                for top, directories in zip(self._tops, self._directories, strict=True):
                    below.update(dict.fromkeys(_children(directories, top, parent)))
            found.update((path, None) for path in below if matters(path) or self._wanted(path))
            level = [path for path in below if not is_end(path) or self._is_deep(path)]
            if not level:
                break
        return list(found)

    def _is_deep(self, path: str) -> bool:
        return any(prefix.startswith(f"{path}/") or path.startswith(prefix) for prefix in self._deep)


def _children(directories: Directories, top: str, parent: str) -> list[str]:
    try:
        names = directories.below(f"{top}/{parent}" if parent else top)
    except OSError:
        return []  # not in this hierarchy, or removed while we looked
    return [f"{parent}/{name}" for name in names] if parent else list(names)


def inodes(top: str) -> dict[int, str]:
    """Return the path of every group by its inode, :data:`MAX_INNER` at most, nearest first.

    The directory's own is "": what is in no group is there, kernel threads for one.
    """
    found: dict[int, str] = {}
    with contextlib.suppress(OSError):
        found[os.stat(top).st_ino] = ""
    level = [""]
    while level and len(found) < MAX_INNER:
        below = []
        for parent in level:
            try:
                with os.scandir(f"{top}/{parent}") as entries:
                    groups = [(entry.inode(), entry.name) for entry in entries if entry.is_dir(follow_symlinks=False)]
            except OSError:
                continue  # removed while we looked
            for inode, name in groups:
                found[inode] = f"{parent}/{name}" if parent else name
                below.append(found[inode])
        level = below
    return found
