import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.model import rate


@pytest.mark.parametrize(
    ("before", "after", "bits", "expected"),
    [
        (None, 5, None, "first_sample"),
        (5, 5, None, 0),
        (5, 9, None, 4),
        (9, 5, None, "reset"),
        (2**32 - 10, 5, 32, 15),
        (2**32 - 10, 5, None, "reset"),
        (100, 5, 32, "reset"),  # far from its end: not a wrap
        (2**40, 5, 32, "reset"),  # never was a 32-bit counter
    ],
)
def test_difference(before, after, bits, expected):
    assert rate.difference(before, after, bits) == expected


@given(st.integers(0, 2**64), st.integers(0, 2**64), st.sampled_from([None, 32, 64]))
def test_a_difference_is_never_negative(before, after, bits):
    grown = rate.difference(before, after, bits)
    assert grown == "reset" or grown >= 0


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [(None, 1.0, "first_sample"), (1.0, 2.5, 1.5), (2.0, 2.0, "reset"), (2.0, 1.0, "reset"), (1.0, 500.0, "stale")],
)
def test_elapsed(before, now, expected):
    assert rate.elapsed(before, now, 1.0) == expected


def test_counters_compare_with_the_last_period_only():
    counters = rate.Counters()
    counters.step("first_sample")
    assert counters.rate("a", 10) == "first_sample"
    counters.step(2.0)
    assert counters.rate("a", 16) == 3.0
    assert counters.rate("b", 1) == "first_sample"
    counters.step(2.0)
    assert counters.rate("b", "gone") == "gone"
    counters.step(2.0)
    assert counters.rate("a", 20) == "first_sample"  # not fed in the period before
