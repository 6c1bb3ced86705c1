"""What the presets make of situations that were seen on machines."""

from typing import Any

import pytest
from tests.detect.samples import at, counts, io, run

from cotenant.detect import catalogue, engine, explanation, presets, registry, rules
from cotenant.detect.detectors import io_congestion
from cotenant.model import evaluation, sample

CALM_ONLINE = {
    "psi": {
        "cpu_some_ratio": 0.01,
        "memory_some_ratio": 0.0,
        "memory_full_ratio": 0.0,
        "io_some_ratio": 0.01,
        "io_full_ratio": 0.0,
    },
    "run_queue_latency_p99_usec": 300,
    "block_p99_usec": 900,
    "throttled_ratio": 0.0,
    "cpu_used_ratio": 0.1,
}


def device(kind: str = "ssd", p99: float | None = 900, completions: int | None = 500, **more: Any) -> dict[str, Any]:
    known = {
        "kind": kind,
        "completions": completions,
        "p50_usec": p99,
        "p95_usec": p99,
        "p99_usec": p99,
        "in_flight": 0,
    }
    return {**known, "read_bytes_per_sec": 0.0, "write_bytes_per_sec": 4e6, **more}


def default(taken: list[sample.Sample]) -> list[evaluation.Evaluation]:
    return run(presets.get("default"), taken)


def steady(seconds: int = 30, **groups: Any) -> evaluation.Evaluation:
    return default([at(second, **groups) for second in range(seconds)])[-1]


def triggered(found: evaluation.Evaluation) -> list[str]:
    return [name for name, detection in found.detections.items() if detection.triggered]


# --- who is hurt decides -----------------------------------------------------------------------------------------


def test_a_node_full_of_offline_work_beside_calm_online_work_is_a_success() -> None:
    found = steady(
        psi={"cpu_some_ratio": 0.98, "memory_some_ratio": 0.1, "memory_full_ratio": 0.0, "io_some_ratio": 0.6},
        cpu={"used_ratio": 1.0, "softirq_ratio": 0.02, "steal_ratio": 0.0, "run_queue_latency_p99_usec": 60_000},
        memory={"available_ratio": 0.04, "refault_per_sec": 300, "direct_scan_per_sec": 20_000},
        block={"completions": 900, "p99_usec": 9_000, "devices": {"vda": device("cloud", 9_000)}},
        online=CALM_ONLINE,
        offline={"cpu_used_ratio": 0.9, "throttled_ratio": 0.0},
        llc={"miss_ratio": 0.3, "mpki": 4.0},
    )
    assert found.interference_level is not None
    assert found.interference_level < 0.1
    assert (found.bucket, triggered(found), found.hard) == ("none", [], [])


def test_the_same_node_without_classes_is_known_by_half() -> None:
    found = steady(
        psi={"cpu_some_ratio": 0.98, "memory_some_ratio": 0.0, "memory_full_ratio": 0.0, "io_some_ratio": 0.0},
        cpu={"run_queue_latency_p99_usec": 60_000, "steal_ratio": 0.0, "softirq_ratio": 0.0},
        block={"completions": 900, "devices": {"vda": device()}},
        missing={"online": "no_class", "llc": "no_pmu"},
    )
    assert triggered(found) == ["cpuContention"]
    assert found.coverage == pytest.approx(0.8 / 2)


def test_steal_and_soft_interrupts_add_to_what_is_known_of_the_online_class() -> None:
    assert triggered(steady(online=CALM_ONLINE, cpu={"steal_ratio": 0.3, "softirq_ratio": 0.0})) == ["cpuContention"]
    assert triggered(steady(online=CALM_ONLINE, cpu={"softirq_ratio": 0.3})) == ["cpuContention"]
    alone = steady(cpu={"steal_ratio": 0.3, "softirq_ratio": 0.0})
    assert (triggered(alone), alone.coverage) == (["cpuContention"], pytest.approx(0.1))


def test_waiting_by_ones_own_quota_is_no_contention() -> None:
    waiting = {"psi": {"cpu_some_ratio": 0.9}, "run_queue_latency_p99_usec": 500}
    assert triggered(steady(online={**waiting, "throttled_ratio": 0.0})) == ["cpuContention"]
    assert triggered(steady(online={**waiting, "throttled_ratio": 0.8})) == []


