"""Quantiles of Prometheus' histograms, worked out as Prometheus does: classic (cumulative buckets) and native.

Both are immutable and come with the two operations that a quantile over time and over processes needs: the increase
since an earlier state (a restarted process counts from zero again) and the sum of several.
"""

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

BUCKETS_LIMIT = 2000
"""More than any honest histogram has; both kinds refuse more."""
SCHEMAS = range(-4, 9)
"""Resolutions of a native histogram: a bucket's upper bound is 2^(2^-schema) times its lower one."""
_RELATIVE_NOISE = 1e-12


class BadHistogram(ValueError):
    """The numbers are no histogram; the text says why."""


class Estimate(NamedTuple):
    """A quantile. ``at_least``: it lies beyond the last bound that the histogram has, which is the value given."""

    value: float
    at_least: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Classic:
    """Counts of values ≤ each bound. Bounds ascend and end with infinity; counts do not decrease."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]

    @classmethod
    def of(cls, buckets: Iterable[tuple[float, float]]) -> "Classic":
        """Return the histogram of (upper bound, cumulative count); equal bounds add up, small noise is smoothed.

        :raises BadHistogram: without a bucket for infinity and a finite one, or with a count that is none.
        """
        merged: dict[float, float] = {}
        for bound, count in buckets:
            if math.isnan(bound) or not math.isfinite(count) or count < 0:
                raise BadHistogram(f"le={bound:g} has count {count:g}")
            merged[bound] = merged.get(bound, 0.0) + count
        bounds = tuple(sorted(merged))
        if not bounds or bounds[-1] != math.inf:
            raise BadHistogram('no bucket le="+Inf"')
        if not 2 <= len(bounds) <= BUCKETS_LIMIT:
            raise BadHistogram(f"{len(bounds)} buckets; at least 2, at most {BUCKETS_LIMIT}")
        return cls(bounds, tuple(_not_decreasing(merged[bound] for bound in bounds)))

    @property
    def count(self) -> float:
        """How many values there are."""
        return self.counts[-1]

    def quantile(self, q: float) -> Estimate | None:
        """Return the value below which a share q of the values lies, or None when there is none.

        Values are taken to be spread evenly within a bucket; the lowest bucket begins at 0 unless its bound is ≤ 0.
        """
        if self.count <= 0:
            return None
        rank = q * self.count
        index = next((i for i, count in enumerate(self.counts[:-1]) if count >= rank), len(self.bounds) - 1)
        if index == len(self.bounds) - 1:
            return Estimate(self.bounds[-2], at_least=True)
        upper, below = self.bounds[index], self.counts[index - 1] if index else 0.0
        if index == 0 and upper <= 0:
            return Estimate(upper)
        lower = self.bounds[index - 1] if index else 0.0
        inside = self.counts[index] - below
        return Estimate(lower + (upper - lower) * (rank - below) / inside if inside > 0 else upper)

    def since(self, before: "Classic") -> "Classic":
        """Return what was counted since; all of it where a count has fallen, which is a restart.

        Where bounds come or go, those that both have are kept: their counts are exact.
        """
        bounds, now, then = self._beside(before)
        increases = [a - b for a, b in zip(now, then, strict=True)]
        if len(bounds) < 2 or min(increases) < 0:
            return self
        return Classic(bounds, tuple(_not_decreasing(increases)))

    def plus(self, other: "Classic") -> "Classic":
        """Return both together, at the bounds that both have.

        :raises BadHistogram: if they share no finite bound.
        """
        bounds, mine, theirs = self._beside(other)
        if len(bounds) < 2:
            raise BadHistogram("histograms that share no bucket cannot be added")
        return Classic(bounds, tuple(a + b for a, b in zip(mine, theirs, strict=True)))

    def _beside(self, other: "Classic") -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]:
        if self.bounds == other.bounds:
            return self.bounds, self.counts, other.counts
        mine = dict(zip(self.bounds, self.counts, strict=True))
        theirs = dict(zip(other.bounds, other.counts, strict=True))
        bounds = tuple(bound for bound in self.bounds if bound in theirs)
        return bounds, tuple(mine[bound] for bound in bounds), tuple(theirs[bound] for bound in bounds)


@dataclasses.dataclass(frozen=True, slots=True)
class Native:
    """Counts by exponential bucket: number i holds values in (b^(i-1), b^i], b = 2^(2^-schema); negative ones mirrored.

    Values of an absolute size ≤ ``zero_threshold`` are in ``zero_count``. ``count`` may be larger than all buckets
    together: NaN is in no bucket.
    """

    schema: int
    count: float
    positive: Mapping[int, float]
    zero_count: float = 0.0
    zero_threshold: float = 0.0
    negative: Mapping[int, float] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(
        cls,
        schema: int,
        count: float,
        positive: Mapping[int, float],
        zero_count: float = 0.0,
        zero_threshold: float = 0.0,
        negative: Mapping[int, float] | None = None,
    ) -> "Native":
        """Return the histogram, once its numbers are seen to be one.

        :raises BadHistogram: if they are not.
        """
        negative = negative or {}
        if schema not in SCHEMAS:
            raise BadHistogram(f"schema {schema} is none of {SCHEMAS[0]}…{SCHEMAS[-1]}")
        if len(positive) + len(negative) > BUCKETS_LIMIT:
            raise BadHistogram(f"more than {BUCKETS_LIMIT} buckets")
        numbers = [count, zero_count, zero_threshold, *positive.values(), *negative.values()]
        if not all(math.isfinite(number) and number >= 0 for number in numbers):
            raise BadHistogram("a count is negative or not finite")
        inside = zero_count + sum(positive.values()) + sum(negative.values())
        if inside > count * (1 + 1e-9):
            raise BadHistogram(f"{inside:g} in buckets, {count:g} in all")
        return cls(schema, count, _filled(positive), zero_count, zero_threshold, _filled(negative))

    def quantile(self, q: float) -> Estimate | None:
        """Return the value below which a share q of the values lies, or None when that is not known.

        Within a bucket values are spread evenly by their logarithm, within the zero bucket evenly.
        """
        if self.count <= 0:
            return None
        rank, seen = q * self.count, 0.0
        last: tuple[float, float, float] | None = None
        for lower, upper, count in self._buckets():
            last = (lower, upper, count)
            if seen + count >= rank:
                return _within(lower, upper, (rank - seen) / count)
            seen += count
        if last is None or seen < rank * (1 - 1e-9):
            return None  # the rest is NaN
        return _within(last[0], last[1], 1.0)

    def _buckets(self) -> Iterator[tuple[float, float, float]]:
        """Yield lower bound, upper bound and count of what is filled, ascending."""
        for index in sorted(self.negative, reverse=True):
            yield -self._bound(index), -self._bound(index - 1), self.negative[index]
        if self.zero_count > 0:
            threshold = self.zero_threshold
            # One-sided data does not reach beyond 0; with nothing else known, it may be on either side.
            lower = 0.0 if self.positive and not self.negative else -threshold
            upper = 0.0 if self.negative and not self.positive else threshold
            yield lower, upper, self.zero_count
        for index in sorted(self.positive):
            yield self._bound(index - 1), self._bound(index), self.positive[index]

    def _bound(self, index: int) -> float:
        try:
            return float(2.0 ** (index * 2.0**-self.schema))
        except OverflowError:
            return math.inf

    def since(self, before: "Native") -> "Native":
        """Return what was counted since; all of it where a count has fallen, which is a restart."""
        now, then = _alike(self, before)
        fallen = now.count < then.count or now.zero_count < then.zero_count
        for mine, theirs in ((now.positive, then.positive), (now.negative, then.negative)):
            fallen = fallen or any(mine.get(index, 0.0) < count for index, count in theirs.items())
        if fallen:
            return self
        return Native(
            now.schema,
            now.count - then.count,
            _filled({i: count - then.positive.get(i, 0.0) for i, count in now.positive.items()}),
            now.zero_count - then.zero_count,
            now.zero_threshold,
            _filled({i: count - then.negative.get(i, 0.0) for i, count in now.negative.items()}),
        )

    def plus(self, other: "Native") -> "Native":
        """Return both together, at the lower resolution of the two."""
        one, two = _alike(self, other)
        return Native(
            one.schema,
            one.count + two.count,
            _added(one.positive, two.positive),
            one.zero_count + two.zero_count,
            one.zero_threshold,
            _added(one.negative, two.negative),
        )

    def at_schema(self, schema: int) -> "Native":
        """Return the same counts at a lower resolution: neighbours fall together, exactly."""
        step = 2 ** (self.schema - schema)
        if step <= 1:
            return self
        return dataclasses.replace(
            self, schema=schema, positive=_coarser(self.positive, step), negative=_coarser(self.negative, step)
        )

    def with_zero_threshold(self, threshold: float) -> "Native":
        """Return the same counts with a zero bucket that reaches at least so far: it swallows what lies in it."""
        if threshold <= self.zero_threshold:
            return self
        inside = [i for i in {*self.positive, *self.negative} if self._bound(i - 1) < threshold]
        reach = max([threshold, *(self._bound(i) for i in inside)])
        swallowed = sum(counts.get(i, 0.0) for counts in (self.positive, self.negative) for i in inside)
        return dataclasses.replace(
            self,
            positive={i: n for i, n in self.positive.items() if i not in inside},
            negative={i: n for i, n in self.negative.items() if i not in inside},
            zero_count=self.zero_count + swallowed,
            zero_threshold=reach,
        )


Counts = Classic | Native


def since(now: Counts, before: Counts) -> Counts:
    """Return what was counted since an earlier state; all of it where the kind of histogram has changed meanwhile."""
    if isinstance(now, Classic):
        return now.since(before) if isinstance(before, Classic) else now
    return now.since(before) if isinstance(before, Native) else now


def total(parts: Iterable[Counts]) -> Counts | None:
    """Return all histograms together, or None when there are none.

    :raises BadHistogram: if they cannot be added: of two kinds, or without a common bucket.
    """
    return functools.reduce(_together, parts, None)


def _together(one: Counts | None, two: Counts) -> Counts:
    if one is None:
        return two
    if isinstance(one, Classic):
        if isinstance(two, Classic):
            return one.plus(two)
    elif isinstance(two, Native):
        return one.plus(two)
    raise BadHistogram("a classic and a native histogram cannot be added")


def _not_decreasing(counts: Iterable[float]) -> Iterator[float]:
    """Yield each count, or the one before where that is larger or differs by rounding only."""
    before = 0.0
    for count in counts:
        if count - before > before * _RELATIVE_NOISE:
            before = count
        yield before


def _within(lower: float, upper: float, fraction: float) -> Estimate:
    if math.isinf(upper):
        return Estimate(lower, at_least=True)
    if math.isinf(lower):
        return Estimate(upper)
    if lower < 0 < upper or lower == 0 or upper == 0:
        return Estimate(lower + (upper - lower) * fraction)
    sign = 1.0 if lower > 0 else -1.0
    low, high = math.log2(abs(lower)), math.log2(abs(upper))
    return Estimate(sign * 2.0 ** (low + (high - low) * fraction))


def _filled(counts: Mapping[int, float]) -> dict[int, float]:
    return {index: count for index, count in counts.items() if count > 0}


def _added(one: Mapping[int, float], two: Mapping[int, float]) -> dict[int, float]:
    return {i: one.get(i, 0.0) + two.get(i, 0.0) for i in {**one, **two}}


def _coarser(counts: Mapping[int, float], step: int) -> dict[int, float]:
    found: dict[int, float] = {}
    for index, count in counts.items():
        wider = -(-index // step)
        found[wider] = found.get(wider, 0.0) + count
    return found


def _alike(one: Native, two: Native) -> tuple[Native, Native]:
    """Return both at the resolution and with the zero bucket that both can have."""
    schema = min(one.schema, two.schema)
    one, two = one.at_schema(schema), two.at_schema(schema)
    while one.zero_threshold != two.zero_threshold:  # each may have to swallow a bucket that the other did not cut
        reach = max(one.zero_threshold, two.zero_threshold)
        one, two = one.with_zero_threshold(reach), two.with_zero_threshold(reach)
    return one, two
