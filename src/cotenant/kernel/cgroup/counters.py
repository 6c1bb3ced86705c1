"""What one control group's files count, raw: the same for v1 and v2."""

import re
from collections.abc import Callable, Set
from typing import Generic, Literal, Protocol, TypeVar

import msgspec

from cotenant.kernel import errors, psi
from cotenant.kernel.file import File, number
from cotenant.kernel.reading import reason_of
from cotenant.model.rate import Count
from cotenant.model.sample import MissingReason

RETRY_READS = 30
"""A file that is not there is looked for again after so many reads: a controller may be switched on later."""
QUIET_READS = 3
"""A group is quiet when so many reads in a row found what the one before did: the kernel books within two seconds what
tasks did."""

T = TypeVar("T")
Content = bytes | MissingReason
Direction = Literal["read", "write"]
Rows = tuple[tuple[bytes, Direction, Count], ...]
"""Bytes by ``MAJOR:MINOR`` of a disk."""
Stalls = tuple[Count, Count, Count, Count, Count]
"""CPU some, memory some and full, I/O some and full: microseconds."""
NO_STALLS: Stalls = ("psi_disabled",) * 5


class GroupCounters(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Counters since the group was made (bytes, microseconds, pages, events), or why one is unknown."""

    usage_usec: Count = "unsupported"
    nr_periods: Count = "unsupported"
    nr_throttled: Count = "unsupported"
    memory_bytes: Count = "unsupported"
    """Now, not a counter."""
    memory_anon_bytes: Count = "unsupported"
    """Of that, what cannot be dropped: anonymous, shared and locked memory."""
    refaults: Count = "unsupported"
    major_faults: Count = "unsupported"
    read_bytes: Count = "unsupported"
    write_bytes: Count = "unsupported"
    cpu_some_usec: Count = "psi_disabled"
    memory_some_usec: Count = "psi_disabled"
    memory_full_usec: Count = "psi_disabled"
    io_some_usec: Count = "psi_disabled"
    io_full_usec: Count = "psi_disabled"
    quiet: bool = False
    """No task ran in the group or below it for some reads: what only tasks change was not read again."""

    def followed(
        self,
        *,
        cpu: tuple[Count, Count, Count],
        held: Count,
        memory: tuple[Count, Count, Count],
        io: tuple[Count, Count],
        stalls: "Stalls",
        quiet: bool,
    ) -> "GroupCounters":
        """Return the counters that were read now: this object where they are the same.

        ``cpu`` is time, periods and throttled periods, ``memory`` as of :func:`memory_counts`, ``io`` bytes read and
        written.
        """
        now = GroupCounters(
            usage_usec=cpu[0],
            nr_periods=cpu[1],
            nr_throttled=cpu[2],
            memory_bytes=held,
            refaults=memory[0],
            major_faults=memory[1],
            memory_anon_bytes=memory[2],
            read_bytes=io[0],
            write_bytes=io[1],
            cpu_some_usec=stalls[0],
            memory_some_usec=stalls[1],
            memory_full_usec=stalls[2],
            io_some_usec=stalls[3],
            io_full_usec=stalls[4],
            quiet=quiet,
        )
        return self if now == self else now


class GroupFiles(Protocol):
    """The open files of one group."""

    def read(self) -> GroupCounters | None:
        """Return the counters now, the same object while they are the same; None when the group is gone."""
        ...

    def close(self) -> None:
        """Close the files."""
        ...


class Source:
    """One file of a group: its content, or why there is none; a file that is not there is not tried at every read."""

    __slots__ = ("_absent", "_file", "_retry_reads", "_skip", "_why")

    def __init__(self, path: str, absent: MissingReason = "unsupported", retry_reads: int = RETRY_READS) -> None:
        self._file = File(path)
        self._absent = absent
        self._retry_reads = retry_reads
        self._skip = 0
        self._why: MissingReason = absent

    @property
    def path(self) -> str:
        return self._file.path

    def read(self) -> Content:
        """Return the content, or why it is unknown: ``gone`` only after it was there."""
        if self._skip:
            self._skip -= 1
            return self._why
        try:
            return self._file.read()
        except errors.FileError as error:
            self._why = reason_of(error, self._file, self._absent)
            if error.gone and not self._file.seen:
                self._skip = self._retry_reads
            return self._why

    def close(self) -> None:
        self._file.close()


class Parsed(Generic[T]):
    """What a file says. It is parsed anew only when it says something else: most of a group's files rarely do."""

    __slots__ = ("_content", "_parse", "_source", "value")

    def __init__(self, source: Source | None, parse: Callable[[Content, str], T]) -> None:
        """Take a file, or None where the group has none: that is ``unsupported``."""
        self._source = source
        self._parse = parse
        self._content: Content = "unsupported"
        self.value = parse(self._content, "")
        """As of the last read."""

    def read(self) -> T:
        """Return what the file says now."""
        if self._source is not None:
            content = self._source.read()
            if content != self._content:
                self._content, self.value = content, self._parse(content, self._source.path)
        return self.value

    @property
    def unknown(self) -> bool:
        """Whether the last read gave no content."""
        return isinstance(self._content, str)

    @property
    def gone(self) -> bool:
        """Whether the last read found the file gone."""
        return self._content == "gone"

    def close(self) -> None:
        if self._source is not None:
            self._source.close()


class Stillness:
    """Follows whether anything happens in a group, by what it used and what it holds.

    Without a task that ran, a group faults nothing in, allocates nothing and submits nothing; and what is taken from it
    shows in what it holds. ``live`` False (plain files): nothing is quiet, for there is no such order between files.
    """

    __slots__ = ("_before", "_live", "_same")

    def __init__(self, *, live: bool) -> None:
        self._live = live
        self._before: tuple[Count, Count] = ("first_sample", "first_sample")
        self._same = 0

    def quiet(self, usage: Count, memory: Count) -> bool:
        """Take CPU time used so far and memory held now; return whether the group is quiet."""
        now = usage, memory
        self._same = self._same + 1 if now == self._before and not isinstance(usage, str) else 0
        self._before = now
        return self._live and self._same >= QUIET_READS


class PressureFiles:
    """The three pressure files of one group."""

    __slots__ = ("_files",)

    def __init__(self, directory: str) -> None:
        self._files = tuple(
            Parsed(Source(f"{directory}/{name}.pressure", "psi_disabled"), _totals) for name in ("cpu", "memory", "io")
        )

    def read(self) -> Stalls:
        """Return the stall totals."""
        cpu, memory, io = self._files
        return cpu.read()[0], *memory.read(), *io.read()

    def close(self) -> None:
        for file in self._files:
            file.close()


def _totals(data: Content, path: str) -> tuple[Count, Count]:
    if isinstance(data, str):
        reason: MissingReason = "psi_disabled" if data == "unsupported" else data
        return reason, reason
    try:
        some, full = psi.parse(data, path)
    except errors.MalformedFile as error:
        return error.reason, error.reason
    return "malformed" if some is None else some, "malformed" if full is None else full


def parse_flat(pattern: re.Pattern[bytes], data: bytes, path: str) -> dict[bytes, Count]:
    """Return the values of a ``KEY VALUE`` file whose lines the pattern picks (key and value are its groups)."""
    values: dict[bytes, Count] = {}
    for key, word in pattern.findall(data):
        values[key] = count(word, path)
    return values


def count(word: bytes, path: str) -> Count:
    """Return a count, or that it is none."""
    try:
        return number(word, path)
    except errors.MalformedFile as error:
        return error.reason


def whole(data: Content, path: str) -> Count:
    """Return the count that is a file's only content."""
    return data if isinstance(data, str) else count(data.strip(), path)


def summed(rows: Rows | MissingReason, disks: Set[bytes]) -> tuple[Count, Count]:
    """Return bytes read and written on the disks that count; ``disks`` empty: all."""
    if isinstance(rows, str):
        return rows, rows
    totals: dict[Direction, Count] = {"read": 0, "write": 0}
    for disk, direction, grown in rows:
        if not disks or disk in disks:
            if isinstance(grown, str):
                return grown, grown
            totals[direction] = add(totals[direction], grown)
    return totals["read"], totals["write"]


def memory_counts(pattern: re.Pattern[bytes], data: Content, path: str) -> tuple[Count, Count, Count]:
    """Return refaults, major faults and what cannot be dropped, by ``memory.stat``.

    Kernels before 5.9 count refaults without their kind.
    """
    if isinstance(data, str):
        return data, data, data
    values = parse_flat(pattern, data, path)
    absent: MissingReason = "unsupported" if data.strip() else "malformed"
    refaults = values.get(b"workingset_refault", absent)
    if b"workingset_refault_file" in values:
        refaults = add(values.get(b"workingset_refault_anon", 0), values[b"workingset_refault_file"])
    held = [values.get(name, absent) for name in (b"inactive_anon", b"active_anon")]
    anon = add(add(*held), values.get(b"unevictable", 0))
    return refaults, values.get(b"pgmajfault", absent), anon


def add(first: Count, second: Count) -> Count:
    """Return the sum, or the first reason."""
    if isinstance(first, str):
        return first
    return second if isinstance(second, str) else first + second
