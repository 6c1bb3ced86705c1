"""How a detection is registered: its name, its presets, the conditions of its preset signals, and who is suspected.

A detection is one file under ``cotenant.detect.detectors``. Its module docstring is its documentation: the predicate,
units, source, blind spots, and what a false positive costs.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Protocol

from cotenant.detect import rules
from cotenant.model import evaluation, sample


class View(Protocol):
    """What a condition may look at: means over the window of one node."""

    def mean(self, signal: str) -> float | None:
        """Return the mean of a signal over the window, or None when it is unknown."""
        ...

    def latency_share(self) -> float | None:
        """Return how far the disks' latency is from normal (0) to the threshold (1 and beyond), or None if unknown."""
        ...

    def refault_share(self) -> float | None:
        """Return the share (0..1) of what the disks read that was read for the second time, or None if unknown."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Condition:
    """When a preset's signal counts: a factor on its index in 0..1, or None when that cannot be told.

    The signal can trigger only while the factor is at least a half. ``needs`` are the signals whose means it looks at.
    """

    text: str
    needs: tuple[str, ...]
    factor: Callable[[View], float | None]


@dataclasses.dataclass(frozen=True, slots=True)
class Measure:
    """One way in which a group uses a resource or is hurt: its name, how much (None: unknown), and what is too little.

    ``total`` is the same of the whole node, so that a group is held against what nobody is charged for too. ``growth``
    values are of interest by their growth alone: without a calm baseline they say nothing.
    """

    name: str
    unit: str
    value: Callable[[sample.Cgroup], float | None]
    least: float
    total: Callable[[sample.Sample], float | None] | None = None
    growth: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Detector:
    """One detection."""

    name: evaluation.DetectionName
    title: str
    presets: Mapping[rules.PresetName, rules.DetectionRule]
    conditions: Mapping[str, Condition]
    uses: tuple[Measure, ...]
    stalls: tuple[Measure, ...]
    doc: str


DETECTORS: dict[evaluation.DetectionName, Detector] = {}


def register(detector: Detector) -> Detector:
    """Add a detection; its module's docstring is ``detector.doc``."""
    if detector.name in DETECTORS:
        raise ValueError(f"detection {detector.name} is registered twice")
    DETECTORS[detector.name] = detector
    return detector
