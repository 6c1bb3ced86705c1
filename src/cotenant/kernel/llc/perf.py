"""Hardware counters of the whole machine by ``perf_event_open``: cache references, misses, instructions and cycles.

One group of events on each CPU, so that the parts of a ratio count over the same time. When the hardware has fewer
counters than users, the kernel takes turns: a count is scaled by enabled ÷ running time.
"""

import ctypes
import dataclasses
import errno
import os
import platform
import struct
from collections.abc import Callable, Iterable, Mapping

from cotenant.kernel import errors, paths
from cotenant.kernel.file import File
from cotenant.kernel.reading import Findings
from cotenant.model.sample import MissingReason
from cotenant.units import cpulist

_SYSCALL = {"x86_64": 298, "aarch64": 241}
_HARDWARE, _HW_CACHE = 0, 3
_LL_READ_ACCESS, _LL_READ_MISS = 2, 2 | 1 << 16
_REFERENCES, _MISSES, _INSTRUCTIONS, _CYCLES = 2, 3, 1, 0
EVENT_SETS = (
    ((_HW_CACHE, _LL_READ_ACCESS), (_HW_CACHE, _LL_READ_MISS), (_HARDWARE, _INSTRUCTIONS), (_HARDWARE, _CYCLES)),
    ((_HARDWARE, _REFERENCES), (_HARDWARE, _MISSES), (_HARDWARE, _INSTRUCTIONS), (_HARDWARE, _CYCLES)),
)
"""References, misses, instructions, cycles: last-level loads where the CPU names them, else generic cache events."""
_FORMAT_GROUP_WITH_TIMES = 1 | 2 | 8
_CLOEXEC = 8
_ATTR_BYTES = 64
"""PERF_ATTR_SIZE_VER0: all that is used here, and every kernel takes it."""
FIELDS = ("miss_ratio", "mpki")
MIN_INSTRUCTIONS = 10_000
"""Fewer in a period than this on the whole machine say nothing of a ratio."""

_NO_PMU = frozenset({errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV, errno.ENOSYS})


@dataclasses.dataclass(frozen=True, slots=True)
class Counts:
    """One CPU's group: nanoseconds enabled and running, and the raw events in the order of an event set."""

    enabled_nsec: int
    running_nsec: int
    events: tuple[int, ...]


def parse(data: bytes) -> Counts | None:
    """Return a group's counts, or None when its CPU is off line (the read is empty) or the text is too short."""
    if len(data) < 24:
        return None
    count, enabled, running = struct.unpack_from("=3Q", data)
    if len(data) < 24 + 8 * count or count > 16:
        return None
    return Counts(enabled, running, struct.unpack_from(f"={count}Q", data, 24))


def scaled(before: Counts, after: Counts) -> tuple[float, ...] | None:
    """Return the growth of each event, scaled to the whole time; None when the group did not run, or was reset."""
    enabled = after.enabled_nsec - before.enabled_nsec
    running = after.running_nsec - before.running_nsec
    grown = [now - then for then, now in zip(before.events, after.events, strict=False)]
    if running <= 0 or enabled <= 0 or any(count < 0 for count in grown):
        return None
    return tuple(count * enabled / running for count in grown)


OpenEvent = Callable[[int, int, int, int], int]
"""(type, config, cpu, group descriptor or -1) → descriptor; raises OSError."""


def open_event(kind: int, config: int, cpu: int, group: int) -> int:
    """Open one counter for all tasks of one CPU.

    :raises OSError: as the kernel answers.
    """
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    attr = struct.pack("=IIQQQQQII", kind, _ATTR_BYTES, config, 0, 0, _FORMAT_GROUP_WITH_TIMES, 0, 0, 0)
    buffer = ctypes.create_string_buffer(attr.ljust(_ATTR_BYTES, b"\0"), _ATTR_BYTES)
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = int(libc.syscall(number, buffer, -1, cpu, group, _CLOEXEC))
    if descriptor < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return descriptor


class Perf:
    """Counters on every CPU that is on line; opened again for a CPU that comes back."""

    def __init__(
        self, root: paths.Root, opener: OpenEvent = open_event, read: Callable[[int, int], bytes] = os.read
    ) -> None:
        self._online = File(root.sys / "devices" / "system" / "cpu" / "online")
        self._open = opener
        self._read = read
        self._descriptors: dict[int, list[int]] = {}
        self._before: dict[int, Counts] = {}
        self._set: int | None = None
        self._why: MissingReason | None = None

    def read_into(self, found: Findings, seconds: float | MissingReason) -> None:
        """Put both ratios, or why they are unknown: ``no_pmu``, ``permission``, ``not_running``."""
        if self._why is None:
            self._follow_cpus()
        if self._why is not None:
            found.put_all(FIELDS, self._why)
            return
        after = {cpu: counts for cpu, opened in self._descriptors.items() if (counts := self._counts(opened[0]))}
        before, self._before = self._before, after
        if isinstance(seconds, str):
            found.put_all(FIELDS, seconds)
            return
        grown = [scaled(before[cpu], counts) for cpu, counts in after.items() if cpu in before]
        for field, value in ratios([counts for counts in grown if counts is not None], bool(before)).items():
            found.put(field, value)

    def _counts(self, descriptor: int) -> Counts | None:
        try:
            return parse(self._read(descriptor, 24 + 8 * 16))
        except OSError:
            return None

    def _follow_cpus(self) -> None:
        try:
            cpus = cpulist.parse(self._online.read().decode("ascii", "replace"))
        except (errors.KernelError, cpulist.BadCpuList):
            cpus = frozenset(range(os.cpu_count() or 1))
        for cpu in self._descriptors.keys() - cpus:
            self._close(self._descriptors.pop(cpu))
        for cpu in sorted(cpus - self._descriptors.keys()):
            self._open_on(cpu)
            if self._why is not None:
                return

    def _open_on(self, cpu: int) -> None:
        sets = range(len(EVENT_SETS)) if self._set is None else [self._set]
        for index in sets:
            opened: list[int] = []
            try:
                for kind, config in EVENT_SETS[index]:
                    opened.append(self._open(kind, config, cpu, opened[0] if opened else -1))
            except OSError as error:
                self._close(opened)
                if error.errno in _NO_PMU and index != sets[-1]:
                    continue
                self._why = "no_pmu" if error.errno in _NO_PMU else errors.FileError("perf", error.errno or 0).reason
                if error.errno == errno.ENODEV and self._descriptors:
                    self._why = None  # this CPU went off line just now
                else:
                    self.close()
                return
            self._set = index
            self._descriptors[cpu] = opened
            return

    @staticmethod
    def _close(descriptors: Iterable[int]) -> None:
        for descriptor in descriptors:
            os.close(descriptor)

    def close(self) -> None:
        for descriptors in self._descriptors.values():
            self._close(descriptors)
        self._descriptors = {}
        self._online.close()


def ratios(grown: list[tuple[float, ...]], seen: bool) -> Mapping[str, float | MissingReason]:
    """Return misses ÷ references and misses per thousand instructions over the CPUs whose counters ran.

    Both are ratios of sums, so that CPUs whose counters did not run leave them right, if less sure.
    """
    if not grown:
        return dict.fromkeys(FIELDS, "not_running" if seen else "first_sample")
    references, misses, instructions, _ = (sum(counts) for counts in zip(*grown, strict=True))
    if instructions < MIN_INSTRUCTIONS:
        return dict.fromkeys(FIELDS, "too_few")
    return {
        "miss_ratio": min(misses / references, 1.0) if references else "too_few",
        "mpki": misses * 1000 / instructions,
    }
