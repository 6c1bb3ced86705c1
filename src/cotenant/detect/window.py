"""Sliding windows (t - W, t] over one node's samples. Contracts §3.

A value is known over the window when at least 3 values are, and no gap between known values, or from the last one to
t, is longer than 3 periods.
"""

import collections
import math
import operator
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from cotenant.model.sample import Device, MissingReason
from cotenant.units import grain, histogram

LEAST_VALUES = 3
GAP_PERIODS = 3
JITTER = 1.05
"""Sampling is never exact: a gap counts as longer than 3 periods from 3.15 on."""
LEAST_COMPLETIONS = 30
"""A percentile of fewer requests is the luck of one of them."""


def gap_limit_s(periods: Collection[float]) -> float:
    """Return the longest gap that leaves a value known, from the lengths of the window's periods (1 s if none)."""
    period = sorted(periods)[(len(periods) - 1) // 2] if periods else 1.0
    return period * GAP_PERIODS * JITTER


def why_unknown(times: Sequence[float], at: float, gap_s: float) -> MissingReason | None:
    """Return why values known at these times do not make the window known, or None when they do."""
    if len(times) < LEAST_VALUES:
        return "too_few"
    if at - times[-1] > gap_s:
        return "stale"
    return "stale" if max(map(operator.sub, times[1:], times)) > gap_s else None


def mean_of(values: Sequence[float]) -> float:
    """Return the plain mean, which is exact for equal values: a signal that stands at its threshold is at it."""
    first = values[0]
    return first if values.count(first) == len(values) else _spread_mean_of(values)


def _spread_mean_of(values: Sequence[float]) -> float:
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        return math.fsum(value / len(values) for value in values)


class Window:
    """Rows of values, one column for each signal; None where unknown."""

    __slots__ = ("_gap_s", "_periods", "_rows", "_times", "_whole", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._times: collections.deque[float] = collections.deque()
        self._rows: collections.deque[tuple[float | None, ...]] = collections.deque()
        self._periods: collections.deque[float] = collections.deque()
        self._gap_s = gap_limit_s(())
        self._whole: MissingReason | None = "too_few"

    def clear(self) -> None:
        """Forget every row."""
        self._times.clear()
        self._rows.clear()
        self._periods.clear()
        self._whole = "too_few"

    def add(self, at: float, period_s: float | None, values: tuple[float | None, ...]) -> None:
        """Add the row of one sample, and drop what is older than the window. Times must not decrease."""
        self._times.append(at)
        self._rows.append(values)
        self._periods.append(period_s if period_s is not None and period_s > 0 else 1.0)
        oldest = at - self.seconds + grain.SECONDS
        while self._times[0] <= oldest:
            self._times.popleft()
            self._rows.popleft()
            self._periods.popleft()
        self._gap_s = gap_limit_s(self._periods)
        self._whole = why_unknown(tuple(self._times), at, self._gap_s)

    @property
    def gap_s(self) -> float:
        """The longest gap that leaves a value known now."""
        return self._gap_s

    def columns(self) -> list[tuple[float | None, ...]]:
        """Return each column's values, oldest first."""
        return list(zip(*self._rows, strict=True))

    def means(self) -> list[float | None]:
        """Return for each column the plain mean of its known values, or None where it is unknown over the window."""
        return self.means_of(self.columns())

    def means_of(self, columns: Sequence[tuple[Any, ...]]) -> list[float | None]:
        """Return the means of these columns of the window."""
        whole = self._whole is None
        means: list[float | None] = []
        count = len(self._times)
        for column in columns:
            first = column[0]
            if column.count(first) == count:  # the usual thing: at rest, or unknown throughout
                means.append(first if whole else None)
            elif None not in column:
                means.append(_spread_mean_of(column) if whole else None)
            else:
                means.append(self._mean_of_known(column))
        return means

    def _mean_of_known(self, column: Sequence[float | None]) -> float | None:
        known = [(t, v) for t, v in zip(self._times, column, strict=True) if v is not None]
        if why_unknown([t for t, _ in known], self._times[-1], self._gap_s) is not None:
            return None
        return mean_of([v for _, v in known])

    def why_unknown(self, column: Sequence[float | None]) -> MissingReason | None:
        """Return why one of the window's columns is unknown over the window, or None when it is known."""
        unknown = column.count(None)
        if not unknown:
            return self._whole
        if len(column) - unknown < LEAST_VALUES:
            return "too_few"
        known = [t for t, value in zip(self._times, column, strict=True) if value is not None]
        return why_unknown(known, self._times[-1], self._gap_s)

    def remapped(self, columns: Sequence[int | None], seconds: float) -> "Window":
        """Return the window with its columns taken from these of ours (None: a new one), and another length."""
        window = Window(seconds)
        for at, period, row in zip(self._times, self._periods, self._rows, strict=True):
            window.add(at, period, tuple(None if c is None else row[c] for c in columns))
        return window


class Latencies(msgspec.Struct, frozen=True):
    """What one sample says of the latency of one disk, or of all: percentiles in µs by name, and their histogram.

    ``oldest_usec`` is the age of the oldest request in flight: 0 when none is, None when that is unknown.
    """

    at: float
    completions: int | None
    percentiles: tuple[float | None, float | None, float | None]
    histogram: histogram.Histogram | None
    oldest_usec: float | None
    seen: bool
    """Whether the sample knows the latency, or knows that there was none."""


def latencies(
    at: float,
    completions: int | None,
    percentiles: tuple[float | None, float | None, float | None],
    counts: histogram.Histogram | None,
    oldest_usec: float | None,
) -> Latencies:
    """Return the row of one sample; whether it is ``seen`` follows from the rest."""
    seen = completions == 0 or counts is not None or any(p is not None for p in percentiles)
    return Latencies(at, completions, percentiles, counts, oldest_usec, seen)


def age_usec(disk: Device) -> float | None:
    """Return the age of a disk's oldest request in flight: 0 when none is seen, None when one is of unknown age."""
    if disk.oldest_in_flight_usec is None or disk.in_flight == 0:
        return None if disk.in_flight else 0.0
    return disk.oldest_in_flight_usec


QUANTILES = (0.5, 0.95, 0.99)


class Percentile(msgspec.Struct, frozen=True, gc=False):
    """A percentile over the window. ``idle``: no request completed and none hangs: no value, and the index is 0."""

    value: float | None
    idle: bool = False
    missing: MissingReason | None = None


class LatencyWindow:
    """The window of one disk, or of all together, whose percentiles depend on how many requests completed.

    ``_counted`` rows came with a histogram; ``_merged`` is their sum.
    """

    __slots__ = ("_counted", "_merged", "_rows", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._rows: collections.deque[Latencies] = collections.deque()
        self._merged = histogram.Histogram()
        self._counted = 0

    def clear(self) -> None:
        """Forget every row."""
        self._rows.clear()
        self._merged = histogram.Histogram()
        self._counted = 0

    @property
    def last_at(self) -> float | None:
        """When the last sample was that spoke of this disk, or None when none is in the window."""
        return self._rows[-1].at if self._rows else None

    def add(self, row: Latencies) -> None:
        """Add what one sample says."""
        self._rows.append(row)
        if row.histogram is not None:
            self._merged.merge(row.histogram)
            self._counted += 1
        self.drop_before(row.at)

    def drop_before(self, at: float) -> None:
        """Drop what is older than the window that ends at this time."""
        oldest = at - self.seconds + grain.SECONDS
        while self._rows and self._rows[0].at <= oldest:
            row = self._rows.popleft()
            if row.histogram is not None:
                self._merged.subtract(row.histogram)
                self._counted -= 1

    def percentile(self, which: int, at: float, gap_s: float) -> Percentile:
        """Return a percentile (an index into :data:`QUANTILES`) over the window.

        Of fewer than 30 completions only the median and the age of the oldest request in flight are taken: both are
        lower bounds of what a higher percentile would be.
        """
        seen: list[Latencies] = []
        times: list[float] = []
        counted: list[int] = []
        for row in self._rows:
            if row.seen:
                seen.append(row)
                times.append(row.at)
            if row.completions is not None:
                counted.append(row.completions)
        missing = why_unknown(times, at, gap_s)
        if missing:
            return Percentile(None, missing=missing)
        completions = sum(counted)
        if not counted or completions >= LEAST_COMPLETIONS:
            value = self._quantile(which, seen)
            return Percentile(value, missing=None if value is not None else "too_few")
        oldest = self._oldest()
        if completions == 0:
            if not oldest and any(row.oldest_usec is None for row in self._rows):
                return Percentile(None, missing="too_few")  # something waits, and nobody knows for how long
            return Percentile(oldest or None, idle=not oldest)
        bounds = [bound for bound in (self._quantile(0, seen), oldest or None) if bound is not None]
        return Percentile(max(bounds)) if bounds else Percentile(None, missing="too_few")

    def _quantile(self, which: int, seen: list[Latencies]) -> float | None:
        if self._counted:
            return self._merged.quantile(QUANTILES[which])
        known = [p for row in seen if (p := row.percentiles[which]) is not None]
        return mean_of(known) if known else None

    def _oldest(self) -> float | None:
        known = [row.oldest_usec for row in self._rows if row.oldest_usec is not None]
        return mean_of(known) if known else None
