"""Contracts §3, sentence by sentence: from samples to values, indexes and levels."""

import itertools
from fractions import Fraction

import pytest
from tests.detect import samples
from tests.detect.samples import at, counts, io, psi, rule, run, series

from cotenant.detect import engine, errors, parser, reading, state

PSI = "psi.io_some_ratio 0.1 0.3 0.9"


# --- window, mean, unknown ---------------------------------------------------------------------------------------


def test_the_window_is_open_at_t_minus_w_and_closed_at_t() -> None:
    found = run(rule(PSI), series([1.0] + [0.0] * 10))
    assert io(found[9]).signals["psi.io_some_ratio"].value == pytest.approx(0.1)
    assert io(found[10]).signals["psi.io_some_ratio"].value == 0.0


def test_a_value_is_the_plain_mean_of_known_values() -> None:
    found = run(rule(PSI), series([0.1, None, 0.2, None, 0.6]))
    assert io(found[4]).signals["psi.io_some_ratio"].value == pytest.approx(0.3)


@pytest.mark.parametrize("known", [0, 1, 2])
def test_fewer_than_3_known_values_are_unknown(known: int) -> None:
    found = run(rule(PSI), series([0.5] * known + [None] * (3 - known)))
    assert io(found[2]).signals["psi.io_some_ratio"].value is None
    assert io(found[2]).index is None
    assert found[2].missing["psi.io_some_ratio"] == "too_few"


def test_a_gap_of_3_periods_is_bridged_and_a_longer_one_is_not() -> None:
    bridged = run(rule(PSI), [psi(second, 0.5) for second in (0, 1, 2, 5)])
    assert io(bridged[-1]).index is not None
    torn = run(rule(PSI), [psi(second, 0.5) for second in (0, 1, 2, 6)])
    assert io(torn[-1]).index is None
    assert torn[-1].missing["psi.io_some_ratio"] == "stale"


def test_a_gap_from_the_last_known_value_to_t_counts_too() -> None:
    found = run(rule(PSI), series([0.5, 0.5, 0.5, None, None, None, None]))
    assert [io(one).index is None for one in found] == [True, True, False, False, False, False, True]


def test_periods_are_the_samples_own() -> None:
    slow = rule(PSI, spec="  windowSeconds: 60\n")
    found = run(slow, [psi(second, 0.5, period_s=5.0) for second in (0, 5, 10, 25)])
    assert io(found[-1]).index is not None


def test_a_missing_reason_comes_from_the_sample_also_by_group() -> None:
    taken = [at(second, missing={"psi": "psi_disabled"}) for second in range(3)]
    assert run(rule(PSI), taken)[-1].missing == {
        "psi.io_some_ratio": "psi_disabled",
        "psi.memory_full_ratio": "psi_disabled",
    }


def test_nodes_are_apart() -> None:
    judge = engine.Engine(rule(PSI))
    for second in range(3):
        judge.evaluate(at(second, "a", psi={"io_some_ratio": 0.9}))
        other = judge.evaluate(at(second, "b", psi={"io_some_ratio": 0.0}))
    assert io(other).index == 0.0
    assert io(judge.evaluate(at(3, "a", psi={"io_some_ratio": 0.9}))).triggered
    judge.forget("a")
    assert io(judge.evaluate(at(4, "a", psi={"io_some_ratio": 0.9}))).triggered is None


def test_another_boot_starts_from_nothing() -> None:
    judge = engine.Engine(rule(PSI))
    for second in range(5):
        found = judge.evaluate(psi(second, 0.9))
    assert io(found).triggered
    found = judge.evaluate(psi(6, 0.9, boot_id="b2", uptime_s=3.0))
    assert (io(found).triggered, io(found).index) == (None, None)


def test_without_boot_ids_a_clock_that_steps_back_is_another_boot() -> None:
    found = run(rule(PSI), [psi(s, 0.9, boot_id=None) for s in (5, 6, 7, 8)] + [psi(1, 0.9, boot_id=None)])
    assert [io(one).triggered for one in found] == [None, None, False, True, None]