@pytest.mark.parametrize(
    ("own", "used", "steal", "contended"),
    [
        (0.60, 0.70, 0.0, False),
        (0.60, 0.65, 0.4, True),
        (0.40, 0.98, 0.0, True),
        (0.20, 0.02, 0.0, False),  # ticks miss what wakes between them
        (0.40, None, 0.0, True),
    ],
)
def test_waiting_for_itself_is_no_contention(own: float, used: float | None, steal: float, contended: bool) -> None:
    online = {"psi": {"cpu_some_ratio": 0.9}, "run_queue_latency_p99_usec": 500, "cpu_used_ratio": own}
    found = steady(online=online, cpu={"used_ratio": used, "steal_ratio": steal})
    assert ("online.psi.cpu_some_ratio" in found.detections["cpuContention"].signals) is True
    reached = found.detections["cpuContention"].signals["online.psi.cpu_some_ratio"].index
    assert reached is not None
    assert (reached > 0.5) is contended


# --- I/O ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "p99_usec", "slow"),
    [
        ("nvme", 1_900, False),
        ("nvme", 2_000, True),
        ("ssd", 9_900, False),
        ("ssd", 10_000, True),
        ("cloud", 29_000, False),
        ("cloud", 30_000, True),
        ("spinning", 149_000, False),
        ("spinning", 150_000, True),
        (None, 29_000, False),
        (None, 30_000, True),
    ],
)
def test_a_disk_is_held_to_its_kind(kind: str, p99_usec: float, slow: bool) -> None:
    found = steady(block={"devices": {"a": device(kind, p99_usec)}})
    assert bool(io(found).triggered) is slow
    threshold = io(found).signals["block.p99_usec"].threshold
    assert threshold == io_congestion.DEVICE_THRESHOLDS_USEC.get(kind or "cloud")


def test_the_worst_disk_beside_its_own_threshold_counts() -> None:
    devices = {"slow": device("spinning", 100_000), "fast": device("nvme", 4_000), "idle": device("ssd", None, 0)}
    found = steady(block={"devices": devices})
    state = io(found).signals["block.p99_usec"]
    assert (state.value, state.threshold) == (4_000, 2_000)
    assert io(found).triggered


def test_the_only_disk_has_the_merged_histogram() -> None:
    """Seconds of a few slow requests among seconds of many fast ones: the mean of percentiles would be 45 ms."""
    few = {"completions": 2, "histogram": counts(_90000=2), "devices": {"a": device("cloud", 90_000, 2)}}
    many = {"completions": 2000, "histogram": counts(_500=2000), "devices": {"a": device("cloud", 500, 2000)}}
    found = default([at(second, block=few if second % 2 else many) for second in range(30)])[-1]
    assert io(found).signals["block.p99_usec"].value == pytest.approx(500, rel=0.05)
    assert not io(found).triggered


def test_without_disks_all_together_stand_in() -> None:
    found = steady(block={"completions": 100, "p99_usec": 40_000, "histogram": counts(_40000=100)})
    assert io(found).triggered


def test_an_idle_disk_is_calm_and_known() -> None:
    found = steady(block={"completions": 0, "devices": {"a": device("ssd", None, 0)}}, psi={"io_some_ratio": 0.0})
    assert (io(found).index, io(found).triggered) == (0.0, False)


def test_a_disk_that_is_always_slow_is_held_to_four_times_its_own() -> None:
    always = [at(s, block={"devices": {"a": device("nvme", 1_500)}}) for s in range(700)]
    worse = [at(s, block={"devices": {"a": device("nvme", 4_000)}}) for s in range(700, 730)]
    found = default(always + worse)
    assert not io(found[-1]).triggered
    assert io(found[-1]).signals["block.p99_usec"].threshold == pytest.approx(6_000, rel=0.05)
    bad = [at(s, block={"devices": {"a": device("nvme", 9_000)}}) for s in range(700, 730)]
    assert io(default(always + bad)[-1]).triggered


def test_what_a_disk_does_in_an_incident_is_not_what_it_usually_does() -> None:
    incident = [at(s, block={"devices": {"a": device("nvme", 50_000)}}) for s in range(1500)]
    assert io(default(incident)[-1]).triggered


