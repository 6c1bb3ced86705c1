"""The files of a group of cgroup v1: one directory in each hierarchy."""

import os
import re
from collections.abc import Mapping

from cotenant.kernel.cgroup.counters import (
    NO_STALLS,
    Content,
    Direction,
    GroupCounters,
    Parsed,
    PressureFiles,
    Rows,
    Source,
    Stalls,
    Stillness,
    count,
    memory_counts,
    parse_flat,
    summed,
    whole,
)
from cotenant.kernel.cgroup.v2 import Disks
from cotenant.model.rate import Count
from cotenant.model.sample import MissingReason

_CPU_STAT = re.compile(rb"^(nr_periods|nr_throttled) (.*)$", re.MULTILINE)
_MEMORY_STAT = re.compile(
    rb"^total_(workingset_refault(?:_anon|_file)?|pgmajfault|(?:in)?active_anon|unevictable) (.*)$", re.MULTILINE
)
_DIRECTIONS: Mapping[bytes, Direction] = {b"Read": "read", b"Write": "write"}
_BLKIO = re.compile(rb"^(\d+:\d+) (\w+) (\S+) *$")
BLKIO_FILES = ("blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_service_bytes")
"""The recursive one counts groups below too, and is missing before 5.2."""


class V1Files:
    """One group's files. ``directories`` are by controller; ``v2`` is the group of the same path in a hybrid's v2 tree.

    Written bytes are those that the group's own tasks gave to the block layer: buffered writes are given later, by
    kernel threads of the root group, and have to be added from the tasks' own accounts
    (:mod:`cotenant.kernel.cgroup.writers`).
    """

    def __init__(self, directories: Mapping[str, str], v2: str | None, disks: Disks, *, live: bool) -> None:
        def source(controller: str, name: str) -> Source | None:
            directory = directories.get(controller)
            return None if directory is None else Source(f"{directory}/{name}")

        self._usage = Parsed(source("cpuacct", "cpuacct.usage"), _usec)
        self._cpu = Parsed(source("cpu", "cpu.stat"), _periods)
        self._current = Parsed(source("memory", "memory.usage_in_bytes"), whole)
        self._memory = Parsed(source("memory", "memory.stat"), _memory)
        self._recursive, self._own = (Parsed(source("blkio", name), _blkio) for name in BLKIO_FILES)
        self._populated = Parsed(None if v2 is None else Source(f"{v2}/cgroup.events", retry_reads=1), _populated)
        self._v2_pressure = None if v2 is None else PressureFiles(v2)
        cpuacct = directories.get("cpuacct")
        # Only with psi_v1=1; the kernel settles which files a group has when it makes it.
        has_own = cpuacct is not None and os.path.exists(f"{cpuacct}/cpu.pressure")
        self._v1_pressure = PressureFiles(str(cpuacct)) if has_own else None
        self._disks = disks
        self._stillness = Stillness(live=live)
        self._last = GroupCounters()

    def read(self) -> GroupCounters | None:
        """Return the counters now, or None when the group is gone from one of the hierarchies it was in."""
        usage, held = self._usage.read(), self._current.read()
        periods, throttled = self._cpu.read()
        if self._usage.gone or self._cpu.gone or self._current.gone:
            return None
        quiet = self._stillness.quiet(usage, held)
        if not quiet:
            self._memory.read()
            self._recursive.read()
            if self._recursive.unknown:
                self._own.read()
        blkio = self._own if self._recursive.unknown else self._recursive
        self._last = self._last.followed(
            cpu=(usage, periods, throttled),
            held=held,
            memory=self._memory.value,
            io=summed(blkio.value, self._disks()),
            stalls=self._stalls(),
            quiet=quiet,
        )
        return self._last

    def _stalls(self) -> Stalls:
        # A group of the v2 tree that holds no task has no stall to tell of: its tasks may be in v1 groups alone.
        stalls = NO_STALLS if self._v2_pressure is None or not self._populated.read() else self._v2_pressure.read()
        if isinstance(stalls[0], str) and self._v1_pressure is not None:
            stalls = self._v1_pressure.read()
        return stalls

    def close(self) -> None:
        for file in (self._usage, self._cpu, self._current, self._memory, self._recursive, self._own, self._populated):
            file.close()
        for pressure in (self._v2_pressure, self._v1_pressure):
            if pressure is not None:
                pressure.close()


def _usec(data: Content, path: str) -> Count:
    nsec = whole(data, path)
    return nsec if isinstance(nsec, str) else nsec // 1000


def _periods(data: Content, path: str) -> tuple[Count, Count]:
    if isinstance(data, str):
        return data, data
    values = parse_flat(_CPU_STAT, data, path)
    return values.get(b"nr_periods", "malformed"), values.get(b"nr_throttled", "malformed")


def _memory(data: Content, path: str) -> tuple[Count, Count, Count]:
    return memory_counts(_MEMORY_STAT, data, path)


def _populated(data: Content, path: str) -> bool:
    """Return whether a group of the v2 tree holds tasks, also where it cannot be told."""
    return isinstance(data, str) or b"populated 0" not in data


def _blkio(data: Content, path: str) -> Rows | MissingReason:
    """Return bytes read and written by disk. A group that did no I/O has only a total."""
    if isinstance(data, str):
        return data
    rows = []
    for line in data.splitlines():
        match = _BLKIO.match(line)
        if match is None:
            if line.startswith(b"Total ") or not line:
                continue
            return "malformed"
        device, kind, word = match.groups()
        if kind in _DIRECTIONS:
            rows.append((device, _DIRECTIONS[kind], count(word, path)))
    return tuple(rows)
