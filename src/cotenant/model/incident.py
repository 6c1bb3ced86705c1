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
