"""The rules of detection as data: ``DetectionRuleConfig`` (contracts §2), after a file was read onto a preset.

Each field carries its documentation, unit and bounds, from which the reader, the CRD schema and ``docs/rules.md``
are made. What only a preset can use (:attr:`SignalRule.scale`, ``condition``, ``supporting``, ``reason``) has no key
in a file: signals that a file lists follow the plain arithmetic.
"""

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Literal

from cotenant.model import evaluation

API_VERSION = "cotenant.io/v1alpha1"
KIND = "DetectionRuleConfig"
PERIOD_SECONDS = 1.0
"""The sampling period that a window is held against where nobody says another."""

PresetName = Literal["default", "mco"]
PRESETS: tuple[PresetName, ...] = ("default", "mco")
Scale = Literal["", "device"]

DETECTIONS: tuple[evaluation.DetectionName, ...] = (
    "cachePollution",
    "ioCongestion",
    "memoryPressure",
    "cpuContention",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """What is known of one key of a file: purpose, unit, inclusive bounds, an exclusive lower one, why its default."""

    doc: str
    unit: str = ""
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    reason: str = ""


def _key(doc: str, default: Any = dataclasses.MISSING, **known: Any) -> Any:
    metadata = {"key": Key(doc, **known)}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def keys(kind: type) -> dict[str, tuple[str, Key]]:
    """Return the keys that a file may give for one of these classes: its name there → field and what is known."""
    return {
        camel(field.name): (field.name, field.metadata["key"])
        for field in dataclasses.fields(kind)
        if "key" in field.metadata
    }


def camel(name: str) -> str:
    """Return a field's name as it is spelled in a file."""
    head, *tail = name.split("_")
    return head + "".join(word.capitalize() for word in tail)


@dataclasses.dataclass(frozen=True, slots=True)
class SignalRule:
    """One signal of a detection: index = clamp((value - normal) / (saturation - normal), 0, 1).

    For presets only: ``scale`` ``device`` takes the three numbers from the kind of each disk; ``condition`` names a
    condition of the detector that the signal counts under; a ``supporting`` signal adds to a detection that is known
    otherwise, and does not make it known.
    """

    signal: str = _key("Name of the signal, as in docs/signals.md.")
    normal: float = _key("Value at which the index is 0.", unit="the signal's")
    threshold: float = _key("Value at which the detection starts to trigger.", unit="the signal's")
    saturation: float = _key("Value at which the index is 1.", unit="the signal's")
    scale: Scale = ""
    condition: str = ""
    supporting: bool = False
    reason: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class DetectionRule:
    """One detection."""

    enabled: bool = _key("Whether the detection counts.", default=True)
    weight: float = _key("Share of the detection in the interference level.", default=0.25, minimum=0)
    signals: tuple[SignalRule, ...] = _key("Signals; the largest index is the detection's.", default=())
    fallback_signals: tuple[SignalRule, ...] = _key(
        "Used only while none of the online.* entries of signals is known (a list without any: while none of it is).",
        default=(),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class HardLimits:
    """Limits past which a node takes no new work. None is off."""

    psi_memory_full_ratio: float | None = _key(
        "Mean of psi.memory_full_ratio above which the node is excluded; null = off.",
        default=0.05,
        minimum=0,
        maximum=1,
        reason="a node where all tasks wait for memory 5 % of the time is thrashing; brief reclaim stays far below",
    )
    psi_io_some_ratio: float | None = _key(
        "Mean of psi.io_some_ratio above which the node is excluded; null = off.",
        default=None,
        minimum=0,
        maximum=1,
        reason="off: one sequential reader on a healthy, idle disk gives 0.7 and hurts nobody",
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Hysteresis:
    """How long a state must last before it is believed."""

    enter_for: int = _key(
        "Consecutive evaluations at or past a threshold before a detection triggers.",
        default=2,
        unit="evaluations",
        minimum=1,
        reason="one evaluation may be one burst; two cost a second, and the mean over the window damps the rest",
    )
    hard_enter_for_seconds: float = _key(
        "Time past a hard limit, without a break, before it is in force.",
        default=30.0,
        unit="s",
        minimum=0,
        reason="excluding a node costs capacity, so a start-up or a compaction must not do it",
    )
    leave_ratio: float = _key(
        "Calm is below max(normal, leaveRatio·threshold), of a falling signal above min(normal, threshold/leaveRatio).",
        default=0.8,
        above=0,
        maximum=1,
        reason="a fifth below the threshold is outside the noise of a mean over ten samples",
    )
    leave_for_seconds: float = _key(
        "Time that every known signal must be calm, without a break, before a detection ends.",
        default=10.0,
        unit="s",
        minimum=0,
        reason="one window: nothing of the incident is in the mean any more",
    )
    min_hold_seconds: float = _key(
        "Least time that a detection stays triggered.",
        default=20.0,
        unit="s",
        minimum=0,
        reason="twice the window, so that one incident in bursts is not reported as many",
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Guard:
    """What takes a change of rules back by itself."""

    max_excluded_fraction: float = _key(
        "Share of nodes past a hard limit beyond which a fresh change of rules is rolled back.",
        default=0.05,
        minimum=0,
        maximum=1,
        reason="the same share caps exclusions in each node pool",
    )
    trial_seconds: float = _key(
        "How long a change of rules is on trial.",
        default=120.0,
        unit="s",
        minimum=0,
        reason="hardEnterForSeconds, a window and the stream's lag fit in four times over",
    )


def _nothing() -> Mapping[Any, Any]:
    return types.MappingProxyType({})


@dataclasses.dataclass(frozen=True, slots=True)
class Rules:
    """One ``DetectionRuleConfig``, complete."""

    name: str
    preset: PresetName = _key("Rules that everything left out is taken from.", default="default")  # noqa: RUF009
    node_selector: Mapping[str, str] = _key(
        "Labels of the nodes that these rules are for; most requirements wins, then name. The object default has none.",
        default=_nothing,
    )
    window_seconds: float = _key(
        "Length of the window that every signal is averaged over; at least 3 periods.",
        default=10.0,
        unit="s",
        above=0,
        maximum=600,
        reason="long enough that one burst is a tenth of the mean, short enough to detect saturation in 3 s",
    )
    detections: Mapping[evaluation.DetectionName, DetectionRule] = _key("Detections by name.", default=_nothing)
    hard_limits: HardLimits = _key("Hard limits.", default=HardLimits)  # noqa: RUF009
    hysteresis: Hysteresis = _key("Hysteresis.", default=Hysteresis)  # noqa: RUF009
    guard: Guard = _key("Guard over changes of rules.", default=Guard)  # noqa: RUF009

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether a node with these labels is meant."""
        return all(labels.get(key) == value for key, value in self.node_selector.items())


def select(candidates: Mapping[str, Rules] | list[Rules], labels: Mapping[str, str]) -> Rules | None:
    """Return the rules for a node with these labels, or None when none match: most requirements wins, then name."""
    every = candidates.values() if isinstance(candidates, Mapping) else candidates
    matching = [rules for rules in every if rules.matches(labels)]
    return min(matching, key=lambda rules: (-len(rules.node_selector), rules.name), default=None)
