import math

import pytest

from cotenant.latency import window
from cotenant.latency.window import Increases, quantiles_of
from cotenant.model.latency import P50, P99, P999
from cotenant.units.quantile import Classic, Native

INF = math.inf


def fast(count: float, slow: float = 0.0) -> Classic:
    """So many requests in (0, 0.1] s and so many in (0.1, 1]."""
    return Classic.of([(0.1, count), (1.0, count + slow), (INF, count + slow)])


def seconds_of(sources: list[Increases], now: float, q: float = P99) -> float | None:
    quantiles, _ = quantiles_of(sources, now)
    return next(one.seconds for one in quantiles if one.quantile == q)


def test_a_quantile_needs_one_request_beyond_it() -> None:
    assert [window.least_requests(q) for q in (P50, P99, P999)] == [10, 100, 1000]
    source = Increases(1.0)
    source.take(0.0, {(): fast(0)})
    source.take(1.0, {(): fast(99)})
    quantiles, rate = quantiles_of([source], 1.0)
    assert {one.quantile: one.missing for one in quantiles} == {P50: None, P99: "too_few", P999: "too_few"}
    assert rate == 99
    source.take(2.0, {(): fast(100)})
    assert seconds_of([source], 2.0) == pytest.approx(0.099)


def test_the_short_window_answers_first_and_the_long_one_where_it_holds_too_few() -> None:
    source = Increases(1.0)
    for second in range(31):
        source.take(float(second), {(): fast(20 * second)})
    quantiles, rate = quantiles_of([source], 30.0)
    assert {one.quantile: one.window_seconds for one in quantiles} == {P50: 10, P99: 10, P999: None}
    assert rate == pytest.approx(20)
    for second in range(31, 61):
        source.take(float(second), {(): fast(20 * second)})
    quantiles, _ = quantiles_of([source], 60.0)
    assert {one.quantile: one.window_seconds for one in quantiles} == {P50: 10, P99: 10, P999: 60}


def test_a_change_shows_within_the_short_window() -> None:
    source = Increases(1.0)
    for second in range(20):
        source.take(float(second), {(): fast(100 * second)})
    assert seconds_of([source], 19.0) == pytest.approx(0.099)
    source.take(20.0, {(): fast(1900, slow=100)})
    slow = seconds_of([source], 20.0)
    assert slow is not None
    assert slow > 0.8
    for second in range(21, 31):
        source.take(float(second), {(): fast(1900 + 100 * (second - 20), slow=100)})
    assert seconds_of([source], 30.0) == pytest.approx(0.099)


def test_what_came_in_a_gap_is_in_no_window_it_may_lie_outside_of() -> None:
    source = Increases(1.0)
    source.take(0.0, {(): fast(0)})
    source.take(40.0, {(): fast(0, slow=5000)})  # nobody looked for 40 s
    source.take(41.0, {(): fast(2000, slow=5000)})
    quantiles, _ = quantiles_of([source], 41.0)
    assert {one.quantile: one.window_seconds for one in quantiles} == {P50: 10, P99: 10, P999: 10}
    assert seconds_of([source], 41.0) == pytest.approx(0.099)


def test_a_restart_and_a_new_series_count_from_zero_and_a_lost_one_counts_nothing() -> None:
    source = Increases(1.0)
    source.take(0.0, {(("a", "1"),): fast(5000), (("a", "2"),): fast(9000)})
    source.take(1.0, {(("a", "1"),): fast(200)})  # restarted; the other is gone
    assert quantiles_of([source], 1.0)[1] == 200
    source.take(2.0, {(("a", "1"),): fast(200), (("a", "3"),): fast(50)})
    assert quantiles_of([source], 2.0)[1] == pytest.approx(125)


def test_unknown_always_has_its_reason() -> None:
    assert quantiles_of([], 0.0)[0][0].missing == "not_running"
    source = Increases(1.0)
    assert quantiles_of([source], 0.0)[0][0].missing == "stale"
    source.take(0.0, {(): fast(0)})
    assert quantiles_of([source], 0.0)[0][0].missing == "first_sample"
    source.take(1.0, {(): fast(0)})
    assert quantiles_of([source], 1.0) == (window.unknown("too_few"), 0.0)
    assert quantiles_of([source], 30.0)[0][0].missing == "stale"
    other = Increases(1.0)
    other.take(0.0, {(): Native.of(0, 0, {})})
    other.take(1.0, {(): Native.of(0, 500, {1: 500})})
    source.take(1.5, {(): fast(500)})
    assert quantiles_of([source, other], 2.0)[0][0].missing == "malformed"


def test_processes_are_taken_together_and_a_silent_one_hides_no_slow_requests() -> None:
    calm, slow = Increases(1.0), Increases(1.0)
    for source, counts in ((calm, fast(900)), (slow, fast(0, slow=100))):
        source.take(0.0, {(): fast(0)})
        source.take(1.0, {(): counts})
    together = seconds_of([calm, slow], 1.0)
    assert together is not None
    assert together > 0.8
    calm.take(9.0, {(): fast(900)})
    assert seconds_of([calm, slow], 9.0) is None


def test_rates_of_a_query_need_as_many_requests() -> None:
    quantiles, rate = window.of_rates([Classic.of([(0.1, 2.0), (INF, 2.0)])], 60.0)
    assert rate == 2.0
    assert {one.quantile: one.missing for one in quantiles} == {P50: None, P99: None, P999: "too_few"}
    assert window.of_rates([], 60.0)[0][0].missing == "not_running"
