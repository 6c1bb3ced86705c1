"""The files of a group of cgroup v1: one directory in each hierarchy."""

import re
from collections.abc import Mapping, Set

from cotenant.kernel import errors
from cotenant.kernel.cgroup.counters import GroupCounters, PressureFiles, Source, parse_flat, take_memory, whole
from cotenant.kernel.cgroup.v2 import Disks
from cotenant.kernel.file import number
from cotenant.model.rate import Count
from cotenant.model.sample import MissingReason

_CPU_STAT = re.compile(rb"^(nr_periods|nr_throttled) (.*)$", re.MULTILINE)
_MEMORY_STAT = re.compile(
    rb"^total_(workingset_refault(?:_anon|_file)?|pgmajfault|(?:in)?active_anon|unevictable) (.*)$", re.MULTILINE
)
_BLKIO = re.compile(rb"^(\d+:\d+) (\w+) (\S+) *$")
BLKIO_FILES = ("blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_service_bytes")
"""The recursive one counts groups below too, and is missing before 5.2."""


class V1Files:
    """One group's files. ``directories`` are by controller; ``v2`` is the group of the same path in a hybrid's v2 tree.

    Written bytes are those that the group's own tasks gave to the block layer: buffered writes are given later, by
    kernel threads of the root group, and have to be added from the tasks' own accounts
    (:mod:`cotenant.kernel.cgroup.writers`).
    """

    def __init__(self, directories: Mapping[str, str], v2: str | None, disks: Disks) -> None:
        def source(controller: str, name: str) -> Source | None:
            directory = directories.get(controller)
            return None if directory is None else Source(f"{directory}/{name}")

        self._usage = source("cpuacct", "cpuacct.usage")
        self._cpu = source("cpu", "cpu.stat")
        self._current = source("memory", "memory.usage_in_bytes")
        self._memory = source("memory", "memory.stat")
        self._blkio = [source("blkio", name) for name in BLKIO_FILES]
        self._events = None if v2 is None else Source(f"{v2}/cgroup.events", retry_reads=1)
        self._v2_pressure = None if v2 is None else PressureFiles(v2)
        cpuacct = directories.get("cpuacct")
        self._v1_pressure = None if cpuacct is None else PressureFiles(cpuacct)  # only with psi_v1=1
        self._disks = disks

    def read(self) -> GroupCounters | None:
        """Return the counters now, or None when the group is gone from one of the hierarchies it was in."""
        counters = GroupCounters()
        usage, cpu = _read(self._usage), _read(self._cpu)
        current, memory = _read(self._current), _read(self._memory)
        if "gone" in (usage, cpu, current):
            return None
        nsec = whole(usage, "cpuacct.usage")
        counters.usage_usec = nsec if isinstance(nsec, str) else nsec // 1000
        _take_cpu(cpu, counters)
        counters.memory_bytes = whole(current, "memory.usage_in_bytes")
        take_memory(_MEMORY_STAT, memory, "memory.stat", counters)
        blkio = _read(self._blkio[0])
        if isinstance(blkio, str):
            blkio = _read(self._blkio[1])
        counters.read_bytes, counters.write_bytes = _blkio_bytes(blkio, self._disks())
        # A group of the v2 tree that holds no task has no stall to tell of: its tasks may be in v1 groups alone.
        events = _read(self._events)
        empty = not isinstance(events, str) and b"populated 0" in events
        for pressure in (None if empty else self._v2_pressure, self._v1_pressure):
            if pressure is not None and isinstance(counters.cpu_some_usec, str):
                pressure.read_into(counters)
        return counters

    def close(self) -> None:
        files = (self._usage, self._cpu, self._current, self._memory, *self._blkio, self._events)
        for source in (*files, self._v2_pressure, self._v1_pressure):
            if source is not None:
                source.close()


def _read(source: Source | None) -> bytes | MissingReason:
    return "unsupported" if source is None else source.read()


def _take_cpu(data: bytes | MissingReason, counters: GroupCounters) -> None:
    if isinstance(data, str):
        counters.nr_periods = counters.nr_throttled = data
        return
    values = parse_flat(_CPU_STAT, data, "cpu.stat")
    counters.nr_periods = values.get(b"nr_periods", "malformed")
    counters.nr_throttled = values.get(b"nr_throttled", "malformed")


def _blkio_bytes(data: bytes | MissingReason, disks: Set[bytes]) -> tuple[Count, Count]:
    """Return bytes read and written on the disks that count. A group that did no I/O has only a total."""
    if isinstance(data, str):
        return data, data
    totals = {b"Read": 0, b"Write": 0}
    for line in data.splitlines():
        match = _BLKIO.match(line)
        if match is None:
            if line.startswith(b"Total ") or not line:
                continue
            return "malformed", "malformed"
        device, kind, word = match.groups()
        if kind not in totals or (disks and device not in disks):
            continue
        try:
            totals[kind] += number(word, "blkio")
        except errors.MalformedFile as error:
            return error.reason, error.reason
    return totals[b"Read"], totals[b"Write"]
