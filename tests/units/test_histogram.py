import json

import pytest
from ddsketch import DDSketch
from hypothesis import given
from hypothesis import strategies as st

from cotenant.units import histogram
from cotenant.units.histogram import Histogram

values = st.lists(st.floats(0, 1e9), min_size=1, max_size=200)


@given(values, st.sampled_from([0.5, 0.95, 0.99]))
def test_a_quantile_is_within_half_a_bucket_of_the_ranked_value(sample: list[float], q: float) -> None:
    ranked = sorted(sample)[max(0, -(-int(q * 100) * len(sample) // 100) - 1)]
    got = Histogram.of(sample).quantile(q)
    assert got is not None
    assert max(ranked, 1) / 2 ** (1 / 16) * 0.999 <= got <= max(ranked, 1) * 2 ** (1 / 16) * 1.001


@given(st.lists(st.floats(2, 1e7), min_size=50, max_size=300))
def test_agrees_with_ddsketch(sample: list[float]) -> None:
    sketch = DDSketch(relative_accuracy=0.01)
    for value in sample:
        sketch.add(value)
    ours, theirs = Histogram.of(sample).quantile(0.0), sketch.get_quantile_value(0.0)
    assert ours == pytest.approx(theirs, rel=0.06)
    ours, theirs = Histogram.of(sample).quantile(1.0), sketch.get_quantile_value(1.0)
    assert ours == pytest.approx(theirs, rel=0.06)


@given(values, values)
def test_merging_is_counting_together(left: list[float], right: list[float]) -> None:
    merged = Histogram.of(left)
    merged.merge(Histogram.of(right))
    assert merged == Histogram.of(left + right)


@given(values, st.floats(0, 1))
def test_json_is_exact(sample: list[float], factor: float) -> None:
    ours = Histogram.of(sample)
    ours.decay(factor)
    assert Histogram.from_json(json.loads(json.dumps(ours.to_json()))) == ours


@pytest.mark.parametrize("counts", [{"x": 1}, {"-1": 1}, {"0": -1}, {"0": float("nan")}, {"99999": 1}])
def test_bad_json_is_refused(counts: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"."):
        Histogram.from_json(counts)


def test_an_empty_histogram_has_no_quantile() -> None:
    assert Histogram().quantile(0.99) is None


@given(st.floats(1.01, 1e9))
def test_a_bucket_holds_its_values(value: float) -> None:
    bucket = histogram.bucket_of(value)
    assert histogram.upper_bound(bucket - 1) <= value * 1.000001
    assert value <= histogram.upper_bound(bucket) * 1.000001


def test_what_was_merged_can_be_taken_back() -> None:
    first, second = Histogram.of([1, 90, 90]), Histogram.of([90, 5000])
    both = Histogram.of([1, 90, 90])
    both.merge(second)
    both.subtract(first)
    assert both == second
    both.subtract(second)
    assert both.quantile(0.5) is None


def test_a_bucket_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="given twice"):
        Histogram.from_json({"1": 1, "01": 1})
