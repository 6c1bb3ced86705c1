"""``cotenant replay`` against the reference: random hours of many nodes, and what is promised of its output."""

import json
import math
import random
from collections.abc import Iterator
from typing import Any

import pytest
from tests.contracts import reference
from tests.contracts.console import cotenant, cotenant_text

pytestmark = pytest.mark.slow

ROWS = {  # signal: normal, threshold, saturation
    "llc.mpki": (5, 20, 100),
    "block.p99_usec": (5000, 20000, 100000),
    "psi.io_some_ratio": (0.1, 0.3, 0.8),
    "online.psi.memory_some_ratio": (0.02, 0.1, 0.5),
    "memory.available_ratio": (0.3, 0.1, 0.02),
    "psi.memory_some_ratio": (0.02, 0.1, 0.5),
    "online.psi.cpu_some_ratio": (0.05, 0.2, 1),
    "online.run_queue_latency_p99_usec": (2000, 8000, 40000),
    "psi.cpu_some_ratio": (0.3, 0.5, 1),
    "cpu.steal_ratio": (0.02, 0.1, 0.5),
}


def _listed(*names: str) -> list[dict[str, Any]]:
    return [dict(zip(("signal", "normal", "threshold", "saturation"), (n, *ROWS[n]), strict=True)) for n in names]


def _detection(weight: float, signals: list[dict[str, Any]], fallback: list[dict[str, Any]]) -> dict[str, Any]:
    return {"enabled": True, "weight": weight, "signals": signals, "fallbackSignals": fallback}


SPEC = {
    "windowSeconds": 10,
    "detections": {
        "cachePollution": _detection(0.2, _listed("llc.mpki"), []),
        "ioCongestion": _detection(0.3, _listed("block.p99_usec"), _listed("psi.io_some_ratio")),
        "memoryPressure": _detection(
            0.3,
            _listed("online.psi.memory_some_ratio", "memory.available_ratio"),
            _listed("psi.memory_some_ratio"),
        ),
        "cpuContention": _detection(
            0.2,
            _listed("online.psi.cpu_some_ratio", "online.run_queue_latency_p99_usec"),
            _listed("psi.cpu_some_ratio", "cpu.steal_ratio"),
        ),
    },
    "hardLimits": {"psiMemoryFullRatio": 0.05, "psiIoSomeRatio": 0.6},
    "hysteresis": {
        "enterFor": 2,
        "hardEnterForSeconds": 8,
        "leaveRatio": 0.8,
        "leaveForSeconds": 5,
        "minHoldSeconds": 12,
    },
}
RULES = {"apiVersion": "cotenant.io/v1alpha1", "kind": "DetectionRuleConfig", "metadata": {"name": "t"}, "spec": SPEC}
SIGNALS = [*ROWS, "psi.memory_full_ratio"]


def _put(sample: dict[str, Any], name: str, value: Any) -> None:
    *groups, last = name.split(".")
    for group in groups:
        sample = sample.setdefault(group, {})
    sample[last] = value


def _sample(node: str, second: float, boot: str = "b0", **groups: Any) -> dict[str, Any]:
    clock = f"{int(second) // 3600 % 24:02}:{int(second) // 60 % 60:02}:{int(second) % 60:02}"
    return {
        "node": node,
        "boot_id": boot,
        "uptime_s": 1000.0 + second,
        "time": f"2026-11-30T{clock}.000Z",
        "period_s": 1.0,
        **groups,
    }


