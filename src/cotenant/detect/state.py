"""The states that outlive one evaluation: a detection, a hard limit, a bucket. Contracts §3.

Times are seconds of the node's monotonic clock; ``step_s`` is the time since the evaluation before.
"""

import dataclasses
import math
from typing import Literal

from cotenant.detect import rules
from cotenant.model import evaluation
from cotenant.units import grain

CALM_INDEX = 0.25
"""Below it, and known, a node is calm enough to learn what its groups usually use."""

_BOUNDS: tuple[tuple[evaluation.Bucket, float, float], ...] = (
    ("none", 0.0, 0.05),
    ("low", 0.05, 0.25),
    ("medium", 0.25, 0.5),
    ("high", 0.5, 0.75),
    ("severe", 0.75, 1.0),
)
_HYSTERESIS = 0.2
"""A bucket is left downwards only a fifth of its own width below its lower bound."""


@dataclasses.dataclass(slots=True)
class Leaving:
    """The two timers of something that is in force: for how long it has been, and for how long it has been calm."""

    held_s: float = 0.0
    calm_s: float | None = None

    def over(self, calm: bool, step_s: float, hysteresis: rules.Hysteresis) -> bool:
        """Count one evaluation; return whether it has been calm and in force for long enough to end."""
        self.held_s += step_s
        if not calm:
            self.calm_s = None
            return False
        self.calm_s = 0.0 if self.calm_s is None else self.calm_s + step_s
        return (
            self.calm_s >= hysteresis.leave_for_seconds - grain.SECONDS
            and self.held_s >= hysteresis.min_hold_seconds - grain.SECONDS
        )


@dataclasses.dataclass(slots=True)
class DetectionState:
    """Whether one detection is triggered; None when nothing was known for ``leaveForSeconds``, or ever."""

    triggered: bool | None = None
    _reached: int = 0
    _leaving: Leaving = dataclasses.field(default_factory=Leaving)
    _known_at: float | None = None

    def unknown(self, at: float, hysteresis: rules.Hysteresis) -> None:
        """Count an evaluation in which no signal is known: the timers stand still."""
        self._reached = 0
        if self._known_at is None or at - self._known_at >= hysteresis.leave_for_seconds - grain.SECONDS:
            self.triggered = None

    def known(self, at: float, step_s: float, reached: bool, calm: bool, hysteresis: rules.Hysteresis) -> None:
        """Count an evaluation: whether some signal is at or past its threshold, and whether each is calm."""
        self._known_at = at
        if self.triggered:
            if self._leaving.over(calm, step_s, hysteresis):
                self.triggered = False
                self._reached = 0
            return
        self.triggered = False
        self._reached = self._reached + 1 if reached else 0
        if self._reached >= hysteresis.enter_for:
            self.triggered = True
            self._leaving = Leaving()


Standing = Literal["clear", "above", "unknown"]


@dataclasses.dataclass(slots=True)
class HardState:
    """Whether one hard limit is in force."""

    in_force: bool = False
    standing: Standing = "clear"
    """``above`` what would let it leave, in force or not; ``unknown`` without a mean."""
    _past_since: float | None = None
    _leaving: Leaving = dataclasses.field(default_factory=Leaving)

    def update(
        self, at: float, step_s: float, mean: float | None, limit: float | None, hysteresis: rules.Hysteresis
    ) -> None:
        """Count an evaluation of the mean that the limit (None: off) is for; an unknown mean ends it at once."""
        if mean is None or limit is None:
            self.in_force, self._past_since = False, None
            self.standing = "clear" if limit is None else "unknown"
            return
        rounded = round_half_up(mean)
        calm = rounded <= hysteresis.leave_ratio * limit + 1e-9
        self.standing = "clear" if calm else "above"
        if self.in_force:
            if self._leaving.over(calm, step_s, hysteresis):
                self.in_force, self._past_since = False, None
        elif rounded <= limit:
            self._past_since = None
        else:
            self._past_since = at if self._past_since is None else self._past_since
            if at - self._past_since >= hysteresis.hard_enter_for_seconds - grain.SECONDS:
                self.in_force = True
                self._leaving = Leaving()


def round_half_up(mean: float) -> float:
    """Return a ratio rounded half up to 0.0001."""
    scaled = mean * 10_000
    return math.floor(scaled + grain.HALF_UP) / 10_000 if math.isfinite(scaled) else mean


def bucket_of(index: float) -> evaluation.Bucket:
    """Return the bucket of an index in 0..1, without hysteresis."""
    index += grain.RATIO
    return next(name for name, _, upper in _BOUNDS if index < upper or upper == 1.0)


def bucket_after(before: evaluation.Bucket, index: float | None) -> evaluation.Bucket:
    """Return the bucket of an index (None: unknown) after another bucket: up at once, down with hysteresis."""
    if index is None:
        return "unknown"
    name = bucket_of(index)
    if before == "unknown":
        return name
    lower, upper = next((lower, upper) for known, lower, upper in _BOUNDS if known == before)
    held = lower - _HYSTERESIS * (upper - lower) <= index + grain.RATIO < lower
    return before if held else name
