"""What is published, and when, on a clock that the tests move."""

from collections.abc import Callable

import msgspec
import pytest

from cotenant.analyzer.fleet import Fleet
from cotenant.analyzer.publication import (
    HEARTBEAT_SECONDS,
    MIN_INTERVAL_SECONDS,
    Material,
    NodePublication,
    worst_first,
)
from cotenant.api import report
from cotenant.detect import presets
from cotenant.model import sample
from cotenant.units.clock import ManualClock

Live = Callable[..., None]
HOLD = presets.get().hysteresis.min_hold_seconds


def write(fleet: Fleet, clock: ManualClock) -> list[report.ReportStatus]:
    """Write all that is due and return it."""
    statuses = []
    for node in fleet.due(1000):
        material, status = node.begin_write()
        assert not node.is_due(clock.monotonic(), -1.0)  # one at a time
        node.end_write(material, clock.monotonic())
        statuses.append(status)
    return statuses


def test_a_calm_node_is_written_once_and_then_at_heartbeats(fleet: Fleet, clock: ManualClock, live: Live) -> None:
    live(15)
    (status,) = write(fleet, clock)
    assert status.bucket == "none"
    assert status.expires_at is not None
    live(300)
    assert write(fleet, clock) == []
    live(int(HEARTBEAT_SECONDS * 1.1))
    assert len(write(fleet, clock)) == 1


def test_a_change_is_written_at_once_and_then_not_again_for_a_while(
    fleet: Fleet, clock: ManualClock, live: Live
) -> None:
    live(15)
    write(fleet, clock)
    live(int(MIN_INTERVAL_SECONDS))
    live(5, thrashing=True)
    (status,) = write(fleet, clock)
    assert [found.type for found in status.detections if found.triggered] == ["memoryPressure"]
    changes = 0
    for _ in range(int(MIN_INTERVAL_SECONDS) - 1):
        live(1, thrashing=True)
        changes += len(write(fleet, clock))
    assert changes == 0


def test_a_hard_limit_is_lifted_only_after_it_was_clear_for_the_hold(
    fleet: Fleet, clock: ManualClock, live: Live
) -> None:
    live(60, thrashing=True)
    write(fleet, clock)
    assert fleet.nodes["n1"].material().hard == ("psiMemoryFull",)
    engine = fleet.rulebook.engine_for("n1", {})
    cleared = None
    for second in range(200):
        live(1)
        if cleared is None and not fleet.nodes["n1"].evaluation.hard:  # type: ignore[union-attr]
            cleared = second
        if not fleet.nodes["n1"].material().hard:
            break
    assert engine.in_force.hard_limits.psi_memory_full_ratio == 0.05
    assert cleared is not None
    assert second - cleared == pytest.approx(HOLD, abs=1)


def test_silence_turns_a_node_unknown_after_a_minute_and_keeps_its_hard_limits(
    fleet: Fleet, clock: ManualClock, live: Live
) -> None:
    live(60, thrashing=True)
    (before,) = write(fleet, clock)
    clock.advance(60)
    fleet.tick()
    assert write(fleet, clock) == []
    clock.advance(1)
    fleet.tick()
    (status,) = write(fleet, clock)
    assert (status.bucket, status.interference_level, status.hard) == ("unknown", None, ["psiMemoryFull"])
    assert status.expires_at == before.expires_at  # nothing was observed since: it holds no longer for being written
    clock.advance(10 * HEARTBEAT_SECONDS)
    fleet.tick()
    assert write(fleet, clock) == []  # and no heartbeat renews what nobody sees


def test_a_new_leader_loosens_nothing_until_it_knows_better(fleet: Fleet, clock: ManualClock, live: Live) -> None:
    earlier = report.ReportStatus(
        observed_at="2027-01-15T08:00:00Z", bucket="severe", hard=["psiMemoryFull"], interference_level=0.9
    )
    fleet.take_over({"n1": earlier}, 30.0)
    assert write(fleet, clock) == []
    live(29)
    assert write(fleet, clock) == []  # calm by its samples, but not for long enough
    live(10)
    (status,) = write(fleet, clock)
    assert (status.bucket, status.hard) == ("none", [])


def test_a_takeover_of_a_node_that_is_gone_becomes_unknown(fleet: Fleet, clock: ManualClock) -> None:
    fleet.take_over({"n1": report.ReportStatus(bucket="severe", observed_at="2027-01-15T08:00:00Z")}, 30.0)
    clock.advance(61)
    fleet.tick()
    (status,) = write(fleet, clock)
    assert status.bucket == "unknown"


def test_worst_first_and_getting_worse_before_getting_better() -> None:
    def node(name: str, now: Material, before: Material | None) -> NodePublication:
        made = NodePublication(name, 0.0)
        made.written = before
        made.material = lambda: now  # type: ignore[method-assign]
        return made

    calm, high = Material(bucket="none"), Material(bucket="high")
    limited = Material(bucket="severe", hard=("psiMemoryFull",))
    nodes = [
        node("better", calm, limited),
        node("new", calm, None),
        node("high", high, calm),
        node("limited", limited, calm),
    ]
    assert [found.node for found in worst_first(nodes)] == ["limited", "high", "new", "better"]


