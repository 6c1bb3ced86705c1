"""What the detectors say of one node at one time: the line of ``cotenant replay``, and the input of every report.

Contracts §3. None is unknown throughout; :attr:`Evaluation.missing` says why, by signal name.
"""

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

from cotenant.model.sample import MissingReason

DetectionName = Literal["cachePollution", "ioCongestion", "memoryPressure", "cpuContention"]
Bucket = Literal["none", "low", "medium", "high", "severe", "unknown"]
BUCKETS: tuple[Bucket, ...] = get_args(Bucket)
"""From calm to severe; the last is none of these."""
_SEVERITY: Mapping[str, int] = {bucket: severity for severity, bucket in enumerate(BUCKETS[:-1])}
HardLimit = Literal["psiMemoryFull", "psiIoSome"]


def severity_of(bucket: str) -> int:
    """Return how bad a bucket is: 0 for none and up; -1 where it is unknown, or no bucket."""
    return _SEVERITY.get(bucket, -1)


class SignalState(msgspec.Struct, frozen=True, gc=False):
    """One signal over the window: its value in its own unit, its index in 0..1, and the threshold it is held to."""

    value: float | None = None
    index: float | None = None
    threshold: float | None = None


class Victim(msgspec.Struct, frozen=True, kw_only=True):
    """An online group that stalls, with the numbers that say so."""

    name: str
    evidence: str


class Suspect(msgspec.Struct, frozen=True, kw_only=True):
    """A group whose use of the resource rose with the pressure. Confidence is in 0..1."""

    name: str
    confidence: float
    evidence: str


class Detection(msgspec.Struct, frozen=True, kw_only=True):
    """One detection. ``triggered`` None: nothing was known for too long to say. ``index`` None: no signal is known."""

    triggered: bool | None = None
    index: float | None = None
    signals: dict[str, SignalState] = {}
    victims: list[Victim] = []
    suspects: list[Suspect] = []


class Evaluation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The state of one node at the end of one sample."""

    node: str
    time: str
    interference_level: float | None = None
    bucket: Bucket = "unknown"
    coverage: float = 0.0
    detections: dict[DetectionName, Detection] = {}
    hard: list[HardLimit] = []
    missing: dict[str, MissingReason] = {}