def test_within_a_boot_a_clock_that_steps_back_empties_the_window_only() -> None:
    found = run(rule(PSI), [psi(s, 0.9) for s in (5, 6, 7, 8, 1)])
    assert io(found[-1]).triggered
    assert io(found[-1]).index is None


def test_time_stands_in_for_uptime() -> None:
    found = run(rule(PSI), [psi(second, 0.9, uptime_s=None) for second in range(4)])
    assert io(found[3]).triggered
    with pytest.raises(errors.BadSamples, match="RFC 3339"):
        run(rule(PSI), [psi(0, 0.9, uptime_s=None, time="yesterday")])


# --- percentiles -------------------------------------------------------------------------------------------------

P99 = "block.p99_usec 5000 20000 100000"


def block(
    second: int, completions: int | None, p50: float | None = None, p99: float | None = None, **more: object
) -> object:
    return at(second, block={"completions": completions, "p50_usec": p50, "p99_usec": p99, **more})


def test_a_percentile_is_that_of_the_merged_histogram() -> None:
    # 1 % of all 1,000 requests is slow, all of them in one second: the mean of the seconds' p99 would be 9 ms.
    quiet, slow = counts(_100=98), counts(_100=107, _90000=11)
    taken = [block(s, 98, 100, 100, histogram=quiet) for s in range(9)] + [block(9, 118, 100, 90000, histogram=slow)]
    value = io(run(rule(P99), taken)[-1]).signals["block.p99_usec"].value
    assert value == pytest.approx(90_000, rel=0.05)


def test_what_left_the_window_left_the_merged_histogram() -> None:
    slow, quiet = counts(_90000=50), counts(_100=50)
    taken = [block(0, 50, histogram=slow)] + [block(s, 50, histogram=quiet) for s in range(1, 11)]
    assert io(run(rule(P99), taken)[-1]).signals["block.p99_usec"].value == pytest.approx(100, rel=0.05)


def test_without_histograms_it_is_the_mean_of_the_percentiles() -> None:
    found = run(rule(P99), [block(s, 50, 10, p99) for s, p99 in enumerate((10_000, 20_000, 60_000))])
    assert io(found[-1]).signals["block.p99_usec"].value == 30_000


def test_a_window_without_completions_is_known_with_index_0_and_not_triggered() -> None:
    found = run(rule(P99), [block(s, 0) for s in range(4)])[-1]
    state = io(found).signals["block.p99_usec"]
    assert (state.value, state.index) == (None, 0.0)
    assert (io(found).triggered, io(found).index, found.interference_level, found.bucket) == (False, 0.0, 0.0, "none")
    assert (found.coverage, found.missing.get("block.p99_usec")) == (1.0, None)


def test_few_completions_are_known_through_the_median_only() -> None:
    # One slow request of 20 is no tail.
    found = run(rule(P99), [block(s, 2, 100, 90_000, devices={"a": {"in_flight": 0}}) for s in range(10)])[-1]
    assert io(found).signals["block.p99_usec"].value == 100
    assert io(found).triggered is False
    slow = run(rule(P99), [block(s, 2, 30_000, 90_000) for s in range(10)])[-1]
    assert io(slow).triggered


def test_30_completions_make_the_percentile_known() -> None:
    assert io(run(rule(P99), [block(s, 3, 100, 90_000) for s in range(11)])[-1]).triggered
    assert not io(run(rule(P99), [block(s, 3, 100, 90_000) for s in range(9)])[-1]).triggered


@pytest.mark.parametrize("completions", [0, 1])
def test_a_hung_disk_is_known_through_its_oldest_request(completions: int) -> None:
    hung = [
        block(
            s,
            completions,
            100 if completions else None,
            devices={"a": {"in_flight": 1, "oldest_in_flight_usec": s * 1e6}},
        )
        for s in range(4)
    ]
    assert io(run(rule(P99), hung)[-1]).triggered


