"""Contracts §3 once more, written from its text alone and with nothing of cotenant's: slow, plain, and independent.

Histogram keys are bucket numbers: bucket i holds (2^((i-1)/8), 2^(i/8)], and its geometric middle stands for it.
"""

import math
from typing import Any

FALLING = {"memory.available_ratio"}
HARD = {
    "psiMemoryFull": ("psiMemoryFullRatio", "psi.memory_full_ratio"),
    "psiIoSome": ("psiIoSomeRatio", "psi.io_some_ratio"),
}
BUCKETS = [("none", 0.0, 0.05), ("low", 0.05, 0.25), ("medium", 0.25, 0.5), ("high", 0.5, 0.75), ("severe", 0.75, 1.0)]
QUANTILES = {"block.p50_usec": 0.5, "block.p95_usec": 0.95, "block.p99_usec": 0.99}
IDLE = "idle"
"""The value of a percentile of no requests at all: known, index 0, not triggered."""


def field(sample: dict[str, Any], name: str) -> Any:
    """Return what a sample says under a dotted name, or None."""
    value: Any = sample
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def quantile(counts: dict[int, int], q: float) -> float:
    """Return the nearest-rank quantile of a histogram."""
    rank, seen = math.ceil(q * sum(counts.values()) - 1e-9), 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if seen >= max(rank, 1):
            return 2 ** ((bucket - 0.5) / 8)
    raise AssertionError("empty")


class Timers:
    """Whether something is in force, and for how long it has been so and calm. A pause counts for neither."""

    def __init__(self) -> None:
        self.on: bool | None = None
        self.run = 0
        self.since: float | None = None
        self.held = 0.0
        self.calm: float | None = None
        self.known_at: float | None = None

    def enter(self) -> None:
        self.on, self.held, self.calm, self.since, self.run = True, 0.0, None, None, 0

    def may_leave(self, calm: bool, step: float, hysteresis: dict[str, float]) -> bool:
        self.held += step
        self.calm = None if not calm else 0.0 if self.calm is None else self.calm + step
        long_enough = self.calm is not None and self.calm > hysteresis["leaveForSeconds"] - 1e-6
        return long_enough and self.held > hysteresis["minHoldSeconds"] - 1e-6


