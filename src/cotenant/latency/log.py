"""Durations in the lines that a service appends to its access log.

A pattern is plain text around one placeholder, not a regular expression: matching takes time in proportion to the line,
whatever somebody puts into a URL.
"""

import dataclasses
import errno
import math
import os
import pathlib
import re
import stat

from cotenant.latency.errors import BadSource, Unreadable
from cotenant.units.quantile import Native

UNITS = {"seconds": 1.0, "milliseconds": 1e-3, "microseconds": 1e-6}
READ_LIMIT_BYTES = 4 << 20
"""Per look; what a service writes beyond that is left out, and counted."""
LINE_LIMIT_BYTES = 16 << 10
SCHEMA = 3
"""Eight buckets an octave: a quantile is right to 9 %."""
LEAST_SECONDS = 1e-6
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_DIGITS = frozenset(b"0123456789.")


@dataclasses.dataclass(frozen=True, slots=True)
class Pattern:
    """``before`` and ``after`` are literal text around the number; ``at_end``: the line ends behind ``after``."""

    before: bytes
    after: bytes
    unit_seconds: float
    at_end: bool

    @classmethod
    def parse(cls, text: str) -> "Pattern":
        """Return the pattern of a text like ``rt={seconds}`` or ``" {milliseconds}$``; ``$`` is the line's end.

        :raises BadSource: without exactly one placeholder, or with one that is no unit.
        """
        found = _PLACEHOLDER.findall(text)
        if len(found) != 1 or found[0] not in UNITS:
            units = ", ".join(f"{{{unit}}}" for unit in UNITS)
            raise BadSource(f"pattern {text[:100]!r}: write one of {units} where the duration is, $ for the line's end")
        before, _, after = text.partition(f"{{{found[0]}}}")
        at_end = after.endswith("$")
        return cls(before.encode(), after.removesuffix("$").encode(), UNITS[found[0]], at_end)

    def seconds(self, line: bytes) -> float | None:
        """Return the duration in a line without its newline, or None when the pattern is not in it."""
        return self._backwards(line) if self.at_end else self._forwards(line)

    def _backwards(self, line: bytes) -> float | None:
        if not line.endswith(self.after):
            return None
        end = len(line) - len(self.after)
        start = end
        while start > 0 and line[start - 1] in _DIGITS:
            start -= 1
        if not line.endswith(self.before, 0, start):
            return None
        return self._number(line[start:end])

    def _forwards(self, line: bytes) -> float | None:
        at = 0
        while (at := line.find(self.before, at)) >= 0:
            start = end = at + len(self.before)
            while end < len(line) and line[end] in _DIGITS:
                end += 1
            if end > start and line.startswith(self.after, end):
                return self._number(line[start:end])
            if not self.before:
                return None  # a pattern that begins with the number speaks of the line's beginning
            at = end if end > start else at + 1
        return None

    def _number(self, text: bytes) -> float | None:
        try:
            value = float(text) * self.unit_seconds
        except ValueError:
            return None
        return value if math.isfinite(value) else None


class Counter:
    """Counts durations into a native histogram that only grows, as a program would expose it."""

    def __init__(self) -> None:
        self._buckets: dict[int, float] = {}
        self._zero = 0
        self._count = 0

    def add(self, seconds: float) -> None:
        self._count += 1
        if seconds <= LEAST_SECONDS:
            self._zero += 1
            return
        bucket = math.ceil(math.log2(seconds) * 2**SCHEMA - 1e-9)
        self._buckets[bucket] = self._buckets.get(bucket, 0.0) + 1

    def counts(self) -> Native:
        """Return what was counted so far."""
        return Native.of(SCHEMA, self._count, dict(self._buckets), self._zero, LEAST_SECONDS)


class Tail:
    """What is appended to one file, from now on; it may be rotated, truncated, or come later."""

    def __init__(self, path: pathlib.Path, pattern: Pattern) -> None:
        self.path = path
        self._pattern = pattern
        self._counter = Counter()
        self._file: int | None = None
        self._inode: tuple[int, int] | None = None
        self._at = 0
        self._rest = b""
        self._looked = False
        self.unmatched = 0
        """Lines in which the pattern was not found."""
        self.skipped_bytes = 0

    def read(self) -> Native:
        """Return the durations of all lines since the first look, which passes over what is there already.

        :raises Unreadable: if the file is not there, is no ordinary file, or no line of some hundred matches.
        """
        before = self._counter.counts().count, self.unmatched
        try:
            self._follow()
        except OSError as error:
            self.close()
            raise Unreadable(f"{self.path}: {error.strerror}") from None
        finally:
            self._looked = True
        counts = self._counter.counts()
        if counts.count == before[0] and self.unmatched > before[1]:
            raise Unreadable(f"{self.path}: the pattern was in none of {self.unmatched - before[1]} new lines")
        return counts

    def close(self) -> None:
        """Close the file; the next look opens it again."""
        if self._file is not None:
            os.close(self._file)
            self._file = self._inode = None
            self._rest = b""

    def _follow(self) -> None:
        if self._file is None:
            self._open(from_end=not self._looked)
        self._take()
        there = os.stat(self.path)
        if (there.st_dev, there.st_ino) != self._inode:  # rotated: what was read is the rest of the old file
            self.close()
            self._open(from_end=False)
            self._take()

    def _open(self, *, from_end: bool) -> None:
        # Not blocking: opening a pipe would wait for its writer.
        file = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            os.close(file)
            raise OSError(errno.EINVAL, "not an ordinary file")
        self._file, self._inode = file, (status.st_dev, status.st_ino)
        self._at = status.st_size if from_end else 0

    def _take(self) -> None:
        assert self._file is not None
        size = os.fstat(self._file).st_size
        if size < self._at:
            self._at, self._rest = 0, b""  # truncated: copytruncate, or somebody's `>`
        if size - self._at > READ_LIMIT_BYTES:
            self.skipped_bytes += size - self._at - READ_LIMIT_BYTES
            self._at, self._rest = size - READ_LIMIT_BYTES, b"\x00"  # the first line is not whole: it matches nothing
        data = os.pread(self._file, size - self._at, self._at)
        self._at += len(data)
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest if len(rest) <= LINE_LIMIT_BYTES else b"\x00"
        for line in lines:
            self._count(line.rstrip(b"\r"))

    def _count(self, line: bytes) -> None:
        if not line.strip():
            return
        whole = len(line) <= LINE_LIMIT_BYTES and not line.startswith(b"\x00")
        seconds = self._pattern.seconds(line) if whole else None
        if seconds is None:
            self.unmatched += 1
        else:
            self._counter.add(seconds)