def test_a_failed_write_stays_due_but_waits(fleet: Fleet, clock: ManualClock, live: Live) -> None:
    live(15)
    (node,) = fleet.due(10)
    node.begin_write()
    node.end_write(None, clock.monotonic())
    assert fleet.due(10) == []
    live(int(MIN_INTERVAL_SECONDS))
    assert fleet.due(10) == [node]


def test_a_report_stays_about_a_kilobyte_whatever_is_named(fleet: Fleet, clock: ManualClock, live: Live) -> None:
    live(60, thrashing=True)
    (status,) = write(fleet, clock)
    assert len(msgspec.json.encode(status)) < 3000


def test_a_detection_that_triggers_does_not_wait_for_the_interval_and_what_gets_better_does(
    fleet: Fleet, clock: ManualClock, live: Live
) -> None:
    live(15)
    write(fleet, clock)
    live(int(MIN_INTERVAL_SECONDS))
    written = []
    for _ in range(8):
        live(1, thrashing=True)
        written += write(fleet, clock)
    triggered = [[found.type for found in status.detections if found.triggered] for status in written]
    assert triggered[0] == []  # the bucket rose first
    assert triggered[-1] == ["memoryPressure"]
    assert len(written) == 2
    for _ in range(40):
        live(1)
        before = clock.monotonic()
        better = write(fleet, clock)
        assert not better or before - fleet.nodes["n1"].written_at < MIN_INTERVAL_SECONDS
    assert fleet.nodes["n1"].written is not None
    assert fleet.nodes["n1"].written.bucket == "none"


def test_facts_that_change_are_written_and_the_same_again_are_not(fleet: Fleet, clock: ManualClock, live: Live) -> None:
    live(15)
    write(fleet, clock)
    name = next(iter(fleet.nodes))
    fleet.hear(name, [], report.NodeFacts(mode="enforce"))
    live(int(MIN_INTERVAL_SECONDS))
    (status,) = write(fleet, clock)
    assert status.node_facts is not None
    assert status.node_facts.mode == "enforce"
    fleet.hear(name, [], report.NodeFacts(mode="enforce"))
    live(int(MIN_INTERVAL_SECONDS) + 1)
    assert write(fleet, clock) == []


def test_a_new_leader_writes_nothing_for_the_facts_that_an_earlier_one_has_written(
    fleet: Fleet, clock: ManualClock, live: Live
) -> None:
    facts = report.NodeFacts(mode="enforce", check=report.NodeCheck(missing=["psi"], irreversible=False))
    earlier = msgspec.json.decode(
        msgspec.json.encode(report.ReportStatus(bucket="none", node_facts=facts)), type=report.ReportStatus
    )
    fleet.take_over({"n1": earlier}, 0)
    fleet.hear("n1", [], facts)
    live(15)
    assert write(fleet, clock) == []


def limited(fleet: Fleet, live: Live, clock: ManualClock) -> None:
    """Have n1 come past its hard limit, and that written."""
    live(60, thrashing=True)
    assert write(fleet, clock)[-1].hard == ["psiMemoryFull"]


def test_an_agent_that_starts_anew_lifts_no_hard_limit(fleet: Fleet, clock: ManualClock, live: Live) -> None:
    limited(fleet, live, clock)
    clock.advance(8)  # nobody samples
    seen = set()
    for _ in range(60):  # three samples until the mean is known, thirty seconds until the limit is in force again
        live(1, thrashing=True)
        seen.add(fleet.nodes["n1"].material().hard)
    assert seen == {("psiMemoryFull",)}


def test_a_limit_is_lifted_after_it_was_known_to_be_clear_for_the_hold(
    fleet: Fleet, clock: ManualClock, live: Live
) -> None:
    limited(fleet, live, clock)
    clock.advance(8)
    calm_for = 0
    while fleet.nodes["n1"].material().hard:
        live(1)
        calm_for += 1
        assert calm_for < 60
    assert HOLD <= calm_for <= HOLD + 5, "the hold begins when the mean is known again"


def stalled(uptime_s: float, ratio: float | None) -> sample.Sample:
    """Return a sample of a kernel that says how long tasks wait for memory, or does not."""
    return sample.Sample(
        node="n1",
        boot_id="boot",
        uptime_s=uptime_s,
        time="2026-11-30T00:00:00Z",
        period_s=1.0,
        psi=sample.Psi(memory_some_ratio=ratio, memory_full_ratio=ratio, io_some_ratio=0.0, cpu_some_ratio=0.0),
    )


def test_what_stays_unknown_is_not_held_for_ever(fleet: Fleet, clock: ManualClock) -> None:
    for second in range(60):
        clock.advance(1)
        fleet.hear("n1", [stalled(100.0 + second, 0.5)])
    assert fleet.nodes["n1"].material().hard == ("psiMemoryFull",)
    lasted = 0
    while fleet.nodes["n1"].material().hard:
        clock.advance(1)
        lasted += 1
        fleet.hear("n1", [stalled(160.0 + lasted, None)])
        assert lasted < 200
    assert 60 <= lasted <= 60 + HOLD + 15