class Node:
    """The evaluation of one node's samples, one after another, by the ``spec`` of a file of rules that is complete."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.restart()

    def restart(self) -> None:
        self.window: list[dict[str, Any]] = []
        self.detections = {name: Timers() for name in self.spec["detections"]}
        self.hard = {name: Timers() for name in HARD}
        self.bucket: str | None = None
        self.boot: str | None = None

    def evaluate(self, sample: dict[str, Any]) -> dict[str, Any]:
        """Return what the contract says of the node at the end of this sample."""
        if self.boot not in (None, sample["boot_id"]):
            self.restart()
        self.boot = sample["boot_id"]
        self.now = sample["uptime_s"]
        step = self.now - self.window[-1]["uptime_s"] if self.window else 0.0
        self.window = [old for old in self.window if old["uptime_s"] > self.now - self.spec["windowSeconds"]] + [sample]
        enabled = {name: rule for name, rule in self.spec["detections"].items() if rule["enabled"]}
        found = {name: self.detect(name, rule, step) for name, rule in enabled.items()}
        known = [(enabled[name]["weight"], one) for name, one in found.items() if one["index"] is not None]
        weight = sum(w for w, _ in known)
        level = sum(w * one["index"] for w, one in known) / weight if weight else None
        covered = sum(w / 2 if one["only_fallback"] else w for w, one in known)
        return {
            "interferenceLevel": level,
            "coverage": covered / sum(rule["weight"] for rule in enabled.values()),
            "bucket": self.bucket_of(None if level is None else max(one["index"] for _, one in known)),
            "detections": found,
            "hard": [name for name in HARD if self.limited(name, step)],
        }

    def continuous(self, times: list[float]) -> bool:
        ends = [*times[1:], self.now]
        return len(times) >= 3 and all(later - earlier <= 3.15 for earlier, later in zip(times, ends, strict=True))

    def value(self, name: str) -> Any:
        """Return a signal's value over the window, IDLE, or None when it is unknown."""
        if name in QUANTILES and any(field(old, "block.histogram") is not None for old in self.window):
            return self.percentile(QUANTILES[name])
        known = [(old["uptime_s"], field(old, name)) for old in self.window if field(old, name) is not None]
        if not self.continuous([at for at, _ in known]):
            return None
        values = [value for _, value in known]
        return values[0] if len(set(values)) == 1 else math.fsum(values) / len(values)

    def percentile(self, q: float) -> Any:
        seen = [old for old in self.window if field(old, "block.histogram") is not None]
        if not self.continuous([old["uptime_s"] for old in seen]):
            return None
        counts: dict[int, int] = {}
        for old in seen:
            for bucket, count in old["block"]["histogram"].items():
                counts[int(bucket)] = counts.get(int(bucket), 0) + count
        if sum(counts.values()) >= 30:
            return quantile(counts, q)
        devices = [list(field(old, "block.devices").values()) for old in seen]
        age = sum(max(d["oldest_in_flight_usec"] or 0.0 for d in row) for row in devices) / len(seen)
        if not counts:
            return age or IDLE
        return max(quantile(counts, 0.5), age)

    def detect(self, name: str, rule: dict[str, Any], step: float) -> dict[str, Any]:
        direct = {s["signal"]: (s, v) for s in rule["signals"] if (v := self.value(s["signal"])) is not None}
        online = [s["signal"] for s in rule["signals"] if s["signal"].startswith("online.")]
        first = [s for s in direct if s in online] if online else list(direct)
        standing_in = [] if first else rule["fallbackSignals"]
        known = direct | {s["signal"]: (s, v) for s in standing_in if (v := self.value(s["signal"])) is not None}
        indexes = {}
        for signal, (points, value) in known.items():
            whole = points["saturation"] - points["normal"]
            indexes[signal] = 0.0 if value == IDLE else min(1.0, max(0.0, (value - points["normal"]) / whole))
        self.count(name, known, step)
        return {
            "index": max(indexes.values(), default=None),
            "triggered": self.detections[name].on,
            "values": {signal: None if value == IDLE else value for signal, (_, value) in known.items()},
            "only_fallback": not direct,
        }

    def count(self, name: str, known: dict[str, Any], step: float) -> None:
        timers, hysteresis = self.detections[name], self.spec["hysteresis"]
        if not known:
            timers.run = 0
            if timers.known_at is None or self.now - timers.known_at >= hysteresis["leaveForSeconds"]:
                timers.on = None
            return
        timers.known_at = self.now
        reached, calm = False, True
        for signal, (points, value) in known.items():
            threshold, normal, ratio = points["threshold"], points["normal"], hysteresis["leaveRatio"]
            if value == IDLE:
                continue
            if signal in FALLING:
                reached |= value <= threshold + 1e-9
                calm &= value > min(normal, threshold / ratio) + 1e-9
            else:
                reached |= value >= threshold - 1e-9
                calm &= value < max(normal, ratio * threshold) - 1e-9
        if timers.on:
            if timers.may_leave(calm, step, hysteresis):
                timers.on, timers.run = False, 0
            return
        timers.on = False
        timers.run = timers.run + 1 if reached else 0
        if timers.run >= hysteresis["enterFor"]:
            timers.enter()

    def limited(self, name: str, step: float) -> bool:
        key, signal = HARD[name]
        limit, timers, hysteresis = self.spec["hardLimits"][key], self.hard[name], self.spec["hysteresis"]
        mean = None if limit is None else self.value(signal)
        if limit is None or mean is None:
            self.hard[name] = Timers()
            return False
        rounded = math.floor(mean * 10_000 + 0.5) / 10_000
        if timers.on:
            if timers.may_leave(rounded <= hysteresis["leaveRatio"] * limit + 1e-9, step, hysteresis):
                self.hard[name] = Timers()
        elif rounded <= limit:
            timers.since = None
        else:
            timers.since = self.now if timers.since is None else timers.since
            if self.now - timers.since >= hysteresis["hardEnterForSeconds"]:
                timers.enter()
        return bool(self.hard[name].on)

    def bucket_of(self, index: float | None) -> str:
        if index is None:
            self.bucket = None
            return "unknown"
        index = round(index, 12)  # 0.2 / 0.8 is a hair less than a quarter in binary, and means one
        plain = next(name for name, _, upper in BUCKETS if index < upper or upper == 1.0)
        for name, lower, upper in BUCKETS:
            if name == self.bucket and lower - (upper - lower) / 5 <= index < lower:
                plain = name  # not yet a fifth of its width below it
        self.bucket = plain
        return plain