def test_one_sequential_reader_on_a_healthy_disk_is_not_congestion() -> None:
    busy = device("cloud", 2_500, 3_000, read_bytes_per_sec=4e8, in_flight=2, read_iops=1_600.0, write_iops=0.0)
    for online in ({}, {"psi": {"io_some_ratio": 0.7}, "block_p99_usec": 2_500}):
        found = steady(psi={"io_some_ratio": 0.7, "io_full_ratio": 0.6}, block={"devices": {"a": busy}}, online=online)
        assert (io(found).index, io(found).triggered) == (0.0, False)


def test_io_stall_beside_latency_counts() -> None:
    slow = device("cloud", 28_000)
    found = steady(psi={"io_some_ratio": 0.9}, block={"devices": {"a": slow}})
    assert io(found).triggered
    assert io(found).signals["block.p99_usec"].value == 28_000


def test_where_percentiles_are_unknown_requests_in_flight_tell_latency() -> None:
    def disk(in_flight: int) -> dict[str, Any]:
        return device("cloud", None, 2_000, read_iops=2_000.0, write_iops=0.0, in_flight=in_flight)

    missing = {"block.p99_usec": "no_bpf", "online": "no_class"}
    deep = steady(psi={"io_some_ratio": 0.9}, block={"devices": {"a": disk(128)}}, missing=missing)
    assert io(deep).triggered
    shallow = steady(psi={"io_some_ratio": 0.7}, block={"devices": {"a": disk(2)}}, missing=missing)
    assert (io(shallow).index, io(shallow).triggered) == (0.0, False)
    unknown = steady(psi={"io_some_ratio": 0.9}, missing=missing)
    assert io(unknown).index is None
    assert unknown.missing["psi.io_some_ratio"] == "no_bpf"
    assert io(unknown).signals["psi.io_some_ratio"].value == 0.9


# --- memory ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [True, False])
def test_a_lost_working_set_is_memory_and_not_io(classes: bool) -> None:
    """A file-backed working set three times its limit: the kernel shows I/O stall; nearly all reads are refaults."""
    thrashing = {
        "psi": {"io_some_ratio": 0.9, "io_full_ratio": 0.7, "memory_some_ratio": 0.05, "memory_full_ratio": 0.02},
        "memory": {"refault_per_sec": 48_000, "major_fault_per_sec": 9_000, "available_ratio": 0.7},
        "block": {"devices": {"a": device("cloud", 60_000, 4_000, read_bytes_per_sec=2e8, write_bytes_per_sec=1e6)}},
    }
    online = {**CALM_ONLINE, "block_p99_usec": 60_000, "psi": {"io_some_ratio": 0.6, "memory_some_ratio": 0.01}}
    found = steady(**thrashing, **({"online": online} if classes else {}))
    assert explanation.dominant(found) == "memoryPressure"
    assert triggered(found) == ["memoryPressure"]


def test_direct_io_that_congests_is_not_memory() -> None:
    found = steady(
        psi={"io_some_ratio": 0.9, "memory_some_ratio": 0.0, "memory_full_ratio": 0.0},
        memory={"refault_per_sec": 900, "major_fault_per_sec": 10, "available_ratio": 0.7},
        block={"devices": {"a": device("cloud", 65_000, 2_000, read_bytes_per_sec=5e8)}},
    )
    assert triggered(found) == ["ioCongestion"]


def test_refaults_that_nobody_waits_for_are_calm() -> None:
    found = steady(
        online=CALM_ONLINE,
        memory={"refault_per_sec": 48_000},
        block={"devices": {"a": device("cloud", 5_000, 4_000, read_bytes_per_sec=2e8)}},
    )
    assert triggered(found) == []
    assert found.detections["memoryPressure"].index == pytest.approx(0.05, abs=0.02)


def test_without_psi_available_memory_and_direct_reclaim_stand_in() -> None:
    missing = {"psi": "psi_disabled", "online": "no_class"}
    low = steady(memory={"available_ratio": 0.04, "direct_scan_per_sec": 0.0}, missing=missing)
    assert triggered(low) == ["memoryPressure"]
    with_psi = steady(memory={"available_ratio": 0.04}, psi={"memory_some_ratio": 0.0, "memory_full_ratio": 0.0})
    assert (triggered(with_psi), with_psi.detections["memoryPressure"].index) == ([], 0.0)


