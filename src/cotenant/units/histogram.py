"""One log histogram for every latency: bucket ratio 2^(1/8), mergeable, decaying, exact in JSON.

Bucket ``i`` ≥ 1 holds values in (2^((i-1)/8), 2^(i/8)]; bucket 0 holds values ≤ 1. The unit is the value's own
(microseconds everywhere in cotenant). A quantile is the geometric middle of its bucket, so its relative
error is at most 2^(1/16) - 1 = 4.4 %. Eight buckets an octave let eBPF index without floating point.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Self

BUCKETS_PER_OCTAVE = 8
MAX_BUCKET = BUCKETS_PER_OCTAVE * 40
"""2^40 µs is 12 days: a slower request than that is counted in the last bucket."""


_BUCKETS = {str(bucket): bucket for bucket in range(MAX_BUCKET + 1)}


def bucket_of(value: float) -> int:
    """Return the bucket of a value."""
    if value <= 1:
        return 0
    index = math.ceil(math.log2(value) * BUCKETS_PER_OCTAVE - 1e-9)
    return min(max(index, 1), MAX_BUCKET)


def upper_bound(bucket: int) -> float:
    """Return the largest value that the bucket holds."""
    return float(2 ** (bucket / BUCKETS_PER_OCTAVE))


def representative(bucket: int) -> float:
    """Return the value that stands for the bucket: its geometric middle, 1 for bucket 0."""
    return 1.0 if bucket == 0 else float(2 ** ((bucket - 0.5) / BUCKETS_PER_OCTAVE))


class Histogram:
    """Counts by bucket. Whole counts stay whole until :meth:`decay` is used."""

    __slots__ = ("_counts",)

    def __init__(self, counts: Mapping[int, float] | None = None) -> None:
        self._counts: dict[int, float] = {b: n for b, n in (counts or {}).items() if n > 0}

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """Return the histogram of some values."""
        histogram = cls()
        for value in values:
            histogram.add(value)
        return histogram

    @classmethod
    def from_json(cls, counts: Mapping[str, float]) -> Self:
        """Return the histogram whose :meth:`to_json` this is.

        :raises ValueError: if a key is not a bucket, or a count is negative or not finite.
        """
        try:
            parsed: dict[int, float] = {_BUCKETS[key]: count for key, count in counts.items()}
        except KeyError:
            parsed = {int(key): count for key, count in counts.items()}
        # All at once: each node's samples pass here once a second.
        if len(parsed) != len(counts):
            raise ValueError("histogram: a bucket is given twice")
        if parsed and not (min(parsed) >= 0 and max(parsed) <= MAX_BUCKET):
            raise ValueError(f"histogram: a bucket is not in 0..{MAX_BUCKET}")
        if parsed and not (min(parsed.values()) >= 0 and math.isfinite(sum(parsed.values()))):
            raise ValueError("histogram: a count is negative or not finite")
        return cls(parsed)

    def to_json(self) -> dict[str, float]:
        """Return counts by bucket number, ascending; exact, since :meth:`from_json` gives the same histogram back."""
        return {str(b): int(n) if n == int(n) else n for b, n in sorted(self._counts.items())}

    def add(self, value: float, count: float = 1) -> None:
        """Count a value."""
        bucket = bucket_of(value)
        self._counts[bucket] = self._counts.get(bucket, 0) + count

    def merge(self, other: "Histogram") -> None:
        """Add another histogram's counts to this one."""
        counts = self._counts
        for bucket, count in other._counts.items():
            counts[bucket] = counts.get(bucket, 0) + count

    def subtract(self, other: "Histogram") -> None:
        """Take back another histogram's counts that were merged before; exact for whole counts."""
        counts = self._counts
        for bucket, count in other._counts.items():
            left = counts.get(bucket, 0) - count
            if left > 1e-9:
                counts[bucket] = left
            else:
                counts.pop(bucket, None)

    def decay(self, factor: float) -> None:
        """Multiply every count by a factor in 0..1 and forget what falls below a thousandth."""
        self._counts = {b: n * factor for b, n in self._counts.items() if n * factor >= 1e-3}

    @property
    def total(self) -> float:
        """The number of values."""
        return sum(self._counts.values())

    def quantile(self, q: float) -> float | None:
        """Return the value below which a share q (0..1) of the values lies, or None when there is none.

        The nearest-rank rule: the smallest bucket at which the count so far reaches q of the total.
        """
        total = self.total
        if total <= 0:
            return None
        rank, seen, last = q * total, 0.0, 0
        for bucket, count in sorted(self._counts.items()):
            seen += count
            last = bucket
            if seen >= rank - 1e-9:
                break
        return representative(last)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Histogram) and self._counts == other._counts

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Histogram({dict(sorted(self._counts.items()))})"
