"""Who writes on cgroup v1: the tasks' own accounts, ``/proc/PID/io``.

On v1 the kernel threads that write dirty pages back belong to the root group, so a group's block counters hold only
what its tasks wrote directly. A task's own account counts a page when it is dirtied, for whichever group it is in.
"""

import os
import re

from cotenant.kernel import errors, paths
from cotenant.kernel.file import read_once
from cotenant.model.rate import Count
from cotenant.model.sample import MissingReason

MAX_TASKS = 1024
"""No more processes than this are looked at in a period; groups past it have unknown writes."""

_WRITTEN = re.compile(rb"^write_bytes: (\d{1,20})\n(?:cancelled_write_bytes: (\d{1,20})\n?)?", re.MULTILINE)


class Writers:
    """Bytes that each group's processes wrote within a period.

    A process that came within the period counts from its start when it is new, and one that ended is lost: the sum
    is at least what it says, never more.
    """

    def __init__(self, root: paths.Root) -> None:
        self._proc = os.fspath(root.proc)
        self._before: dict[int, int] = {}
        self._after: dict[int, int] = {}
        self._looked_at = 0

    def step(self) -> None:
        """Begin a period."""
        self._before, self._after = self._after, {}
        self._looked_at = 0

    def tasks(self, procs: str) -> list[bytes] | MissingReason:
        """Return the processes that a ``cgroup.procs`` lists."""
        try:
            # On v1 an open cgroup.procs shows the same list for as long as it is read once a second (the kernel drops
            # it a second after the last read): who came since would never be seen.
            return read_once(procs).split()
        except errors.FileError as error:
            return "gone" if error.gone else error.reason

    def rest(self, pids: list[bytes]) -> None:
        """Take in processes of which none ran in this period: they have written what they had."""
        for word in pids:
            written = self._before.get(int(word))
            if written is not None:
                self._after.setdefault(int(word), written)

    def written(self, pids: list[bytes] | MissingReason) -> Count:
        """Return how many bytes some processes wrote since the last period."""
        if isinstance(pids, str):
            return pids
        total = 0
        for word in pids:
            if not word.isdigit() or len(word) > 10:
                return "malformed"
            if word == b"0":
                return "permission"  # a process outside our own PID namespace
            if self._looked_at >= MAX_TASKS:
                return "unsupported"
            self._looked_at += 1
            grown = self._grown(int(word))
            if isinstance(grown, str):
                return grown
            total += grown
        return total

    def _grown(self, pid: int) -> Count:
        # Opened each time: processes come and go, and a kept descriptor would pin each of them.
        try:
            data = read_once(f"{self._proc}/{pid}/io")
        except errors.FileError as error:
            return 0 if error.gone else error.reason
        match = _WRITTEN.search(data)
        if match is None:
            return "malformed"
        written = max(int(match[1]) - int(match[2] or 0), 0)
        self._after[pid] = written
        before = self._before.get(pid)
        # Not seen before: its start is unknown, so nothing of it counts yet. Fewer than before: the number was reused.
        return 0 if before is None else max(written - before, 0)
