"""The files of a group of cgroup v2."""

import re
from collections.abc import Callable, Set

from cotenant.kernel import errors
from cotenant.kernel.cgroup.counters import GroupCounters, PressureFiles, Source, parse_flat, take_memory, whole
from cotenant.kernel.file import number
from cotenant.model.rate import Count
from cotenant.model.sample import MissingReason

_CPU_STAT = re.compile(rb"^(usage_usec|nr_periods|nr_throttled) (.*)$", re.MULTILINE)
_MEMORY_STAT = re.compile(
    rb"^(workingset_refault(?:_anon|_file)?|pgmajfault|(?:in)?active_anon|unevictable) (.*)$", re.MULTILINE
)
_IO_LINE = re.compile(rb"^(\d+:\d+)((?: [\w.-]+=\S*)*) *$")
_IO_BYTES = re.compile(rb" (rbytes|wbytes)=(\S*)")

Disks = Callable[[], Set[bytes]]
"""``MAJOR:MINOR`` of the disks whose bytes count; empty: all. What dm and md pass down is counted again below."""


class V2Files:
    """One group's files. A removed group answers ENODEV from the descriptors that are still open."""

    def __init__(self, directory: str, disks: Disks) -> None:
        self._cpu = Source(f"{directory}/cpu.stat")
        self._current = Source(f"{directory}/memory.current")
        self._memory = Source(f"{directory}/memory.stat")
        self._io = Source(f"{directory}/io.stat")
        self._pressure = PressureFiles(directory)
        self._disks = disks

    def read(self) -> GroupCounters | None:
        """Return the counters now, or None when the group is gone."""
        counters = GroupCounters()
        cpu = self._cpu.read()
        if cpu == "gone":
            return None
        _take_cpu(cpu, self._cpu.path, counters)
        current = self._current.read()
        counters.memory_bytes = whole(current, self._current.path)
        take_memory(_MEMORY_STAT, self._memory.read(), self._memory.path, counters)
        counters.read_bytes, counters.write_bytes = _io_bytes(self._io.read(), self._io.path, self._disks())
        self._pressure.read_into(counters)
        # Without a CPU file (a tree without it) the memory controller tells that the group has gone.
        return None if current == "gone" else counters

    def close(self) -> None:
        for source in (self._cpu, self._current, self._memory, self._io):
            source.close()
        self._pressure.close()


def _take_cpu(data: bytes | MissingReason, path: str, counters: GroupCounters) -> None:
    if isinstance(data, str):
        counters.usage_usec = counters.nr_periods = counters.nr_throttled = data
        return
    values = parse_flat(_CPU_STAT, data, path)
    # usage_usec is there always; the periods only where the parent hands out the cpu controller.
    counters.usage_usec = values.get(b"usage_usec", "malformed")
    counters.nr_periods = values.get(b"nr_periods", "unsupported")
    counters.nr_throttled = values.get(b"nr_throttled", "unsupported")


def _io_bytes(data: bytes | MissingReason, path: str, disks: Set[bytes]) -> tuple[Count, Count]:
    """Return bytes read and written on the disks that count; a group that did no I/O has an empty file."""
    if isinstance(data, str):
        return data, data
    totals = {b"rbytes": 0, b"wbytes": 0}
    for line in data.splitlines():
        match = _IO_LINE.match(line)
        if match is None:
            # A device that went away leaves its name missing on some kernels: " rbytes=…" counts for nothing.
            if line.startswith(b" ") or not line:
                continue
            return "malformed", "malformed"
        if disks and match[1] not in disks:
            continue
        try:
            for key, word in _IO_BYTES.findall(match[2]):
                totals[key] += number(word, path)
        except errors.MalformedFile as error:
            return error.reason, error.reason
    return totals[b"rbytes"], totals[b"wbytes"]
