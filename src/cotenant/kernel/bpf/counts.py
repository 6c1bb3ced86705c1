"""Histograms that a program keeps: the bounds it is given, and what was added between two reads."""

import functools
import math
import struct
from array import array

from cotenant.units.histogram import BUCKETS_PER_OCTAVE, MAX_BUCKET, bucket_of

BUCKETS = MAX_BUCKET + 1
BOUNDS = 512
"""Room in the programs' table (``bpf/bucket.h``); what no bucket uses holds the largest number."""
HISTOGRAM_BYTES = 4 * BUCKETS

_UNREACHABLE = 2**64 - 1
_CHUNK = 32


@functools.cache
def bounds_ns() -> tuple[int, ...]:
    """Return, for each bucket, the largest whole number of nanoseconds whose microseconds it holds."""
    return tuple(_bound_ns(bucket) for bucket in range(MAX_BUCKET)) + (_UNREACHABLE,) * (BOUNDS - MAX_BUCKET)


def _bound_ns(bucket: int) -> int:
    low = math.floor(1000 * 2 ** (bucket / BUCKETS_PER_OCTAVE) * (1 - 1e-8))
    high = math.ceil(1000 * 2 ** (bucket / BUCKETS_PER_OCTAVE) * (1 + 1e-8)) + 1
    while high - low > 1:
        middle = (low + high) // 2
        if bucket_of(middle / 1000) <= bucket:
            low = middle
        else:
            high = middle
    return low


def pack_bounds() -> bytes:
    """Return the bounds as the programs' table."""
    return struct.pack(f"={BOUNDS}Q", *bounds_ns())


def added(new: bytes, old: bytes | None) -> dict[int, int]:
    """Return what a histogram of 32-bit counters gained, by bucket. A counter that wrapped gained across the wrap."""
    now = array("I", new)
    if old is None:
        return {bucket: count for bucket, count in enumerate(now) if count}
    gained: dict[int, int] = {}
    before = array("I", old)
    for start in range(0, BUCKETS, _CHUNK):
        if new[4 * start : 4 * (start + _CHUNK)] == old[4 * start : 4 * (start + _CHUNK)]:
            continue
        for bucket in range(start, min(start + _CHUNK, BUCKETS)):
            difference = (now[bucket] - before[bucket]) & 0xFFFF_FFFF
            if difference:
                gained[bucket] = difference
    return gained


def merge(into: dict[int, int], gained: dict[int, int]) -> None:
    """Add one histogram's counts to another's."""
    for bucket, count in gained.items():
        into[bucket] = into.get(bucket, 0) + count
