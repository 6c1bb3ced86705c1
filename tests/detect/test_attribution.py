from typing import Any

import pytest
from tests.detect.samples import at

from cotenant.detect import engine, presets
from cotenant.model import evaluation

Groups = list[dict[str, Any]]


def incident(
    detection: evaluation.DetectionName, calm: Groups, pressed: Groups, calm_s: int = 60, **more: Any
) -> evaluation.Detection:
    """Return a detection 20 s into pressure that follows calm time."""
    quiet = {"block.": 500.0, "memory": 0.0, "queue": 200.0}
    hot = {"block.": 90_000.0, "memory": 0.6, "queue": 60_000.0}
    judge = engine.Engine(presets.get("default"))
    found = None
    for second in range(calm_s + 20):
        levels, groups = (quiet, calm) if second < calm_s else (hot, pressed)
        which = {"ioCongestion": "block.", "memoryPressure": "memory", "cpuContention": "queue"}[detection]
        online = {
            "block_p99_usec": levels["block."] if which == "block." else 500.0,
            "run_queue_latency_p99_usec": levels["queue"] if which == "queue" else 200.0,
            "psi": {"memory_some_ratio": levels["memory"] if which == "memory" else 0.0},
        }
        found = judge.evaluate(at(second, online=online, cgroups=groups, **more))
    assert found is not None
    assert found.detections[detection].triggered
    return found.detections[detection]


def web(**more: Any) -> dict[str, Any]:
    return {"path": "system.slice/web.service", "class": "online", **more}


def batch(path: str = "batch.slice/scan", **more: Any) -> dict[str, Any]:
    return {"path": path, "class": "offline", **more}


def names(detection: evaluation.Detection) -> tuple[list[str], list[str]]:
    return [v.name for v in detection.victims], [s.name for s in detection.suspects]


def test_the_victim_stalls_and_the_suspects_bytes_rose() -> None:
    found = incident(
        "ioCongestion",
        [web(psi={"io_some_ratio": 0.0}), batch(read_bytes_per_sec=0.0)],
        [web(psi={"io_some_ratio": 0.6}, block_p99_usec=90_000), batch(read_bytes_per_sec=4e8)],
    )
    assert names(found) == (["system.slice/web.service"], ["batch.slice/scan"])
    assert found.victims[0].evidence == "block p99 90.0 ms, I/O stall 60 %"
    assert found.suspects[0].confidence == 1.0
    assert found.suspects[0].evidence == "block I/O rose from 0 B/s to 381.5 MiB/s, 100 % of the rise of all"


def test_who_used_the_resource_all_along_is_not_suspected() -> None:
    found = incident(
        "ioCongestion",
        [batch("a", read_bytes_per_sec=3e8), batch("b", read_bytes_per_sec=0.0)],
        [batch("a", read_bytes_per_sec=3e8), batch("b", write_bytes_per_sec=2e8)],
    )
    assert names(found)[1] == ["b"]


def test_who_did_not_use_the_resource_is_never_suspected() -> None:
    found = incident(
        "ioCongestion",
        [batch("a", cpu_used_ratio=0.0), web()],
        [batch("a", cpu_used_ratio=0.9, read_bytes_per_sec=0.0), batch("b"), web(psi={"io_some_ratio": 0.9})],
    )
    assert found.suspects == []


def test_weak_evidence_names_nobody() -> None:
    many = [batch(f"g{n}", read_bytes_per_sec=0.0) for n in range(8)]
    found = incident("ioCongestion", many, [{**one, "read_bytes_per_sec": 1e7} for one in many])
    assert found.suspects == []


def test_what_the_kernel_charges_to_nobody_weakens_the_evidence() -> None:
    disk = {"kind": "ssd", "completions": 500, "p99_usec": 500, "write_bytes_per_sec": 5e8, "read_bytes_per_sec": 0.0}
    calm, pressed = [batch(write_bytes_per_sec=0.0)], [batch(write_bytes_per_sec=5e7)]
    assert names(incident("ioCongestion", calm, pressed))[1] == ["batch.slice/scan"]
    found = incident("ioCongestion", calm, pressed, block={"devices": {"a": {**disk}}})
    # The disks' own rise is known only against calm time: here they wrote as much before.
    assert names(found)[1] == ["batch.slice/scan"]


