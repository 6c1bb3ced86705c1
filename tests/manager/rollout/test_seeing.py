"""When a report counts, and which of two is the newer."""

import msgspec

from cotenant.api import timestamp
from cotenant.manager.rollout.seeing import SILENCE_SECONDS, Report, Reports
from cotenant.units.clock import ManualClock


def report(clock: ManualClock, level: float = 0.2, bucket: str = "low", ago: float = 0.0) -> Report:
    observed = clock.wall() - ago
    status = {
        "observedAt": timestamp.render(observed),
        "expiresAt": timestamp.render(observed + 1800),
        "interferenceLevel": level,
        "bucket": bucket,
        "nodeFacts": {"mode": "observe"},
    }
    return msgspec.convert({"status": status}, Report)


def summary(clock: ManualClock, level: float | None = None, bucket: str = "low") -> Report:
    entry = {"name": "n", "bucket": bucket, "observedAt": timestamp.render(clock.wall())}
    if level is not None:
        entry["interferenceLevel"] = level  # type: ignore[assignment]
    nodes = [entry] if level is not None or bucket == "unknown" else []
    return msgspec.convert({"status": {"observedAt": timestamp.render(clock.wall()), "nodes": nodes}}, Report)


def live(clock: ManualClock) -> Reports:
    """Return reports of an analyzer that was seen to be alive."""
    reports = Reports(clock)
    reports.put("cluster", summary(clock))
    clock.advance(10)
    reports.put("cluster", summary(clock))
    return reports


def test_nothing_counts_until_the_analyzer_was_seen_alive_and_nothing_after_a_minute_of_silence() -> None:
    clock = ManualClock()
    reports = Reports(clock)
    reports.put("n", report(clock))
    reports.put("cluster", summary(clock))
    assert reports.of("n")[0] is None, "the summary may be of an analyzer that is long gone"
    clock.advance(10)
    reports.put("cluster", summary(clock))
    facts, newest = reports.of("n")
    assert facts is not None
    assert (newest.level, newest.heard) == (0.2, True)
    clock.advance(SILENCE_SECONDS + 1)
    assert reports.of("n")[0] is None
    clock.jump_wall(-3600)  # a wall clock that is set back brings nothing to life
    assert reports.of("n")[0] is None


def test_an_expired_report_does_not_count() -> None:
    clock = ManualClock()
    reports = live(clock)
    reports.put("n", report(clock, ago=2000))
    assert reports.of("n") == (None, reports.of("nobody")[1])


def test_the_summary_is_newer_than_a_report_that_is_only_written_on_change() -> None:
    clock = ManualClock()
    reports = live(clock)
    reports.put("n", report(clock, level=0.2, ago=300))
    reports.put("cluster", summary(clock, level=0.4))
    assert reports.of("n")[1].level == 0.4
    reports.put("cluster", summary(clock, bucket="unknown"))
    assert not reports.of("n")[1].heard
    clock.advance(1)
    reports.put("n", report(clock, level=0.6))
    assert reports.of("n")[1].level == 0.6
