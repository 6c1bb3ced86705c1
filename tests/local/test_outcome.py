import pytest

from cotenant.local.outcome import BACK_TICKS, FOLLOWED_SECONDS, LEAST_CALM_TICKS, Outcomes
from cotenant.model import series
from cotenant.model.enforcement import EnforcementState
from cotenant.model.incident import Incident, Isolated, LatencyOutcome
from cotenant.model.latency import P99, Quantile, ServiceLatency

START = "2026-11-30T00:01:00Z"
BEGIN_SECONDS = series.time_ms_of(START) / 1000
INCIDENT = Incident(id=series.time_ms_of(START), start=START)


def p99(seconds: float | None, *, at_least: bool = False) -> list[ServiceLatency]:
    known = Quantile(quantile=P99, seconds=seconds, at_least=at_least, missing="too_few" if seconds is None else None)
    return [ServiceLatency(service="shop", source="log", quantiles=(known,))]


def enforcing(**fields: object) -> EnforcementState:
    return EnforcementState(mode="enforce", policy="", interface="mainline-idle", **fields)  # type: ignore[arg-type]


class Story:
    """One tick a second; ``outcome`` is the newest that was told."""

    def __init__(self, calm: float | None = 0.010, calm_ticks: int = 30) -> None:
        self.outcomes, self.second = Outcomes(), -calm_ticks
        self.outcome: LatencyOutcome | None = None
        for _ in range(calm_ticks):
            self.tick(calm, incident=None)

    def tick(
        self,
        seconds: float | None,
        incident: Incident | None = INCIDENT,
        state: EnforcementState | None = None,
        *,
        at_least: bool = False,
    ) -> None:
        at_s = BEGIN_SECONDS + self.second
        told = self.outcomes.follow(at_s, incident, p99(seconds, at_least=at_least), state)
        if told is not None:
            number, (self.outcome,) = told
            assert number == INCIDENT.id
        self.second += 1


def test_recovered_so_many_seconds_after_suppress() -> None:
    story = Story()
    for _ in range(5):
        story.tick(0.240, state=enforcing())
    for _ in range(12):
        story.tick(0.100, state=enforcing(offline_withheld_millicores=800.0))
    for _ in range(BACK_TICKS):
        story.tick(0.011, state=enforcing(offline_withheld_millicores=800.0))
    assert story.outcome == LatencyOutcome(
        service="shop",
        before_seconds=0.010,
        peak_seconds=0.240,
        rose=True,
        action="suppression",
        recovery_seconds=pytest.approx(12.0),
    )


def test_recovery_counts_from_when_the_suspect_was_held_back() -> None:
    story = Story()
    held = Isolated(detection="ioCongestion", suspect="b", victim="shop", start="2026-11-30T00:01:04Z", steps=1)
    for second in range(20):
        isolation = held if second >= 4 else None
        story.tick(0.240 if second < 10 else 0.010, state=enforcing(isolation=isolation))
    assert story.outcome is not None
    assert story.outcome.action == "isolation"
    assert story.outcome.recovery_seconds == pytest.approx(6.0)


def test_the_fast_path_is_an_action_too() -> None:
    story = Story()
    for second in range(10):
        story.tick(0.240 if second < 5 else 0.010, state=enforcing(fast_path_total=3 if second >= 2 else 2))
    assert story.outcome is not None
    assert (story.outcome.action, story.outcome.recovery_seconds) == ("fast path", pytest.approx(3.0))


def test_recovery_without_an_action_counts_from_the_start_and_dry_runs_are_none() -> None:
    for state in (None, EnforcementState(mode="dry-run", policy="", interface="", offline_withheld_millicores=900.0)):
        story = Story()
        for second in range(20):
            story.tick(0.240 if second < 10 else 0.010, state=state)
        assert story.outcome is not None
        assert (story.outcome.action, story.outcome.recovery_seconds) == (None, pytest.approx(10.0))


def test_one_good_second_is_no_recovery_and_a_relapse_undoes_it() -> None:
    story = Story()
    for seconds in (0.240, 0.010, 0.240, 0.010, 0.010):
        story.tick(seconds)
    assert story.outcome is not None
    assert story.outcome.recovery_seconds is None
    story.tick(0.010)
    assert story.outcome.recovery_seconds == pytest.approx(3.0)
    story.tick(0.5)
    assert story.outcome.recovery_seconds is None
    assert story.outcome.peak_seconds == 0.5


def test_recovery_after_the_end_still_counts_and_then_calm_is_learnt_anew() -> None:
    story = Story()
    story.tick(0.240)
    for _ in range(30):
        story.tick(0.240, incident=None)
    for _ in range(BACK_TICKS):
        story.tick(0.010, incident=None)
    assert story.outcome is not None
    assert story.outcome.recovery_seconds == pytest.approx(31.0)
    story.outcome = None
    for _ in range(int(FOLLOWED_SECONDS)):
        story.tick(0.010, incident=None)
    story.outcome = None
    story.tick(0.010, incident=None)
    assert story.outcome is None


def test_what_did_not_rise_is_told_as_that() -> None:
    story = Story()
    for _ in range(5):
        story.tick(0.014)
    assert story.outcome is not None
    assert not story.outcome.rose
    assert story.outcome.recovery_seconds is None


def test_nothing_is_said_of_what_was_not_known_before_or_during() -> None:
    for story in (Story(calm=None), Story(calm_ticks=LEAST_CALM_TICKS - 1)):
        for _ in range(5):
            story.tick(0.240)
        assert story.outcome is None
    story = Story()
    for _ in range(5):
        story.tick(None)
    assert story.outcome is None


def test_beyond_the_buckets_is_a_lower_bound_and_never_back() -> None:
    story = Story()
    for _ in range(5):
        story.tick(1.0, at_least=True)
    assert story.outcome is not None
    assert story.outcome.at_least
    assert story.outcome.recovery_seconds is None
