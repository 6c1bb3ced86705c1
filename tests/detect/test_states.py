"""Contracts §3, sentence by sentence: when a detection and a hard limit are entered and left."""

import pytest
from tests.detect.samples import at, counts, io, psi, rule, run, series

from cotenant.detect import engine, presets

# --- entering and leaving ----------------------------------------------------------------------------------------

FAST = rule("psi.io_some_ratio 0.1 0.3 0.9", spec="  windowSeconds: 3\n")
"""A window of 3 s: three equal values make a mean that moves at once."""


def triggered(values: list[float | None], by: object = FAST) -> list[bool | None]:
    return [io(one).triggered for one in run(by, series(values))]


def test_enters_at_the_threshold_in_two_consecutive_evaluations() -> None:
    assert triggered([0.3] * 5) == [None, None, False, True, True]
    assert triggered([0.29] * 6) == [None, None] + [False] * 4


def test_an_evaluation_below_the_threshold_starts_the_count_again() -> None:
    # Means from the third on: 0.30, 0.27, 0.30, 0.30.
    assert triggered([0.3, 0.3, 0.3, 0.21, 0.39, 0.3, 0.3]) == [None, None, False, False, False, True, True]


def test_the_signal_at_its_threshold_need_not_be_the_same_one() -> None:
    by = rule("psi.io_some_ratio 0.1 0.3 0.9, psi.memory_some_ratio 0.1 0.3 0.9", spec="  windowSeconds: 3\n")
    taken = [
        at(s, psi={"io_some_ratio": io, "memory_some_ratio": mem})
        for s, (io, mem) in enumerate([(0.3, 0.0)] * 3 + [(0.0, 0.9)] * 1)
    ]
    assert io(run(by, taken)[-1]).triggered


def test_leaves_after_ten_seconds_of_calm_and_twenty_of_hold() -> None:
    # Entered at 3; calm (mean 0.17) from 42 on.
    states = triggered([0.5] * 41 + [0.0] * 30)
    assert states.index(True) == 3
    assert next(second for second, state in enumerate(states) if state is False and second > 3) == 52


def test_holds_for_twenty_seconds_however_calm() -> None:
    states = triggered([0.5] * 4 + [0.0] * 40)
    assert states.index(True) == 3
    assert states[3:].index(False) + 3 == 23


def test_calm_is_past_leave_ratio_times_threshold_not_at_it() -> None:
    assert triggered([0.5] * 4 + [0.239] * 40)[-1] is False
    assert triggered([0.5] * 4 + [0.24] * 40)[-1] is True


def test_calm_is_never_asked_below_normal() -> None:
    by = rule("psi.io_some_ratio 0.29 0.3 0.9", spec="  windowSeconds: 3\n")
    assert triggered([0.5] * 4 + [0.289] * 40, by)[-1] is False
    assert triggered([0.5] * 4 + [0.29] * 40, by)[-1] is True


def test_calm_of_a_falling_signal() -> None:
    def last(value: float, normal: float = 0.4) -> bool | None:
        by = rule(f"memory.available_ratio {normal} 0.2 0.1", spec="  windowSeconds: 3\n")
        taken = [at(s, memory={"available_ratio": 0.1 if s < 4 else value}) for s in range(44)]
        return io(run(by, taken)[-1]).triggered

    assert last(0.251) is False
    assert last(0.25) is True
    assert last(0.221, normal=0.22) is False
    assert last(0.22, normal=0.22) is True


def test_a_break_in_the_calm_starts_its_time_again() -> None:
    # Calm from 42 on, but for the mean of 0.3 that ends at 49 and has left the window at 50.
    states = triggered([0.5] * 41 + [0.0] * 6 + [0.9] + [0.0] * 30)
    assert next(second for second, state in enumerate(states) if state is False and second > 3) == 60


def test_every_known_signal_must_be_calm() -> None:
    by = rule("psi.io_some_ratio 0.1 0.3 0.9, psi.memory_some_ratio 0.1 0.3 0.9", spec="  windowSeconds: 3\n")
    taken = [at(s, psi={"io_some_ratio": 0.5 if s < 4 else 0.0, "memory_some_ratio": 0.28}) for s in range(60)]
    assert io(run(by, taken)[-1]).triggered


def test_unknown_while_triggered_stops_the_timers() -> None:
    # Calm from 42 on, so that it would leave at 52.
    values: list[float | None] = [0.5] * 41 + [0.0] * 4 + [None] * 6 + [0.0] * 20
    found = run(rule("psi.io_some_ratio 0.1 0.3 0.9", spec="  windowSeconds: 3\n"), series(values))
    unknown = [s for s, one in enumerate(found) if s > 2 and io(one).index is None]
    left = next(s for s, one in enumerate(found) if io(one).triggered is False and s > 3)
    assert all(io(found[s]).triggered for s in unknown)
    assert unknown
    assert left == 52 + len(unknown)


def test_after_ten_seconds_with_nothing_known_triggered_is_null() -> None:
    found = run(FAST, series([0.5] * 5 + [None] * 14))
    last_known = max(s for s, one in enumerate(found) if io(one).index is not None)
    assert [io(one).triggered for one in found[last_known : last_known + 10]] == [True] * 10
    assert io(found[last_known + 10]).triggered is None


