import pytest

from cotenant.local.incidents import IncidentTracker
from cotenant.model.evaluation import Detection, Evaluation, SignalState, Suspect, Victim
from cotenant.model.incident import Isolated


def evaluation(second: int, level: float | None = 0.1, hard: bool = False, **detections: Detection) -> Evaluation:
    return Evaluation(
        node="n1",
        time=f"2026-11-30T00:00:{second:02d}.000Z",
        interference_level=level,
        detections=detections,  # type: ignore[arg-type]
        hard=["psiMemoryFull"] if hard else [],
    )


def io(triggered: bool | None, index: float, value: float = 0.0, suspect: float | None = None) -> Detection:
    return Detection(
        triggered=triggered,
        index=index,
        signals={"block.p99_usec": SignalState(value=value, index=index, threshold=20.0)},
        victims=[Victim(name="web", evidence="stalls")] if suspect else [],
        suspects=[Suspect(name="backup", confidence=suspect, evidence=f"{suspect}")] if suspect else [],
    )


def test_from_the_first_trigger_to_the_last() -> None:
    tracker = IncidentTracker()
    assert tracker.follow(evaluation(0, ioCongestion=io(False, 0.0))) == []
    (begun,) = tracker.follow(evaluation(1, level=0.2, ioCongestion=io(True, 0.4, 30, suspect=0.5)))
    (grown,) = tracker.follow(evaluation(2, level=0.4, ioCongestion=io(True, 0.8, 90, suspect=0.9)))
    assert tracker.follow(evaluation(3, level=0.3, ioCongestion=io(True, 0.6, 60, suspect=0.7))) == []
    (done,) = tracker.follow(evaluation(4, ioCongestion=io(False, 0.0)))
    assert begun.id == grown.id == done.id
    assert (begun.start, begun.end) == ("2026-11-30T00:00:01.000Z", None)
    assert done.end == "2026-11-30T00:00:04.000Z"
    assert done.ended_by == "calm"
    assert done.level_peak == 0.4
    assert [(s.name, s.confidence) for s in done.suspects] == [("backup", 0.9)]
    assert [(e.signal, e.value, e.index) for e in done.evidence] == [("block.p99_usec", 90, 0.8)]
    assert [victim.name for victim in done.victims] == ["web"]
    assert tracker.current is None
    (second,) = tracker.follow(evaluation(9, ioCongestion=io(True, 0.4)))
    assert second.id != done.id


def test_one_incident_while_any_detection_is_triggered_and_the_worst_dominates() -> None:
    tracker = IncidentTracker()
    tracker.follow(evaluation(1, ioCongestion=io(True, 0.4)))
    tracker.follow(evaluation(2, ioCongestion=io(True, 0.5), memoryPressure=io(True, 0.9)))
    tracker.follow(evaluation(3, ioCongestion=io(True, 0.6), memoryPressure=io(False, 0.0)))
    (done,) = tracker.follow(evaluation(4, ioCongestion=io(False, 0.0), memoryPressure=io(False, 0.0)))
    assert done.detections == ["ioCongestion", "memoryPressure"]
    assert done.dominant == "memoryPressure"


def test_a_hard_limit_alone_is_an_incident() -> None:
    tracker = IncidentTracker()
    (begun,) = tracker.follow(evaluation(1, hard=True, ioCongestion=io(False, 0.0)))
    assert begun.hard == ["psiMemoryFull"]
    assert begun.dominant is None


@pytest.mark.parametrize(("last", "ended_by"), [(None, "unknown"), (False, "calm")])
def test_the_end_says_whether_it_was_seen(last: bool | None, ended_by: str) -> None:
    tracker = IncidentTracker()
    tracker.follow(evaluation(1, ioCongestion=io(True, 0.4)))
    (done,) = tracker.follow(evaluation(2, level=None, ioCongestion=io(last, 0.0)))
    assert done.ended_by == ended_by


def test_names_are_bounded() -> None:
    tracker = IncidentTracker()
    suspects = [Suspect(name=f"s{n}", confidence=n / 100, evidence="") for n in range(50)]
    victims = [Victim(name=f"v{n}", evidence="") for n in range(50)]
    (begun,) = tracker.follow(evaluation(1, ioCongestion=Detection(triggered=True, suspects=suspects, victims=victims)))
    assert len(begun.suspects) == len(begun.victims) == 8
    assert begun.suspects[0].name == "s49"


def test_what_was_done_stays_with_its_incident_after_the_end() -> None:
    tracker = IncidentTracker()
    isolation = Isolated(detection="ioCongestion", suspect="b", victim="web", start="t", steps=1)
    assert tracker.isolated(isolation, []) == []  # no incident: nothing to add it to
    (begun,) = tracker.follow(evaluation(1, ioCongestion=io(True, 0.4)))
    (known,) = tracker.isolated(isolation, [begun])
    assert known.isolations == [isolation]
    (done,) = tracker.follow(evaluation(2, ioCongestion=io(False, 0.0)))
    assert done.isolations == [isolation]
    tracker.follow(evaluation(3, ioCongestion=io(True, 0.4)))
    recovered = Isolated(
        detection="ioCongestion", suspect="b", victim="web", start="t", steps=1, recovered=True, recovery_seconds=9
    )
    (later,) = tracker.isolated(recovered, [done])
    assert (later.id, later.isolations) == (done.id, [recovered])