def test_what_waits_for_nobody_knows_how_long_is_unknown_not_calm() -> None:
    waiting = {"a": {"completions": 0, "in_flight": 7}, "b": {"completions": 0, "in_flight": 0}}
    assert io(run(rule(P99), [block(s, 0, devices=waiting) for s in range(5)])[-1]).index is None
    nobody = {"a": {"completions": 0, "in_flight": 0}, "b": {"completions": 0}}
    assert io(run(rule(P99), [block(s, 0, devices=nobody) for s in range(5)])[-1]).index == 0


def test_few_completions_without_a_median_are_too_few() -> None:
    found = run(rule(P99), [block(s, 2) for s in range(5)])[-1]
    assert io(found).index is None


def test_disk_statistics_count_completions_but_know_no_latency() -> None:
    taken = [at(s, block={"completions": 0 if s % 2 else 500}, missing={"block.p99_usec": "no_bpf"}) for s in range(10)]
    found = run(rule(P99), taken)[-1]
    assert io(found).index is None
    assert found.missing["block.p99_usec"] == "no_bpf"


def test_a_histogram_that_cannot_be_read_is_unknown() -> None:
    found = run(rule(P99), [block(s, 100, histogram={"x": 3}) for s in range(4)])[-1]
    assert io(found).index is None


def test_one_disk_may_be_named() -> None:
    by = rule("block.devices.vda.p99_usec 1 2 4, block.devices.vdb.in_flight 1 2 4")
    device = {"vda": {"completions": 50, "p99_usec": 3, "in_flight": 9}, "vdb": {"in_flight": 2}}
    found = run(by, [at(s, block={"devices": device}) for s in range(4)])[-1]
    assert io(found).signals["block.devices.vda.p99_usec"].value == 3
    assert io(found).signals["block.devices.vdb.in_flight"].index == pytest.approx(1 / 3)
    gone = run(by, [at(s, block={"devices": {}}) for s in range(4)])[-1]
    assert gone.missing["block.devices.vda.p99_usec"] == "gone"


# --- index, level, coverage, bucket ------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "index"), [(0.0, 0.0), (0.1, 0.0), (0.3, 0.25), (0.5, 0.5), (0.9, 1.0), (1.0, 1.0)])
def test_index_of_a_rising_signal(value: float, index: float) -> None:
    assert io(run(rule(PSI), series([value] * 3))[-1]).index == pytest.approx(index)


@pytest.mark.parametrize(("value", "index"), [(0.5, 0.0), (0.3, 0.0), (0.2, 0.5), (0.1, 1.0), (0.0, 1.0)])
def test_index_of_a_falling_signal(value: float, index: float) -> None:
    by = rule("memory.available_ratio 0.3 0.2 0.1")
    found = run(by, [at(s, memory={"available_ratio": value}) for s in range(4)])[-1]
    assert io(found).index == pytest.approx(index)
    assert io(found).triggered == (value <= 0.2)


def test_a_detections_index_is_the_largest_known() -> None:
    by = rule(PSI + ", cpu.steal_ratio 0 0.5 1, llc.mpki 1 2 3")
    found = run(by, [at(s, psi={"io_some_ratio": 0.3}, cpu={"steal_ratio": 0.4}) for s in range(3)])[-1]
    assert io(found).index == pytest.approx(0.4)
    assert io(found).signals["llc.mpki"].index is None


TWO = """\
    memoryPressure:
      weight: 3
      signals: [{signal: psi.memory_some_ratio, normal: 0, threshold: 0.5, saturation: 1}]
"""


def test_the_level_weighs_what_is_known_and_coverage_says_how_much_that_is() -> None:
    by = rule("psi.io_some_ratio 0 0.5 1", others=TWO)
    both = run(by, [at(s, psi={"io_some_ratio": 0.2, "memory_some_ratio": 0.6}) for s in range(3)])[-1]
    assert both.interference_level == pytest.approx((0.2 * 1 + 0.6 * 3) / 4)
    assert both.coverage == 1.0
    only = run(by, [at(s, psi={"io_some_ratio": 0.2}) for s in range(3)])[-1]
    assert only.interference_level == pytest.approx(0.2)
    assert only.coverage == 0.25
    none = run(by, [at(s) for s in range(3)])[-1]
    assert (none.interference_level, none.coverage, none.bucket) == (None, 0.0, "unknown")