def _trace(rng: random.Random, node: str, count: int, gaps: bool, steps: bool, disk: bool) -> Iterator[dict[str, Any]]:
    """Yield samples whose values move in steps (so that they stand at thresholds too), or wander; some unknown."""
    choices = {n: ROWS.get(n, (0.0, 0.05, 0.2)) for n in SIGNALS}
    values = {n: rng.choice(choices[n]) for n in SIGNALS}
    unknown = {n: rng.random() < 0.2 for n in SIGNALS}
    second, boot, octave, requests, age = 0.0, 0, 80, 3, None
    for _ in range(count):
        if gaps and rng.random() < 0.03:
            second += rng.choice([1, 2, 3, 4, 9, 15])
        if gaps and rng.random() < 0.005:
            boot += 1
        sample = _sample(node, second, f"b{boot}")
        for name in SIGNALS:
            low, _, high = sorted(choices[name])
            if rng.random() < 0.06:
                values[name] = rng.choice(choices[name]) if steps else rng.uniform(low * 0.5, high)
            if rng.random() < 0.03:
                unknown[name] = not unknown[name]
            if not unknown[name]:
                _put(sample, name, values[name] if steps else values[name] * rng.uniform(0.8, 1.0))
            elif rng.random() < 0.5:
                _put(sample, name, None)
        sample.setdefault("block", {})
        if disk:
            octave = rng.randrange(60, 140) if rng.random() < 0.05 else octave
            requests = rng.choice([0, 0, 1, 3, 20, 100]) if rng.random() < 0.05 else requests
            age = rng.choice([None, None, 3000, 30000, 200000]) if rng.random() < 0.05 else age
            counts: dict[str, int] = {}
            for _ in range(requests):
                bucket = str(octave + rng.randrange(-4, 5))
                counts[bucket] = counts.get(bucket, 0) + 1
            device = {"kind": "ssd", "in_flight": 0 if age is None else 1, "oldest_in_flight_usec": age}
            sample["block"] = {"completions": requests, "histogram": counts, "devices": {"vda": device}}
        yield sample
        second += 1


def _near(ours: Any, reference_value: Any) -> bool:
    if ours is None or reference_value is None:
        return ours is None and reference_value is None
    return math.isclose(ours, reference_value, rel_tol=1e-6, abs_tol=1e-6)


@pytest.mark.parametrize(("seed", "gaps", "steps"), [(1, False, False), (2, True, False), (3, False, True)])
def test_every_line_is_what_the_contract_says(tmp_path, seed: int, gaps: bool, steps: bool) -> None:
    rng = random.Random(seed)
    traces = [_trace(rng, f"n{n}", 250, gaps, steps, disk=n % 2 == 0) for n in range(8)]
    lines: list[dict[str, Any]] = []
    while traces:
        trace = rng.choice(traces)
        sample = next(trace, None)
        if sample is None:
            traces.remove(trace)
        else:
            lines.append(sample)
    (tmp_path / "rules.json").write_text(json.dumps(RULES))
    (tmp_path / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    said = cotenant_text("replay", tmp_path / "samples.jsonl", "--rules", tmp_path / "rules.json", "--json")
    nodes: dict[str, reference.Node] = {}
    triggers = 0
    for sample, found in zip(lines, map(json.loads, said.splitlines()), strict=True):
        wanted = nodes.setdefault(sample["node"], reference.Node(SPEC)).evaluate(sample)
        place = f"{sample['node']} at {sample['uptime_s']}"
        assert (found["node"], found["time"]) == (sample["node"], sample["time"])
        assert _near(found["interferenceLevel"], wanted["interferenceLevel"]), place
        assert _near(found["coverage"], wanted["coverage"]), place
        assert (found["bucket"], found["hard"]) == (wanted["bucket"], wanted["hard"]), place
        for name, one in wanted["detections"].items():
            ours = found["detections"][name]
            assert _near(ours["index"], one["index"]), (place, name)
            assert ours["triggered"] is one["triggered"], (place, name)
            known = {s: v["value"] for s, v in ours["signals"].items() if v["index"] is not None}
            assert known.keys() == one["values"].keys(), (place, name)
            assert all(_near(known[s], one["values"][s]) for s in known), (place, name)
            triggers += one["triggered"] is True
    assert triggers > 100  # the traces are worth comparing


def test_the_same_bytes_every_time(tmp_path) -> None:
    rng = random.Random(7)
    lines = list(_trace(rng, "n", 60, True, False, True))
    (tmp_path / "s.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert cotenant_text("replay", tmp_path / "s.jsonl", "--json") == cotenant_text(
        "replay", tmp_path / "s.jsonl", "--json"
    )


def _replay(tmp_path, lines: list[Any], *options: Any) -> Any:
    text = b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines)
    (tmp_path / "s.jsonl").write_bytes(text)
    return cotenant("replay", tmp_path / "s.jsonl", "--json", *options)


