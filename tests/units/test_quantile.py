import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.units import quantile
from cotenant.units.quantile import BadHistogram, Classic, Estimate, Native

INF = math.inf
EXAMPLES = settings(max_examples=60)
qs = st.sampled_from([0.0, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0])
bounds = st.lists(st.integers(1, 50), min_size=1, max_size=8, unique=True).map(sorted)


def classic(pairs: dict[float, float]) -> Classic:
    return Classic.of(pairs.items())


def naive(buckets: list[tuple[float, int]], q: float) -> Fraction | None:
    """The quantile by laying out every value: bucket by bucket, k values at equal distances, the last at its bound."""
    laid: list[Fraction] = []
    below, lower = 0, Fraction(0)
    for bound, cumulative in buckets:
        inside = cumulative - below
        if bound < INF:
            laid += [lower + (Fraction(bound) - lower) * (i + 1) / inside for i in range(inside)]
            lower = Fraction(bound)
        else:
            laid += [Fraction(-1)] * inside
        below = cumulative
    if not laid:
        return None
    rank = Fraction(q * len(laid))
    at = math.ceil(rank)
    if at == 0:
        return None  # before the first value: the reference does not say where
    value = laid[at - 1]
    if value < 0:
        return Fraction(buckets[-2][0])
    before = laid[at - 2] if at >= 2 and laid[at - 2] >= 0 else Fraction(0)
    starts = [Fraction(0), *(Fraction(b) for b, _ in buckets[:-1] if b < value)]
    return max(before, max(starts)) + (value - max(before, max(starts))) * (rank - (at - 1))


@EXAMPLES
@given(bounds, st.data(), qs)
def test_a_classic_quantile_is_that_of_values_spread_evenly_in_their_buckets(
    edges: list[int], data: st.DataObject, q: float
) -> None:
    inside = data.draw(st.lists(st.integers(0, 9), min_size=len(edges) + 1, max_size=len(edges) + 1))
    cumulative = [sum(inside[: i + 1]) for i in range(len(inside))]
    buckets = list(zip([*map(float, edges), INF], cumulative, strict=True))
    expected = naive(buckets, q)
    got = Classic.of(buckets).quantile(q)
    if sum(inside) == 0:
        assert got is None
    elif expected is not None:
        assert got is not None
        assert got.value == pytest.approx(float(expected))
        assert got.at_least == (math.ceil(q * sum(inside)) > cumulative[-2])


@pytest.mark.parametrize(
    ("pairs", "q", "expected"),
    [
        # Prometheus' own arithmetic, worked by hand.
        ({0.1: 50, 0.2: 90, 1.0: 100, INF: 100}, 0.5, Estimate(0.1)),
        ({0.1: 50, 0.2: 90, 1.0: 100, INF: 100}, 0.7, Estimate(0.15)),
        ({0.1: 50, 0.2: 90, 1.0: 100, INF: 100}, 0.99, Estimate(0.2 + 0.8 * 0.9)),
        ({0.1: 50, 0.2: 90, 1.0: 90, INF: 100}, 0.99, Estimate(1.0, at_least=True)),
        ({-5.0: 4, 0.0: 4, 1.0: 8, INF: 8}, 0.1, Estimate(-5.0)),
        ({0.1: 0, INF: 0}, 0.99, None),
        ({0.1: 10, INF: 10}, 0.0, Estimate(0.0)),
    ],
)
def test_worked_classic_quantiles(pairs: dict[float, float], q: float, expected: Estimate | None) -> None:
    got = classic(pairs).quantile(q)
    if expected is None:
        assert got is None
    else:
        assert got is not None
        assert got.value == pytest.approx(expected.value)
        assert got.at_least == expected.at_least


def test_what_is_no_classic_histogram_is_refused() -> None:
    for pairs in ([(0.1, 1)], [(0.1, 1), (0.2, 2)], [(INF, 3)], [(0.1, -1), (INF, 1)], [(math.nan, 1), (INF, 1)]):
        with pytest.raises(BadHistogram):
            Classic.of(pairs)


def test_equal_bounds_add_up_and_noise_does_not_make_counts_fall() -> None:
    got = Classic.of([(1.0, 2), (1.0, 3), (2.0, 4.9999999999999), (INF, 6)])
    assert got == Classic((1.0, 2.0, INF), (5, 5, 6))


def test_a_restart_counts_from_zero_and_missing_buckets_leave_the_common_ones() -> None:
    before, after = classic({1: 5, 2: 8, INF: 9}), classic({1: 7, 2: 12, INF: 15})
    assert after.since(before) == classic({1: 2, 2: 4, INF: 6})
    restarted = classic({1: 2, 2: 3, INF: 3})
    assert restarted.since(before) == restarted
    fewer = classic({2: 12, INF: 15})
    assert fewer.since(before) == classic({2: 4, INF: 6})
    assert classic({4: 12, INF: 15}).since(before) == classic({4: 12, INF: 15})


def test_a_sum_keeps_the_bounds_that_all_have() -> None:
    assert classic({1: 5, 2: 8, INF: 9}).plus(classic({1: 1, 3: 8, INF: 9})) == classic({1: 6, INF: 18})
    with pytest.raises(BadHistogram, match="share no bucket"):
        classic({1: 5, INF: 9}).plus(classic({2: 1, INF: 9}))
    with pytest.raises(BadHistogram, match="cannot be added"):
        quantile.total([classic({1: 5, INF: 9}), Native.of(0, 1, {1: 1})])
    assert quantile.total([]) is None


