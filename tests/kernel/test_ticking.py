import os
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.waiting import PATIENCE_SECONDS

from cotenant.kernel.ticking import NICE, Grid, SamplingThread
from cotenant.units.clock import SystemClock


@settings(max_examples=200)
@given(st.floats(0.05, 60), st.lists(st.floats(0, 300), min_size=1, max_size=30))
def test_late_ticks_are_skipped_and_the_grid_is_kept(period_s: float, durations: list[float]) -> None:
    grid = Grid(period_s, 1000.0)
    now, missed = 1000.0, 0
    for done, duration in enumerate(durations, start=1):
        now = max(now, grid.due) + duration
        missed += grid.advance(now)
        assert grid.due > now - 1e-6 * period_s
        assert grid.due - now <= period_s * (1 + 1e-9)
        assert abs(grid.due - (1000.0 + (done + missed + 1) * period_s)) < 1e-3


def test_a_failing_tick_is_counted_and_does_not_end_the_next() -> None:
    ran = threading.Semaphore(0)

    def tick() -> None:
        ran.release()
        raise OSError("a reader failed")

    thread = SamplingThread(tick, lambda _: None, 0.01, SystemClock())
    thread.start()
    for _ in range(3):
        assert ran.acquire(timeout=PATIENCE_SECONDS)
    thread.stop()
    assert thread.failures >= 3


def test_stopping_before_the_start_hides_no_error() -> None:
    SamplingThread(lambda: None, lambda _: None, 1.0, SystemClock()).stop()


@pytest.mark.real
def test_the_thread_that_samples_runs_before_others_and_no_other_thread_does() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may raise a thread's priority")
    found: list[int] = []
    ran = threading.Event()

    def tick() -> None:
        found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        ran.set()

    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    thread = SamplingThread(tick, lambda _: None, 0.01, SystemClock())
    thread.start()
    assert ran.wait(timeout=PATIENCE_SECONDS)
    thread.stop()
    assert found[0] == NICE
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == before