def test_a_parents_use_is_its_childrens() -> None:
    found = incident(
        "ioCongestion",
        [batch("batch.slice", read_bytes_per_sec=0.0), batch("batch.slice/a", read_bytes_per_sec=0.0)],
        [batch("batch.slice", read_bytes_per_sec=4e8), batch("batch.slice/a", read_bytes_per_sec=4e8)],
    )
    assert names(found)[1] == ["batch.slice/a"]


def test_the_root_is_nobody() -> None:
    found = incident("ioCongestion", [], [{"path": "/", "read_bytes_per_sec": 9e8}, {"path": "", "class": None}])
    assert found.suspects == []


def test_a_victim_is_no_suspect_and_offline_work_comes_first() -> None:
    found = incident(
        "ioCongestion",
        [],
        [
            web(psi={"io_some_ratio": 0.6}, read_bytes_per_sec=4e8),
            batch(read_bytes_per_sec=4e8),
            {"path": "backup", "class": "system", "read_bytes_per_sec": 4e8},
        ],
    )
    assert names(found) == (["system.slice/web.service"], ["batch.slice/scan"])


def test_offline_groups_that_stall_are_not_victims() -> None:
    found = incident("ioCongestion", [], [batch(psi={"io_some_ratio": 0.9}, read_bytes_per_sec=4e8)])
    assert names(found) == ([], ["batch.slice/scan"])


def test_groups_are_named_by_their_name_where_they_have_one() -> None:
    found = incident(
        "ioCongestion",
        [],
        [web(name="shop/web", psi={"io_some_ratio": 0.6}), batch(name="jobs/scan", read_bytes_per_sec=4e8)],
    )
    assert names(found) == (["shop/web"], ["jobs/scan"])


def test_a_name_that_two_groups_have_says_nothing_so_they_are_named_by_their_paths() -> None:
    groups = [batch("a/scan", name="scan"), batch("b/scan", name="scan")]
    pressed = [{**groups[0], "read_bytes_per_sec": 4e8}, {**groups[1], "read_bytes_per_sec": 0.0}]
    assert names(incident("ioCongestion", groups, pressed))[1] == ["a/scan"]


def test_without_calm_time_confidence_is_lower_and_the_evidence_says_so() -> None:
    found = incident("ioCongestion", [], [batch(read_bytes_per_sec=4e8)], calm_s=0)
    assert found.suspects[0].confidence == 0.7
    assert found.suspects[0].evidence == "block I/O 381.5 MiB/s, 100 % of all; no calm time was seen before"


def test_memory_is_blamed_on_refaults_and_growth() -> None:
    calm = [batch("a", refault_per_sec=0.0, memory_bytes=1 << 30), batch("b", memory_bytes=1 << 30)]
    thrash = [batch("a", refault_per_sec=9_000.0, memory_bytes=1 << 30), batch("b", memory_bytes=1 << 30)]
    assert names(incident("memoryPressure", calm, thrash))[1] == ["a"]
    grown = [batch("a", refault_per_sec=0.0, memory_bytes=1 << 30), batch("b", memory_bytes=8 << 30)]
    found = incident("memoryPressure", calm, grown)
    assert names(found)[1] == ["b"]
    assert found.suspects[0].evidence == "memory growth rose from 1.0 GiB to 8.0 GiB, 100 % of the rise of all"


def test_cpu_is_blamed_on_use_and_a_throttled_group_is_no_victim() -> None:
    calm = [web(cpu_used_ratio=0.1), batch(cpu_used_ratio=0.0)]
    throttled = web(cpu_used_ratio=0.1, throttled_ratio=0.9, psi={"cpu_some_ratio": 0.9})
    waits = {"path": "other", "class": "online", "run_queue_latency_p99_usec": 60_000, "throttled_ratio": 0.0}
    found = incident("cpuContention", calm, [throttled, waits, batch(cpu_used_ratio=0.9)])
    assert names(found) == (["other"], ["batch.slice/scan"])
    assert found.suspects[0].evidence == "CPU rose from 0 % to 90 %, 100 % of the rise of all"


@pytest.mark.parametrize("classes", ["online", "offline"])
def test_calm_detections_blame_nobody(classes: str) -> None:
    groups = [{"path": "a", "class": classes, "read_bytes_per_sec": 9e8, "psi": {"io_some_ratio": 0.9}}]
    judge = engine.Engine(presets.get("default"))
    for second in range(20):
        found = judge.evaluate(at(second, online={"block_p99_usec": 500.0}, cgroups=groups))
    assert all(not detection.victims and not detection.suspects for detection in found.detections.values())
