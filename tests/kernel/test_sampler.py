import gc
import sys

import pytest
from tests.kernel.conftest import unexplained

from cotenant.kernel import sampler
from cotenant.units.clock import ManualClock


def make(tree, clock=None, **options):
    return sampler.Sampler(tree.root, clock=clock or ManualClock(), **options)


def test_the_first_sample_has_no_rates_and_says_so(tree):
    sample = make(tree).sample()
    assert sample.missing["psi.io_some_ratio"] == "first_sample"
    assert sample.missing["period_s"] == "first_sample"
    assert sample.memory.available_ratio > 0
    assert unexplained(sample) == []


def test_a_period_later_unchanged_counters_are_zero(tree):
    clock = ManualClock()
    source = make(tree, clock)
    source.prime()
    clock.advance(1.0)
    sample = source.sample()
    assert (sample.node, sample.period_s) == ("n1", 1.0)
    assert sample.boot_id == "11111111-2222-3333-4444-555555555555"
    assert sample.psi.io_some_ratio == sample.cpu.used_ratio == sample.memory.refault_per_sec == 0.0
    assert unexplained(sample) == []


def test_time_is_utc_with_milliseconds(tree):
    assert make(tree, ManualClock(wall=1_796_000_000.5)).sample().time == "2026-11-30T00:53:20.500Z"


@pytest.mark.parametrize(("step", "reason"), [(3600.0, "stale"), (-5.0, "reset"), (0.0, "reset")])
def test_a_gap_or_a_clock_that_runs_back_makes_rates_unknown(tree, step, reason):
    clock = ManualClock()
    source = make(tree, clock)
    source.prime()
    clock.advance(step)
    sample = source.sample()
    assert sample.period_s is None
    assert sample.missing["psi.io_some_ratio"] == sample.missing["memory.refault_per_sec"] == reason
    clock.advance(1.0)
    assert source.sample().psi.io_some_ratio == 0.0


def test_a_jump_of_the_wall_clock_changes_no_rate(tree):
    clock = ManualClock()
    source = make(tree, clock)
    source.prime()
    clock.advance(1.0)
    clock.jump_wall(-86400)
    assert source.sample().period_s == 1.0


def test_an_empty_tree_makes_everything_unknown(empty):
    source = make(empty, node="x")
    source.prime()
    assert unexplained(source.sample()) == []


def test_samples_leave_nothing_behind(v2):
    clock = ManualClock()
    source = make(v2, clock)

    def take(count):
        for _ in range(count):
            clock.advance(1.0)
            source.sample()
        gc.collect()
        return sys.getallocatedblocks()

    before = take(20)
    assert take(60) - before < 600  # fewer than ten blocks a sample: free lists fill up; a kept sample has hundreds
    source.close()
