import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.api.reading import Row
from cotenant.scheduler import scores

ratios = st.floats(0, 1)


def row(level: float, coverage: float = 1.0) -> Row:
    return Row(node="n", level=level, coverage=coverage)


@pytest.mark.parametrize(
    ("level", "score"), [(0, 10), (0.04, 10), (0.05, 10), (0.06, 9), (0.45, 6), (0.5, 5), (0.55, 5), (0.95, 1), (1, 0)]
)
def test_rounding_is_half_up(level: float, score: int) -> None:
    assert scores.kube_scores(scores.effective_levels([row(level)], "default")) == [score]


def test_a_half_is_rounded_up_however_the_level_came_about() -> None:
    for level in range(101):
        for coverage in range(0, 101, 4):
            rows = [row(level / 100, coverage / 100), row(0.2)]
            mean = (Fraction(level, 100) + Fraction(2, 10)) / 2
            share = Fraction(coverage, 100)
            exact = 10 * (1 - share * Fraction(level, 100) - (1 - share) * mean) + Fraction(1, 2)
            assert scores.kube_scores(scores.effective_levels(rows, "default"))[0] == math.floor(exact)


@given(st.lists(st.one_of(st.none(), st.builds(row, ratios, ratios)), max_size=20))
@settings(max_examples=80)
def test_effective_levels_stay_between_the_level_and_the_mean(rows: list[Row | None]) -> None:
    levels = [found.level for found in rows if found is not None and found.level is not None]
    mean = sum(levels) / len(levels) if levels else 0.0
    for found, effective in zip(rows, scores.effective_levels(rows, "default"), strict=True):
        level = mean if found is None or found.level is None else found.level
        assert min(level, mean) - 1e-9 <= effective <= max(level, mean) + 1e-9


@given(st.lists(ratios, min_size=1, max_size=20))
@settings(max_examples=80)
def test_scores_are_in_range_and_fall_as_levels_rise(levels: list[float]) -> None:
    ordered = sorted(levels)
    given_scores = scores.kube_scores(scores.effective_levels([row(level) for level in ordered], "default"))
    assert all(isinstance(score, int) and 0 <= score <= 10 for score in given_scores)
    assert given_scores == sorted(given_scores, reverse=True)
