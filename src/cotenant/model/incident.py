"""One incident: a stretch of time in which some detection was triggered, and what was known of it."""

from typing import Literal

import msgspec

from cotenant.model.evaluation import DetectionName, HardLimit, Suspect, Victim

EndedBy = Literal["calm", "unknown", "restart"]
"""Why it ended: the detections left; nothing was known for too long; the program was not running."""


class PeakSignal(msgspec.Struct, frozen=True, kw_only=True):
    """The worst value of one signal during the incident, in the signal's own unit, beside its threshold."""

    detection: DetectionName
    signal: str
    value: float
    index: float
    threshold: float | None = None


class Isolated(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One suspect that was held back for a victim. ``end`` None: it still is.

    ``recovery_seconds`` is from the first step until the detection left, None while it has not; ``steps`` are those in
    force now.
    """

    detection: DetectionName
    suspect: str
    victim: str
    start: str
    steps: int
    recovered: bool = False
    recovery_seconds: float | None = None
    evicted: bool = False
    end: str | None = None


Action = Literal["isolation", "fast path", "suppression"]
"""What held offline work back first: a suspect stepped down, a quota tightened at once, a quota that bites."""


class LatencyOutcome(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of one online service: its p99 before, at its worst, and how soon it was back.

    ``recovery_seconds`` is from the action until p99 was back near what it was before, or from the incident's start
    where nothing was done; None while it is not, and where p99 did not rise.
    """

    service: str
    before_seconds: float
    peak_seconds: float
    at_least: bool = False
    """The peak lies beyond the histogram's last bound, which is given."""
    rose: bool = False
    action: Action | None = None
    recovery_seconds: float | None = None


class Incident(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Times are RFC 3339, UTC. ``end`` None: it goes on. Victims and suspects are the strongest seen."""

    id: int
    start: str
    end: str | None = None
    ended_by: EndedBy | None = None
    detections: list[DetectionName] = []
    dominant: DetectionName | None = None
    hard: list[HardLimit] = []
    level_peak: float | None = None
    victims: list[Victim] = []
    suspects: list[Suspect] = []
    evidence: list[PeakSignal] = []
    isolations: list[Isolated] = []
    """Who was held back because of it, and whether that helped."""
    latency: list[LatencyOutcome] = []
    """Online services whose latency was known before and during it."""