def test_null_is_absent_and_unknown_keys_are_ignored(tmp_path) -> None:
    groups = ("psi", "block", "memory", "cpu", "llc", "net", "online", "offline", "cgroups", "missing", "boot_id")
    bare = [{k: v for k, v in _sample("n", s).items() if k != "boot_id"} for s in range(4)]
    nulls = [one | dict.fromkeys(groups) | {"online": {"psi": None}} for one in bare]
    strange = [one | {"future": {"a": 1}, "psi": {"gpu_some_ratio": 0.5}} for one in bare]
    outputs = {_replay(tmp_path, lines).stdout for lines in (bare, nulls, strange)}
    assert len(outputs) == 1


def test_a_count_may_be_written_as_130_0(tmp_path) -> None:
    whole = [_sample("n", s, block={"completions": 130, "p99_usec": 9e5}) for s in range(4)]
    float_ = [_sample("n", s, block={"completions": 130.0, "p99_usec": 9e5}) for s in range(4)]
    assert _replay(tmp_path, whole).stdout == _replay(tmp_path, float_).stdout


def test_numbers_of_any_size_are_taken(tmp_path) -> None:
    psi = {"io_some_ratio": 1e308, "memory_full_ratio": 1e308}
    lines = [_sample("n", s, psi=psi | {"cpu_some_ratio": 1e308 if s % 2 else 9e307}) for s in range(6)]
    done = _replay(tmp_path, lines)
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 6)


def test_a_last_line_cut_short_is_left_out_and_named(tmp_path) -> None:
    lines: list[Any] = [_sample("n", s) for s in range(3)]
    done = _replay(tmp_path, [*lines, json.dumps(_sample("n", 3)).encode()[:-20]])
    assert done.returncode == 3
    assert len(done.stdout.splitlines()) == 3
    assert len(done.stderr.splitlines()) == 1
    assert "s.jsonl:4: " in done.stderr


def test_a_line_that_is_no_sample_ends_it_with_its_place(tmp_path) -> None:
    for bad in (b"garbage\n", b"[1]\n", b'{"node":"n","time":"x","psi":{"io_some_ratio":"high"}}\n', b"\xff\xfe\n"):
        done = _replay(tmp_path, [_sample("n", 0), bad, _sample("n", 2)])
        assert (done.returncode, len(done.stdout.splitlines()), len(done.stderr.splitlines())) == (2, 1, 1)
        assert "s.jsonl:2: " in done.stderr


@pytest.mark.parametrize("frozen", [{"uptime_s": 7.0}, {"uptime_s": None}])
def test_time_goes_on_where_the_monotonic_clock_says_nothing(tmp_path, frozen: dict[str, Any]) -> None:
    calm, hurt = {"memory_full_ratio": 0.0}, {"memory_full_ratio": 0.2}
    lines = [_sample("n", s, psi=hurt if 20 <= s < 60 else calm) | frozen for s in range(120)]
    done = _replay(tmp_path, lines)
    hard = [bool(json.loads(line)["hard"]) for line in done.stdout.splitlines()]
    # Past 0.05 from the mean of 22 on; 30 s later in force; at most 0.04 from 67 on, 10 s later lifted.
    assert (hard.index(True), len(hard) - hard[::-1].index(True)) == (52, 77)


@pytest.mark.parametrize("said", [{"in_flight": 1}, {}])
def test_a_disk_that_completes_nothing_is_calm_only_if_nothing_waits(tmp_path, said: dict[str, Any]) -> None:
    def last(device: dict[str, Any]) -> Any:
        block = {"completions": 0, "histogram": {}, "devices": {"vda": {"kind": "ssd", "completions": 0} | device}}
        (tmp_path / "rules.json").write_text(json.dumps(RULES))
        done = _replay(tmp_path, [_sample("n", s, block=block) for s in range(5)], "--rules", tmp_path / "rules.json")
        found = json.loads(done.stdout.splitlines()[-1])["detections"]["ioCongestion"]
        return found["triggered"], found["index"]

    assert last({"in_flight": 0}) == (False, 0.0)
    assert last({"in_flight": 1}) == (None, None)  # since when, nobody knows
    assert last(said | {"oldest_in_flight_usec": 100_000}) == (True, 1.0)
