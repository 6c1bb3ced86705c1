"""What one control group's files count, raw: the same for v1 and v2."""

import dataclasses
import re
from typing import Protocol

from cotenant.kernel import errors, psi
from cotenant.kernel.file import File, number
from cotenant.kernel.reading import reason_of
from cotenant.model.rate import Count
from cotenant.model.sample import MissingReason

RETRY_READS = 30
"""A file that is not there is looked for again after so many reads: a controller may be switched on later."""


@dataclasses.dataclass(slots=True)
class GroupCounters:
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


class GroupFiles(Protocol):
    """The open files of one group."""

    def read(self) -> GroupCounters | None:
        """Return the counters now, or None when the group is gone."""
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

    def read(self) -> bytes | MissingReason:
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


class PressureFiles:
    """The three pressure files of one group."""

    __slots__ = ("_sources",)

    def __init__(self, directory: str) -> None:
        self._sources = tuple(
            Source(f"{directory}/{name}.pressure", "psi_disabled") for name in ("cpu", "memory", "io")
        )

    def read_into(self, counters: GroupCounters) -> None:
        """Fill the stall totals."""
        cpu, memory, io = self._sources
        counters.cpu_some_usec, _ = _totals(cpu)
        counters.memory_some_usec, counters.memory_full_usec = _totals(memory)
        counters.io_some_usec, counters.io_full_usec = _totals(io)

    def close(self) -> None:
        for source in self._sources:
            source.close()


def _totals(source: Source) -> tuple[Count, Count]:
    data = source.read()
    if isinstance(data, str):
        reason: MissingReason = "psi_disabled" if data == "unsupported" else data
        return reason, reason
    try:
        some, full = psi.parse(data, source.path)
    except errors.MalformedFile as error:
        return error.reason, error.reason
    return "malformed" if some is None else some, "malformed" if full is None else full


def parse_flat(pattern: re.Pattern[bytes], data: bytes, path: str) -> dict[bytes, Count]:
    """Return the values of a ``KEY VALUE`` file whose lines the pattern picks (key and value are its groups)."""
    values: dict[bytes, Count] = {}
    for key, word in pattern.findall(data):
        try:
            values[key] = number(word, path)
        except errors.MalformedFile as error:
            values[key] = error.reason
    return values


def whole(data: bytes | MissingReason, path: str) -> Count:
    """Return the count that is a file's only content."""
    if isinstance(data, str):
        return data
    try:
        return number(data.strip(), path)
    except errors.MalformedFile as error:
        return error.reason


def take_memory(pattern: re.Pattern[bytes], data: bytes | MissingReason, path: str, counters: GroupCounters) -> None:
    """Fill what ``memory.stat`` says; kernels before 5.9 count refaults without their kind."""
    if isinstance(data, str):
        counters.refaults = counters.major_faults = counters.memory_anon_bytes = data
        return
    values = parse_flat(pattern, data, path)
    absent: MissingReason = "unsupported" if data.strip() else "malformed"
    refaults = values.get(b"workingset_refault", absent)
    if b"workingset_refault_file" in values:
        refaults = add(values.get(b"workingset_refault_anon", 0), values[b"workingset_refault_file"])
    counters.refaults = refaults
    counters.major_faults = values.get(b"pgmajfault", absent)
    held = [values.get(name, absent) for name in (b"inactive_anon", b"active_anon")]
    counters.memory_anon_bytes = add(add(*held), values.get(b"unevictable", 0))


def add(first: Count, second: Count) -> Count:
    """Return the sum, or the first reason."""
    if isinstance(first, str):
        return first
    return second if isinstance(second, str) else first + second
