"""The programs' buckets are Python's: `bpf/bucket.h`, compiled for this machine, is asked the same questions."""

import ctypes
import pathlib
import shutil
import struct
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.waiting import PATIENCE_SECONDS

from cotenant.kernel.bpf import counts
from cotenant.units import histogram

HEADER = pathlib.Path(__file__).parents[3] / "bpf" / "bucket.h"
LARGEST_NS = 2**63 - 1


@pytest.fixture(scope="module")
def bucket_of(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to build bpf/bucket.h with")
    directory = tmp_path_factory.mktemp("bucket")
    source, library = directory / "bucket.c", directory / "bucket.so"
    source.write_text(
        "typedef unsigned int __u32;\ntypedef unsigned long long __u64;\n"
        f'#include "{HEADER}"\n'
        "__u64 index_of(__u64 ns, const volatile __u64 *steps) { return bucket_of(ns, steps); }\n"
    )
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source], check=True, timeout=PATIENCE_SECONDS)
    function = ctypes.CDLL(str(library)).index_of
    function.argtypes = (ctypes.c_uint64, ctypes.c_void_p)
    function.restype = ctypes.c_uint64
    steps = counts.pack_steps()
    return lambda ns: function(ns, steps)


def last_ns(bucket: int) -> int:
    """Return the largest whole number of nanoseconds whose microseconds a bucket holds."""
    low, high = 999, 2**60
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if histogram.bucket_of(middle / 1000) <= bucket else (low, middle)
    return low


def test_each_bucket_ends_where_pythons_does(bucket_of):
    for bucket in range(histogram.MAX_BUCKET):
        last = last_ns(bucket)
        assert (bucket_of(last - 1), bucket_of(last), bucket_of(last + 1)) == (
            histogram.bucket_of((last - 1) / 1000),
            bucket,
            bucket + 1,
        )


@pytest.mark.parametrize("ns", [0, 1, 999, 1000, 1001, 1090, 1091, 2**40, 10**15, 2**50, 2**62, LARGEST_NS])
def test_edges(bucket_of, ns):
    assert bucket_of(ns) == histogram.bucket_of(ns / 1000)


@settings(max_examples=300)
@given(st.one_of(st.integers(0, 5000), st.integers(0, 10**9), st.integers(0, LARGEST_NS)))
def test_any_time(bucket_of, ns):
    assert bucket_of(ns) == histogram.bucket_of(ns / 1000)


def test_the_table_has_the_size_that_the_programs_expect():
    defined = dict(line.split()[1:3] for line in HEADER.read_text().splitlines() if line.startswith("#define B"))
    assert int(defined["BUCKETS"]) == counts.BUCKETS
    assert len(counts.steps()) == histogram.BUCKETS_PER_OCTAVE == 8


def histogram_bytes(**values: int) -> bytes:
    counters = [0] * counts.BUCKETS
    for name, count in values.items():
        counters[int(name[1:])] = count
    return struct.pack(f"={counts.BUCKETS}I", *counters)


@pytest.mark.parametrize(
    ("new", "old", "gained"),
    [
        (histogram_bytes(), None, {}),
        (histogram_bytes(b0=2, b320=1), None, {0: 2, 320: 1}),
        (histogram_bytes(b5=7), histogram_bytes(b5=7), {}),
        (histogram_bytes(b5=9, b320=4), histogram_bytes(b5=7, b320=1), {5: 2, 320: 3}),
        (histogram_bytes(b31=1, b32=1), histogram_bytes(), {31: 1, 32: 1}),
        (histogram_bytes(b5=1), histogram_bytes(b5=2**32 - 2), {5: 3}),
    ],
    ids=["nothing yet", "first read", "unchanged", "grown", "at a chunk's edge", "wrapped"],
)
def test_added(new, old, gained):
    assert counts.added(new, old) == gained


@settings(max_examples=50)
@given(
    st.dictionaries(st.integers(0, 320), st.integers(1, 2**31)), st.dictionaries(st.integers(0, 320), st.integers(1, 9))
)
def test_added_is_the_difference(before, more):
    after = dict(before)
    counts.merge(after, more)
    named = [{f"b{k}": v for k, v in values.items()} for values in (after, before)]
    assert counts.added(histogram_bytes(**named[0]), histogram_bytes(**named[1])) == more
