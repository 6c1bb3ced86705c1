"""How much of the scheduler's work is looked at."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.kernel.bpf import run_queue
from cotenant.kernel.bpf.run_queue import next_shift


@pytest.mark.parametrize(
    ("shift", "sampled", "expected"),
    [(0, 100, 0), (0, 1000, 0), (0, 1001, 1), (0, 64_000, 6), (3, 600, 3), (3, 249, 2), (3, 0, 0), (10, 1e9, 10)],
)
def test_next_shift(shift, sampled, expected):
    assert next_shift(shift, sampled, 1000) == expected


@given(st.floats(0, 1e6))
def test_a_steady_load_settles(switches_per_sec):
    shift = 0
    for _ in range(run_queue.MAX_SAMPLING_SHIFT + 1):
        shift = next_shift(shift, switches_per_sec / 2**shift, 1000)
    assert next_shift(shift, switches_per_sec / 2**shift, 1000) == shift
    assert switches_per_sec / 2**shift <= 1000