def test_samples_that_stop_leave_nothing_known_either() -> None:
    found = run(FAST, [*series([0.5] * 5), psi(60, 0.5)])
    assert io(found[-1]).triggered is None


def test_at_the_start_nothing_is_decided() -> None:
    assert triggered([0.0] * 3) == [None, None, False]


def test_state_survives_a_change_to_fall_back_signals() -> None:
    by = rule("online.psi.io_some_ratio 0.1 0.3 0.9", "psi.io_some_ratio 0.1 0.3 0.9", spec="  windowSeconds: 3\n")
    taken = [at(s, online={"psi": {"io_some_ratio": 0.5}}, psi={"io_some_ratio": 0.26}) for s in range(5)]
    taken += [at(s, psi={"io_some_ratio": 0.26}) for s in range(5, 40)]
    found = run(by, taken)
    assert [io(one).triggered for one in found[3:]] == [True] * 37
    assert found[-1].coverage == 0.5


def test_state_and_windows_survive_a_reload_of_rules() -> None:
    judge = engine.Engine(FAST)
    for one in series([0.5] * 5):
        judge.evaluate(one)
    judge.replace(rule("psi.io_some_ratio 0.1 0.6 0.9, cpu.steal_ratio 0 0.5 1", spec="  windowSeconds: 5\n"))
    found = judge.evaluate(psi(5, 0.55))
    assert io(found).triggered
    assert io(found).signals["psi.io_some_ratio"].value == pytest.approx((0.5 * 3 + 0.55) / 4)
    assert io(found).signals["psi.io_some_ratio"].threshold == 0.6
    assert judge.in_force.window_seconds == 5


def test_a_reload_keeps_merged_histograms_and_hard_limits() -> None:
    judge = engine.Engine(presets.get("mco"))
    taken = [
        at(s, psi={"memory_full_ratio": 0.1}, block={"completions": 50, "histogram": counts(_90000=50)})
        for s in range(10)
    ]
    for one in taken:
        found = judge.evaluate(one)
    assert found.hard == ["psiMemoryFull"]
    judge.replace(presets.get("mco"))
    found = judge.evaluate(at(10, psi={"memory_full_ratio": 0.1}, block={"completions": 0, "histogram": {}}))
    assert found.hard == ["psiMemoryFull"]
    assert io(found).signals["block.p99_usec"].value == pytest.approx(90_000, rel=0.05)


# --- hard limits -------------------------------------------------------------------------------------------------


def hard_rules(limit: float | None, enter: float = 5, io_some: str = "null") -> object:
    spec = f"  windowSeconds: 3\n  hardLimits: {{psiMemoryFullRatio: {limit}, psiIoSomeRatio: {io_some}}}\n"
    spec += f"  hysteresis: {{hardEnterForSeconds: {enter}}}\n"
    return rule("psi.io_some_ratio 0.1 0.3 0.9", spec=spec.replace("None", "null"))


def hard(values: list[float | None], by: object) -> list[bool]:
    found = run(by, [at(s, psi={"memory_full_ratio": value}) for s, value in enumerate(values)])
    return ["psiMemoryFull" in one.hard for one in found]


def test_a_hard_limit_is_in_force_after_its_time_without_a_break() -> None:
    assert hard([0.06] * 10, hard_rules(0.05)).index(True) == 7
    assert True not in hard([0.05] * 20, hard_rules(0.05))
    assert hard([0.06] * 5 + [0.03] + [0.09] + [0.06] * 20, hard_rules(0.05)).index(True) == 11


def test_the_mean_is_rounded_half_up() -> None:
    assert True in hard([0.05005] * 10, hard_rules(0.05))
    assert True not in hard([0.05004] * 10, hard_rules(0.05))
    assert True in hard([0.0, 0.00015] * 10, hard_rules(0, enter=0))
    assert True not in hard([0.00004] * 10, hard_rules(0, enter=0))


def test_no_time_to_enter_is_at_once() -> None:
    assert hard([0.06] * 4, hard_rules(0.05, enter=0)) == [False, False, True, True]


def test_a_hard_limit_is_left_like_a_detection() -> None:
    in_force = hard([0.06] * 40 + [0.04] * 30, hard_rules(0.05))
    assert (in_force.index(True), 40 + in_force[40:].index(False)) == (7, 52)
    assert hard([0.06] * 40 + [0.0401] * 30, hard_rules(0.05))[-1]


def test_a_limit_of_0_is_left_at_0() -> None:
    assert hard([0.06] * 40 + [0.0001] * 30, hard_rules(0))[-1]
    assert not hard([0.06] * 40 + [0.00004] * 30, hard_rules(0))[-1]


def test_unknown_psi_is_not_in_force() -> None:
    in_force = hard([0.06] * 10 + [None] * 5 + [0.06] * 10, hard_rules(0.05))
    assert in_force[9]
    assert not in_force[14]
    assert 15 + in_force[15:].index(True) == 22
    assert not any(hard([None] * 10, hard_rules(0, enter=0)))


def test_a_limit_that_is_off_never_holds() -> None:
    assert not any(hard([1.0] * 40, hard_rules(None, enter=0)))


def test_io_some_has_its_own_name() -> None:
    found = run(hard_rules(None, 0, "0.6"), [at(s, psi={"io_some_ratio": 0.7}) for s in range(4)])[-1]
    assert found.hard == ["psiIoSome"]