def test_the_bucket_follows_the_largest_index_not_the_level() -> None:
    by = rule("psi.io_some_ratio 0 0.5 1", others=TWO)
    found = run(by, [at(s, psi={"io_some_ratio": 0.8, "memory_some_ratio": 0.0}) for s in range(3)])[-1]
    assert (found.interference_level, found.bucket) == (pytest.approx(0.2), "severe")


def test_an_index_at_the_bound_of_a_bucket_is_in_it_however_binary_rounds() -> None:
    bounds = {"low": Fraction(5, 100), "medium": Fraction(1, 4), "high": Fraction(1, 2), "severe": Fraction(3, 4)}
    for normal, value, saturation in itertools.combinations(range(20), 3):
        exact = Fraction(value - normal, saturation - normal)
        wanted = [name for name, bound in bounds.items() if exact >= bound][-1:] or ["none"]
        index = reading.index_of(value * 0.05, normal * 0.05, saturation * 0.05)
        assert [state.bucket_of(index)] == wanted
        assert state.bucket_after("none", index) == wanted[0]


def test_a_detection_without_weight_makes_no_level() -> None:
    text = samples.HEAD + "spec:\n  detections:\n    ioCongestion: {weight: 0, signals: [{signal: psi.io_some_ratio,"
    text += " normal: 0, threshold: 0.5, saturation: 1}]}\n    cpuContention: {enabled: false}\n"
    zero = parser.parse(text, "t.yaml")[0].rules
    found = run(zero, series([0.9] * 3))[-1]
    assert io(found).index == 0.9
    assert (found.interference_level, found.bucket, found.coverage) == (None, "unknown", 0.0)


def test_disabled_detections_do_not_appear() -> None:
    assert list(run(rule(PSI), series([0.5] * 3))[-1].detections) == ["ioCongestion"]


FALLBACK = rule("online.psi.io_some_ratio 0 0.5 1, cpu.steal_ratio 0 0.5 1", "psi.io_some_ratio 0 0.5 1")


def test_the_fall_back_is_used_only_while_no_online_entry_is_known() -> None:
    online = [at(s, online={"psi": {"io_some_ratio": 0.1}}, psi={"io_some_ratio": 0.9}) for s in range(3)]
    found = run(FALLBACK, online)[-1]
    assert (io(found).index, found.coverage) == (0.1, 1.0)
    assert "psi.io_some_ratio" not in io(found).signals


def test_known_only_through_its_fall_back_a_detection_counts_half() -> None:
    found = run(FALLBACK, series([0.9] * 3))[-1]
    assert (io(found).index, found.coverage, found.interference_level) == (0.9, 0.5, 0.9)


def test_with_another_signal_known_the_fall_back_adds_but_coverage_is_whole() -> None:
    taken = [at(s, psi={"io_some_ratio": 0.9}, cpu={"steal_ratio": 0.2}) for s in range(3)]
    found = run(FALLBACK, taken)[-1]
    assert (io(found).index, found.coverage) == (0.9, 1.0)


def test_a_list_without_online_entries_falls_back_when_none_is_known() -> None:
    by = rule("llc.mpki 1 2 3, cpu.steal_ratio 0 0.5 1", "psi.io_some_ratio 0 0.5 1")
    assert run(by, series([0.9] * 3))[-1].coverage == 0.5
    known = run(by, [at(s, psi={"io_some_ratio": 0.9}, cpu={"steal_ratio": 0.1}) for s in range(3)])[-1]
    assert (io(known).index, known.coverage) == (0.1, 1.0)


def test_a_list_of_fall_backs_alone() -> None:
    assert run(rule("", "psi.io_some_ratio 0 0.5 1"), series([0.9] * 3))[-1].coverage == 0.5