# --- time to detect ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strength", ["saturation", "twice"])
def test_detection_takes_3_s_at_saturation_and_6_s_at_twice_the_threshold(strength: str) -> None:
    for name, rule in presets.get("default").detections.items():
        for signal in rule.signals:
            if not signal.signal.startswith("online.") or signal.condition:
                continue
            value = signal.saturation if strength == "saturation" else 2 * signal.threshold
            taken = [online(s, signal.signal, 0.0) for s in range(30)]
            taken += [online(s, signal.signal, value) for s in range(30, 45)]
            found = [one.detections[name].triggered for one in default(taken)]
            assert found.index(True) - 29 <= (3 if strength == "saturation" else 6), signal


def online(second: int, signal: str, value: float) -> sample.Sample:
    field = signal.removeprefix("online.")
    group = {"psi": {field.removeprefix("psi."): value}} if field.startswith("psi.") else {field: value}
    return at(second, online=group)


# --- mco ---------------------------------------------------------------------------------------------------------


def test_mco_is_three_detections_over_node_wide_signals() -> None:
    mco = presets.get("mco")
    enabled = [name for name, rule in mco.detections.items() if rule.enabled]
    assert enabled == ["cachePollution", "ioCongestion", "memoryPressure"]
    for rule in mco.detections.values():
        for signal in rule.signals + rule.fallback_signals:
            assert not signal.signal.startswith("online.")
            assert (signal.condition, signal.scale, signal.supporting) == ("", "", False)
    assert mco.window_seconds == 10
    assert mco.hysteresis.hard_enter_for_seconds == 2
    assert presets.get("default").hysteresis.hard_enter_for_seconds == 30


@pytest.mark.parametrize(
    ("full", "some", "hard"),
    [(0.0, 0.6, []), (0.0001, 0.0, ["psiMemoryFull"]), (0.0, 0.61, ["psiIoSome"]), (0.00004, 0.60004, [])],
)
def test_mcos_hard_limits(full: float, some: float, hard: list[str]) -> None:
    taken = [at(s, psi={"memory_full_ratio": full, "io_some_ratio": some}) for s in range(6)]
    assert run(presets.get("mco"), taken)[-1].hard == hard


def test_the_default_excludes_after_30_s_of_memory_full_above_a_twentieth() -> None:
    found = default([at(s, psi={"memory_full_ratio": 0.06}) for s in range(40)])
    assert [one.hard for one in found].index(["psiMemoryFull"]) == 32


# --- the presets themselves --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", rules.PRESETS)
def test_every_signal_of_a_preset_is_in_order_and_has_its_reason(name: rules.PresetName) -> None:
    for detection, rule in presets.get(name).detections.items():
        for signal in rule.signals + rule.fallback_signals:
            facts = catalogue.find(signal.signal)
            points = (signal.normal, signal.threshold, signal.saturation)
            ordered = points if facts.direction == "rising" else points[::-1]
            assert ordered[0] < ordered[1] <= ordered[2] or (facts.direction == "falling" and points[0] > points[1])
            assert not facts.ratio or all(0 <= point <= 1 for point in points)
            assert signal.reason
            assert not signal.condition or signal.condition in registry.DETECTORS[detection].conditions


def test_every_detection_is_registered_once_with_its_page() -> None:
    assert set(registry.DETECTORS) == set(rules.DETECTIONS)
    for detector in registry.DETECTORS.values():
        for word in ("Predicate:", "Units:", "Source:", "Blind spots:", "A false positive"):
            assert word in detector.doc, (detector.name, word)
    with pytest.raises(ValueError, match="registered twice"):
        registry.register(registry.DETECTORS["ioCongestion"])


def test_unknown_everything_is_unknown_and_excludes_nobody() -> None:
    found = engine.Engine(presets.get("mco")).evaluate(at(0))
    assert (found.interference_level, found.bucket, found.coverage, found.hard) == (None, "unknown", 0.0, [])
