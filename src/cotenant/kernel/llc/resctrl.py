"""Cache occupancy and memory bandwidth from resctrl's monitoring files (Intel RDT, AMD QoS, Arm MPAM)."""

import os

from cotenant.kernel import errors, paths
from cotenant.kernel.file import File, number
from cotenant.kernel.reading import Findings
from cotenant.model.rate import Count, Counters
from cotenant.model.sample import MissingReason

FIELDS = {"occupancy_bytes": "llc_occupancy", "memory_bandwidth_bytes_per_sec": "mbm_total_bytes"}
RESCAN_READS = 30
_NOT_GROUPS = frozenset({"info", "mon_data", "mon_groups"})


def parse(data: bytes, path: str) -> Count:
    """Return a monitoring counter in bytes; ``not_running`` while the hardware has none to give.

    The kernel writes ``Unavailable`` before the first count of a fresh monitoring id, ``Unassigned`` where counters
    are handed out by hand, and ``Error`` for a bad one.
    """
    word = data.strip()
    if word in (b"Unavailable", b"Unassigned"):
        return "not_running"
    if word == b"Error":
        return "io_error"
    try:
        return number(word, path)
    except errors.MalformedFile as error:
        return error.reason


class Resctrl:
    """The whole machine: the default group and each control group, over all cache domains."""

    def __init__(self, root: paths.Root) -> None:
        self._root = root
        self._files: dict[str, list[tuple[str, File]]] = {}
        self._reads = 0
        self._counters = Counters()

    def read_into(self, found: Findings, seconds: float | MissingReason) -> None:
        """Put both fields, or why they are unknown: ``no_resctrl`` where it is not mounted."""
        self._counters.step(seconds)
        if self._reads % RESCAN_READS == 0:
            self._open()
        self._reads += 1
        for field, name in FIELDS.items():
            files = self._files.get(name, [])
            if not files:
                found.put(field, "no_resctrl" if not self._files else "unsupported")
            elif field == "occupancy_bytes":
                found.put(field, self._sum([_read(file) for _, file in files]))
            else:
                found.put(field, self._bandwidth(files, seconds))

    def _bandwidth(self, files: list[tuple[str, File]], seconds: float | MissingReason) -> float | MissingReason:
        # Domain by domain: a group that was made or removed then neither spikes nor resets the sum.
        grown = [self._counters.count(key, _read(file)) for key, file in files]
        total = self._sum([count for count in grown if count not in ("first_sample", "gone")] or grown[:1])
        if isinstance(total, str):
            return total
        return seconds if isinstance(seconds, str) else total / seconds

    @staticmethod
    def _sum(counts: list[Count]) -> Count:
        total = 0
        for count in counts:
            if isinstance(count, str):
                return count
            total += count
        return total

    def _open(self) -> None:
        known = {file.path: file for files in self._files.values() for _, file in files}
        self._files = {}
        top = self._root.resctrl()
        for group in [] if top is None else _groups(os.fspath(top)):
            for domain in _listed(f"{group}/mon_data"):
                for name in FIELDS.values() if domain.startswith("mon_L3_") else ():
                    path = f"{group}/mon_data/{domain}/{name}"
                    if os.path.exists(path):
                        self._files.setdefault(name, []).append(
                            (path, known.pop(path) if path in known else File(path))
                        )
        for file in known.values():
            file.close()

    def close(self) -> None:
        for files in self._files.values():
            for _, file in files:
                file.close()


def _groups(top: str) -> list[str]:
    """Return the default group and the control groups; monitoring groups are in their control group's sums."""
    below = [f"{top}/{name}" for name in _listed(top) if name not in _NOT_GROUPS]
    return [top, *(group for group in below if os.path.isdir(f"{group}/mon_data"))]


def _listed(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _read(file: File) -> Count:
    try:
        return parse(file.read(), file.path)
    except errors.FileError as error:
        return error.reason