# --- native ---------------------------------------------------------------------------------------------------------


def native_of(values: list[float], schema: int, zero_threshold: float = 0.0) -> Native:
    """The reference's way of counting: by trying the bounds."""
    positive: dict[int, float] = {}
    negative: dict[int, float] = {}
    zero = 0
    base = 2.0 ** (2.0**-schema)
    for value in values:
        if abs(value) <= zero_threshold:
            zero += 1
            continue
        index = math.ceil(math.log(abs(value), base) - 1e-9)
        side = positive if value > 0 else negative
        side[index] = side.get(index, 0) + 1
    return Native.of(schema, len(values), positive, zero, zero_threshold, negative)


@EXAMPLES
@given(st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=80), st.integers(-1, 5), qs)
def test_a_native_quantile_is_in_the_bucket_of_the_ranked_value(values: list[float], schema: int, q: float) -> None:
    got = native_of(values, schema).quantile(q)
    ranked = sorted(values)[max(math.ceil(q * len(values)), 1) - 1]
    base = 2.0 ** (2.0**-schema)
    assert got is not None
    assert ranked / base * (1 - 1e-6) <= got.value <= ranked * base * (1 + 1e-6)
    assert not got.at_least


@EXAMPLES
@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=60), st.integers(0, 4))
def test_native_quantiles_rise_with_q(values: list[float], schema: int) -> None:
    histogram = native_of(values, schema, zero_threshold=1e-3)
    found = [histogram.quantile(q) for q in (0.0, 0.25, 0.5, 0.75, 0.99, 1.0)]
    assert all(one is not None for one in found)
    numbers = [one.value for one in found if one is not None]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize(
    ("histogram", "q", "expected"),
    [
        # One bucket (1, 2]: the middle by logarithm is √2; a linear reading would say 1.5.
        (Native.of(0, 10, {1: 10}), 0.5, 2**0.5),
        (Native.of(0, 10, {1: 5, 2: 5}), 0.75, 2**1.5),
        (Native.of(1, 10, {1: 10}), 1.0, 2**0.5),
        # Zero bucket: from 0 where there are positive values alone; both sides where nothing else is known.
        (Native.of(0, 10, {1: 5}, zero_count=5, zero_threshold=0.1), 0.25, 0.05),
        (Native.of(0, 10, {}, zero_count=10, zero_threshold=0.1), 0.25, -0.05),
        (Native.of(0, 10, {}, zero_count=5, zero_threshold=0.1, negative={1: 5}), 0.75, -0.05),
        (Native.of(0, 4, {}, negative={1: 4}), 0.5, -(2**0.5)),
    ],
)
def test_worked_native_quantiles(histogram: Native, q: float, expected: float) -> None:
    got = histogram.quantile(q)
    assert got is not None
    assert got.value == pytest.approx(expected)


def test_native_quantiles_that_are_not_known() -> None:
    assert Native.of(0, 0, {}).quantile(0.5) is None
    assert Native.of(0, 10, {1: 5}).quantile(0.99) is None  # half of the values are NaN
    overflow = Native.of(-4, 2, {0: 1, 65: 1}).quantile(1.0)
    assert overflow is not None
    assert overflow.at_least


@EXAMPLES
@given(st.lists(st.floats(-50, 50), max_size=40), st.lists(st.floats(-50, 50), max_size=40), st.integers(0, 3))
def test_native_since_undoes_plus(first: list[float], more: list[float], schema: int) -> None:
    before, after = native_of(first, schema, 1e-3), native_of(first + more, schema, 1e-3)
    assert after.since(before) == native_of(more, schema, 1e-3)
    assert before.plus(native_of(more, schema, 1e-3)) == after


@EXAMPLES
@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=40), st.integers(1, 5), st.integers(0, 4))
def test_a_lower_resolution_is_what_counting_there_gives(values: list[float], schema: int, lower: int) -> None:
    coarse = native_of(values, schema).at_schema(min(schema, lower))
    assert coarse == native_of(values, min(schema, lower))


@EXAMPLES
@given(st.lists(st.floats(1e-3, 1e3), max_size=40), st.floats(0, 10), st.floats(0, 10))
def test_unlike_zero_buckets_add_up_to_all_values(values: list[float], one: float, other: float) -> None:
    both = native_of(values, 2, one).plus(native_of(values, 2, other))
    assert both.count == 2 * len(values)
    assert both.zero_count + sum(both.positive.values()) == 2 * len(values)
    assert both.zero_threshold >= max(one, other)


def test_a_native_restart_counts_from_zero() -> None:
    before, restarted = Native.of(0, 10, {1: 10}), Native.of(0, 12, {2: 12})
    assert restarted.since(before) == restarted
    assert quantile.since(Native.of(0, 1, {1: 1}), classic({1: 1, INF: 1})) == Native.of(0, 1, {1: 1})


@pytest.mark.parametrize(
    ("schema", "count", "positive"),
    [
        (9, 1, {1: 1.0}),
        (0, 1, {1: 2.0}),
        (0, 1, {1: -1.0}),
        (0, math.inf, {1: 1.0}),
        (0, 9e9, dict.fromkeys(range(2001), 1.0)),
    ],
)
def test_what_is_no_native_histogram_is_refused(schema: int, count: float, positive: dict[int, float]) -> None:
    with pytest.raises(BadHistogram):
        Native.of(schema, count, positive)
