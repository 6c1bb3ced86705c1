import pytest

from cotenant.analyzer.trial import Note, Share, Trials
from cotenant.detect.rules import Guard


def test_a_change_that_pushes_too_many_past_a_limit_fails_at_once() -> None:
    trials = Trials()
    trials.start("default", 7, Guard(max_excluded_fraction=0.05, trial_seconds=120), 1, 1000.0)
    assert trials.failures(lambda _: Share(5, 100), 1010.0) == []
    (failed,) = trials.failures(lambda _: Share(6, 100), 1060.0)
    assert (failed.name, failed.generation) == ("default", 7)
    assert failed.text.startswith("6 of 100 nodes came past a hard limit within 120 s")
    assert trials.failures(lambda _: Share(6, 100), 1061.0) == []  # said once


@pytest.mark.parametrize(
    ("before", "after", "passed"),
    [
        (Share(0, 1), Share(1, 1), True),  # one node is an incident
        (Share(0, 3), Share(2, 3), False),
        (Share(9, 100), Share(9, 100), True),  # as bad before
        (Share(9, 100), Share(10, 100), False),
        (Share(0, 0), Share(0, 0), True),
    ],
)
def test_what_counts(before: Share, after: Share, passed: bool) -> None:
    trials = Trials()
    trials.start("x", 2, Guard(), before.limited, 0.0)
    assert bool(trials.failures(lambda _: after, 1.0)) != passed


def test_after_its_time_a_change_has_passed() -> None:
    trials = Trials()
    trials.start("x", 2, Guard(trial_seconds=120), 0, 0.0)
    assert trials.failures(lambda _: Share(0, 100), 120.0) == []
    assert trials.failures(lambda _: Share(100, 100), 121.0) == []


def test_a_removed_object_is_not_on_trial() -> None:
    trials = Trials()
    trials.start("x", 2, Guard(), 0, 0.0)
    assert trials.note("x", 2, 20.0) == Note(0, 100.0)
    assert trials.note("x", 1, 20.0) is None
    trials.end("x")
    assert trials.note("x", 2, 20.0) is None
    assert trials.failures(lambda _: Share(100, 100), 1.0) == []
