"""The files of a group of cgroup v2."""

import re
from collections.abc import Callable, Mapping, Set

from cotenant.kernel.cgroup.counters import (
    Content,
    Direction,
    GroupCounters,
    Parsed,
    PressureFiles,
    Rows,
    Source,
    Stillness,
    count,
    memory_counts,
    parse_flat,
    summed,
    whole,
)
from cotenant.model.rate import Count
from cotenant.model.sample import MissingReason

_CPU_STAT = re.compile(rb"^(usage_usec|nr_periods|nr_throttled) (.*)$", re.MULTILINE)
_MEMORY_STAT = re.compile(
    rb"^(workingset_refault(?:_anon|_file)?|pgmajfault|(?:in)?active_anon|unevictable) (.*)$", re.MULTILINE
)
_IO_LINE = re.compile(rb"^(\d+:\d+)((?: [\w.-]+=\S*)*) *$")
_IO_BYTES = re.compile(rb" (rbytes|wbytes)=(\S*)")
_DIRECTIONS: Mapping[bytes, Direction] = {b"rbytes": "read", b"wbytes": "write"}

Disks = Callable[[], Set[bytes]]
"""``MAJOR:MINOR`` of the disks whose bytes count; empty: all. What dm and md pass down is counted again below."""


class V2Files:
    """One group's files. A removed group answers ENODEV from the descriptors that are still open."""

    def __init__(self, directory: str, disks: Disks, *, live: bool) -> None:
        self._cpu = Parsed(Source(f"{directory}/cpu.stat"), _cpu)
        self._current = Parsed(Source(f"{directory}/memory.current"), whole)
        self._memory = Parsed(Source(f"{directory}/memory.stat"), _memory)
        # Read always: what a group's dirty pages become is booked to it when the kernel writes them, long after it ran.
        self._io = Parsed(Source(f"{directory}/io.stat"), _io)
        self._pressure = PressureFiles(directory)
        self._disks = disks
        self._stillness = Stillness(live=live)
        self._last = GroupCounters()

    def read(self) -> GroupCounters | None:
        """Return the counters now, or None when the group is gone."""
        cpu, held = self._cpu.read(), self._current.read()
        # Without a CPU file (a tree without it) the memory controller tells that the group has gone.
        if self._cpu.gone or self._current.gone:
            return None
        quiet = self._stillness.quiet(cpu[0], held)
        self._last = self._last.followed(
            cpu=cpu,
            held=held,
            memory=self._memory.value if quiet else self._memory.read(),
            io=summed(self._io.read(), self._disks()),
            stalls=self._pressure.read(),
            quiet=quiet,
        )
        return self._last

    def close(self) -> None:
        for file in (self._cpu, self._current, self._memory, self._io):
            file.close()
        self._pressure.close()


def _cpu(data: Content, path: str) -> tuple[Count, Count, Count]:
    """Return CPU time, periods and throttled periods."""
    if isinstance(data, str):
        return data, data, data
    values = parse_flat(_CPU_STAT, data, path)
    # usage_usec is there always; the periods only where the parent hands out the cpu controller.
    periods, throttled = (values.get(name, "unsupported") for name in (b"nr_periods", b"nr_throttled"))
    return values.get(b"usage_usec", "malformed"), periods, throttled


def _memory(data: Content, path: str) -> tuple[Count, Count, Count]:
    return memory_counts(_MEMORY_STAT, data, path)


def _io(data: Content, path: str) -> Rows | MissingReason:
    """Return bytes read and written by disk; a group that did no I/O has an empty file."""
    if isinstance(data, str):
        return data
    rows = []
    for line in data.splitlines():
        match = _IO_LINE.match(line)
        if match is None:
            # A device that went away leaves its name missing on some kernels: " rbytes=…" counts for nothing.
            if line.startswith(b" ") or not line:
                continue
            return "malformed"
        for key, word in _IO_BYTES.findall(match[2]):
            rows.append((match[1], _DIRECTIONS[key], count(word, path)))
    return tuple(rows)
