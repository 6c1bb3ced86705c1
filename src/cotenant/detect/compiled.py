"""Rules made ready for one evaluation after another: which columns a window needs, and each signal's three points.

What an entry reads and shows while it is unknown is made once: on most nodes half of the signals are.
"""

import dataclasses
import operator
from collections.abc import Callable
from typing import Any

import msgspec

from cotenant.detect import catalogue, registry, rules
from cotenant.model import evaluation, sample
from cotenant.units import grain

HARD_LIMITS: dict[evaluation.HardLimit, str] = {
    "psiMemoryFull": "psi.memory_full_ratio",
    "psiIoSome": "psi.io_some_ratio",
}
"""Hard limits, and the signal whose mean each is for."""

_BLOCK_PERCENTILES = {"block.p50_usec": 0, "block.p95_usec": 1, "block.p99_usec": 2}
_DEVICE_PERCENTILES = {"p50_usec": 0, "p95_usec": 1, "p99_usec": 2}
_SHARES = ("memory.refault_per_sec", "memory.swap_out_per_sec")


class Reading(msgspec.Struct, frozen=True, gc=False):
    """One signal. ``index`` None: unknown, or its condition cannot be told."""

    value: float | None
    index: float | None
    threshold: float
    reached: bool = False
    calm: bool = True

    def state(self) -> evaluation.SignalState:
        """Return what an evaluation shows of it."""
        return evaluation.SignalState(value=self.value, index=self.index, threshold=self.threshold)


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One signal of one list. Either ``column`` or ``percentile`` is set.

    ``reach`` is where it is at its threshold, ``leave`` what it must be past to be calm. ``device`` names the disk
    whose percentile is meant, None for all together.
    """

    rule: rules.SignalRule
    falling: bool
    online: bool
    reach: float
    leave: float
    condition: registry.Condition | None
    names: tuple[str, ...]
    """The signal, and the groups that it is in: any of them may be missing from a sample."""
    unknown: Reading
    unknown_state: evaluation.SignalState
    column: int | None = None
    percentile: int | None = None
    device: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class CompiledDetection:
    """One enabled detection."""

    name: evaluation.DetectionName
    weight: float
    signals: tuple[Entry, ...]
    fallback: tuple[Entry, ...]
    has_online: bool


class Compiled:
    """One set of rules, shared by all the nodes that it is for."""

    def __init__(self, source: rules.Rules) -> None:
        self.rules = source
        enabled = {name: rule for name, rule in source.detections.items() if rule.enabled}
        entries = [entry for rule in enabled.values() for entry in (*rule.signals, *rule.fallback_signals)]
        by_device = any(entry.scale == "device" for entry in entries)
        conditions = {
            (name, key): condition for name in enabled for key, condition in registry.DETECTORS[name].conditions.items()
        }
        plain = list(HARD_LIMITS.values())
        plain += [entry.signal for entry in entries if not _is_percentile(entry.signal)]
        plain += [need for condition in conditions.values() for need in condition.needs]
        plain += _SHARES if any(entry.condition for entry in entries) else ()
        ordinary = [name for name in dict.fromkeys(plain) if not name.startswith(catalogue.DEVICES)]
        devices = [name for name in dict.fromkeys(plain) if name.startswith(catalogue.DEVICES)]
        self.columns = {name: index for index, name in enumerate([*ordinary, *devices])}
        self._ordinary: Callable[[sample.Sample], Any] = operator.attrgetter(*ordinary)
        self._devices = [_device_field(name) for name in devices]
        self.uses_block = any(entry.signal in _BLOCK_PERCENTILES and not entry.scale for entry in entries)
        self.stands_in_block = by_device
        self.uses_disks = by_device or any(
            entry.condition or entry.signal.startswith(catalogue.DEVICES) for entry in entries
        )
        self.detections = tuple(
            self._detection(name, enabled[name], conditions) for name in rules.DETECTIONS if name in enabled
        )
        self.weight = sum(detection.weight for detection in self.detections)
        self.hard: dict[evaluation.HardLimit, float | None] = {
            "psiMemoryFull": source.hard_limits.psi_memory_full_ratio,
            "psiIoSome": source.hard_limits.psi_io_some_ratio,
        }

    def values(self, taken: sample.Sample) -> tuple[float | None, ...]:
        """Return a sample's row for the window: one value for each of :attr:`columns`."""
        row: tuple[float | None, ...] = self._ordinary(taken)
        if not self._devices:
            return row
        disks = taken.block.devices
        return row + tuple(
            getattr(disks[device], field) if device in disks else None for device, field in self._devices
        )

    def _detection(
        self,
        name: evaluation.DetectionName,
        rule: rules.DetectionRule,
        conditions: dict[tuple[evaluation.DetectionName, str], registry.Condition],
    ) -> CompiledDetection:
        def entry(signal: rules.SignalRule) -> Entry:
            facts = catalogue.find(signal.signal)
            ratio = self.rules.hysteresis.leave_ratio
            falling = facts.direction == "falling"
            device, field = _device_field(signal.signal) if signal.signal.startswith(catalogue.DEVICES) else (None, "")
            percentile = _DEVICE_PERCENTILES.get(field) if device else _BLOCK_PERCENTILES.get(signal.signal)
            unknown = Reading(None, None, signal.threshold)
            return Entry(
                rule=signal,
                falling=falling,
                online=facts.online,
                reach=at_or_past(signal.threshold, falling),
                leave=at_or_past(leave_point(signal.normal, signal.threshold, ratio, falling), falling),
                condition=conditions[name, signal.condition] if signal.condition else None,
                names=name_and_groups(signal.signal),
                unknown=unknown,
                unknown_state=unknown.state(),
                column=self.columns.get(signal.signal),
                percentile=percentile,
                device=device,
            )

        signals = tuple(entry(signal) for signal in rule.signals)
        return CompiledDetection(
            name=name,
            weight=rule.weight,
            signals=signals,
            fallback=tuple(entry(signal) for signal in rule.fallback_signals),
            has_online=any(entry.online for entry in signals),
        )


def name_and_groups(signal: str) -> tuple[str, ...]:
    """Return a signal's name and those of the groups that it is in, innermost first."""
    parts = signal.split(".")
    return tuple(".".join(parts[:length]) for length in range(len(parts), 0, -1))


def leave_point(normal: float, threshold: float, leave_ratio: float, falling: bool) -> float:
    """Return the value past which, not at which, a signal is calm again."""
    return min(normal, threshold / leave_ratio) if falling else max(normal, leave_ratio * threshold)


def at_or_past(point: float, falling: bool) -> float:
    """Return the point a hair earlier, so that the last digit of a mean does not lead astray."""
    return point + grain.RATIO * abs(point) if falling else point - grain.RATIO * abs(point)


def _device_field(name: str) -> tuple[str, str]:
    device, _, field = name.removeprefix(catalogue.DEVICES).rpartition(".")
    return device, field


def _is_percentile(name: str) -> bool:
    if name.startswith(catalogue.DEVICES):
        return _device_field(name)[1] in _DEVICE_PERCENTILES
    return name in _BLOCK_PERCENTILES
