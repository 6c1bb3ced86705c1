import pytest

from cotenant.model import summary, wording
from cotenant.model.evaluation import Detection, Evaluation, SignalState, Suspect, Victim
from cotenant.model.missing import EXPLANATIONS, reason_of
from cotenant.model.sample import Cgroup, CgroupPsi, MissingReason


def evaluation(level: float | None, bucket: str, **detections: Detection) -> Evaluation:
    return Evaluation(node="n", time="t", interference_level=level, bucket=bucket, detections=detections)  # type: ignore[arg-type]


def detection(triggered: bool | None, index: float | None, **more: object) -> Detection:
    signals = {"block.p99_usec": SignalState(value=65000, index=index, threshold=30000)}
    return Detection(triggered=triggered, index=index, signals=signals, **more)  # type: ignore[arg-type]


def test_calm_and_unknown_are_not_the_same() -> None:
    assert summary.headline_of(evaluation(0.0, "none", ioCongestion=detection(False, 0.0))) == "Nobody is hurt"
    nothing = evaluation(None, "unknown", ioCongestion=detection(None, None))
    assert summary.headline_of(nothing) == "Not known yet"
    assert "No signal" in summary.detail_of(nothing, {})


def test_victims_are_named_and_without_a_class_nobody_is() -> None:
    victims = [Victim(name=name, evidence="") for name in ("web", "db", "api")]
    hurt = evaluation(0.4, "high", ioCongestion=detection(True, 0.6, victims=victims))
    assert summary.headline_of(hurt) == "web and 2 more are hurt"
    blind = evaluation(0.4, "high", ioCongestion=detection(True, 0.6))
    assert summary.headline_of(blind) == "This machine is under pressure"
    assert summary.headline_of(blind, "node-7") == "node-7 is under pressure"
    detail = summary.detail_of(blind, {"online": "no_class"})
    assert detail.startswith("I/O congestion: block latency p99 65 ms, threshold 30 ms.")
    assert "whom it hurts is not known" in detail


def test_a_hard_limit_alone_counts_as_hurt() -> None:
    limited = Evaluation(node="n", time="t", interference_level=0.0, bucket="none", hard=["psiMemoryFull"])
    assert summary.state_of(limited) == "hurt"


def test_only_triggered_detections_name_anyone_and_the_surest_comes_first() -> None:
    def suspects(**confidence: float) -> list[Suspect]:
        return [Suspect(name=name, confidence=value, evidence="") for name, value in confidence.items()]

    found = summary.suspects_of(
        evaluation(
            0.5, "high",
            ioCongestion=detection(True, 0.5, suspects=suspects(a=0.3, b=0.6)),
            memoryPressure=detection(True, 0.9, suspects=suspects(a=0.8)),
            cpuContention=detection(False, 0.9, suspects=suspects(c=1.0)),
        )
    )  # fmt: skip
    assert [(suspect.name, suspect.confidence) for suspect in found] == [("a", 0.8), ("b", 0.6)]


def test_the_worst_is_what_the_bucket_goes_by_triggered_or_not() -> None:
    both = evaluation(0.5, "severe", ioCongestion=detection(True, 0.5), memoryPressure=detection(False, 0.9))
    assert summary.worst_of(both) == ("memoryPressure", 0.9)
    assert summary.worst_of(evaluation(None, "unknown", ioCongestion=detection(None, None))) is None


def test_the_dominant_detection_is_triggered_and_the_largest() -> None:
    worse = evaluation(0.5, "high", ioCongestion=detection(True, 0.5), memoryPressure=detection(False, 0.9))
    assert summary.dominant_of(worse) == "ioCongestion"
    assert summary.dominant_of(evaluation(0.0, "none", ioCongestion=detection(None, None))) is None


def test_unknown_use_is_not_none_used() -> None:
    assert summary.block_of(Cgroup(path="a")) is None
    assert summary.block_of(Cgroup(path="a", read_bytes_per_sec=0.0)) == 0.0
    assert summary.stall_of(Cgroup(path="a")) == (None, None)
    psi = CgroupPsi(cpu_some_ratio=0.1, io_some_ratio=0.4)
    assert summary.stall_of(Cgroup(path="a", psi=psi)) == (0.4, "io_some_ratio")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("psi.io_some_ratio", 0.0, "0 %"),
        ("psi.io_some_ratio", 0.0312, "3.1 %"),
        ("psi.io_some_ratio", 0.42, "42 %"),
        ("psi.io_some_ratio", None, "–"),
        ("block.p99_usec", 900, "900 µs"),
        ("block.p99_usec", 65000, "65 ms"),
        ("block.p99_usec", 2.5e6, "2.5 s"),
        ("llc.occupancy_bytes", 3 << 19, "1.5 MiB"),
        ("llc.memory_bandwidth_bytes_per_sec", 1024, "1 KiB/s"),
        ("llc.probe_ratio", 1.5, "1.50 ×"),
        ("memory.refault_per_sec", 1234.5, "1,234/s"),
        ("llc.mpki", 3.14159, "3.14"),
    ],
)
def test_values_read_with_their_unit(name: str, value: float | None, text: str) -> None:
    assert wording.value_text(name, value) == text


def test_titles_tell_whose_it_is() -> None:
    assert wording.title_of("online.psi.io_some_ratio") == "online I/O stall (some)"
    assert wording.title_of("block.devices.vda.p99_usec") == "vda: latency p99"
    assert wording.title_of("llc") == "last-level cache"
    assert wording.title_of("made.up_name") == "up_name"


def test_every_reason_has_an_explanation() -> None:
    assert set(EXPLANATIONS) == set(MissingReason.__args__)  # type: ignore[attr-defined]


def test_a_group_speaks_for_its_fields_unless_they_speak_for_themselves() -> None:
    missing: dict[str, MissingReason] = {"llc": "no_pmu", "llc.occupancy_bytes": "no_resctrl"}
    assert reason_of("llc.occupancy_bytes", missing) == "no_resctrl"
    assert reason_of("llc.miss_ratio", missing) == "no_pmu"
    assert reason_of("cpu.used_ratio", missing) is None


@pytest.mark.parametrize(
    ("title", "inside"),
    [
        ("Memory pressure", "memory pressure"),
        ("CPU contention", "CPU contention"),
        ("I/O congestion", "I/O congestion"),
    ],
)
def test_a_title_inside_a_sentence_keeps_its_abbreviations(title: str, inside: str) -> None:
    assert wording.inside(title) == inside
