"""Histograms that a program keeps: the steps it is given, and what was added between two reads."""

import functools
import struct
from array import array

from cotenant.units.histogram import BUCKETS_PER_OCTAVE, MAX_BUCKET, bucket_of

BUCKETS = MAX_BUCKET + 1
HISTOGRAM_BYTES = 4 * BUCKETS

_CHUNK = 32


@functools.cache
def steps() -> tuple[int, ...]:
    """Return where buckets 1 to 8 end, in nanoseconds, scaled so that the leading bit is the 64th (``bpf/bucket.h``).

    They are looked for in the last octave, where whole nanoseconds are the finest share. The last bucket has no end.
    """
    octave = MAX_BUCKET // BUCKETS_PER_OCTAVE - 1
    last = _step(octave - 1, BUCKETS_PER_OCTAVE)
    return (*(_step(octave, bucket) for bucket in range(1, BUCKETS_PER_OCTAVE)), last)


def _step(octave: int, bucket: int) -> int:
    wanted = BUCKETS_PER_OCTAVE * octave + bucket
    low, high = 1000 << octave, 1000 << octave + 2
    while high - low > 1:
        middle = (low + high) // 2
        if bucket_of(middle / 1000) <= wanted:
            low = middle
        else:
            high = middle
    return (high << 64 - high.bit_length()) - 1


def pack_steps() -> bytes:
    """Return the steps as the programs' table."""
    return struct.pack(f"={BUCKETS_PER_OCTAVE}Q", *steps())


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
