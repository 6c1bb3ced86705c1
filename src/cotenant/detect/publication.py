"""What is published of a node (report, label, taint): slower than its state, so that nothing flaps. Contracts §3.

- unknown only after 60 s of silence, or of nothing known;
- a hard limit is lifted only after ``minHoldSeconds`` of clear state, or when nothing was known of it for the expiry;
- a bucket rises at once and falls when it has been lower for ``minHoldSeconds``;
- suspects change when others have been suspected for ``leaveForSeconds``, or with the set of triggered detections.
"""

import dataclasses
from collections.abc import Mapping

from cotenant.detect import compiled, rules
from cotenant.model import evaluation

SILENCE_S = 60.0
EXPIRY_S = 1800.0

_ORDER: tuple[evaluation.Bucket, ...] = ("none", "low", "medium", "high", "severe")


@dataclasses.dataclass(frozen=True, slots=True)
class Published:
    """What others are told. ``material`` says that it differs from what was told before in more than numbers."""

    interference_level: float | None = None
    bucket: evaluation.Bucket = "unknown"
    coverage: float = 0.0
    hard: tuple[evaluation.HardLimit, ...] = ()
    triggered: tuple[evaluation.DetectionName, ...] = ()
    suspects: Mapping[evaluation.DetectionName, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    material: bool = False

    def differs(self, other: "Published") -> bool:
        """Return whether a reader would act differently: by bucket, hard limits, detections or suspects."""
        mine = (self.bucket, self.hard, self.triggered, dict(self.suspects))
        return mine != (other.bucket, other.hard, other.triggered, dict(other.suspects))


@dataclasses.dataclass(slots=True)
class _Hard:
    known_at: float
    clear_since: float | None = None


class Publication:
    """One node's. Times are seconds of one clock that does not step back."""

    def __init__(self, expiry_s: float = EXPIRY_S) -> None:
        self._expiry_s = expiry_s
        self._told = Published()
        self._known_at: float | None = None
        self._hard: dict[evaluation.HardLimit, _Hard] = {}
        self._triggered: dict[evaluation.DetectionName, float] = {}
        self._lower_since: float | None = None
        self._suspects_since: tuple[Mapping[evaluation.DetectionName, tuple[str, ...]], float] | None = None

    @property
    def told(self) -> Published:
        """What was told last."""
        return self._told

    def adopt(self, told: Published, at: float) -> None:
        """Go on from what a predecessor told, so that a new leader loosens nothing."""
        self._told = told
        self._known_at = at if told.bucket != "unknown" else None
        self._hard = {name: _Hard(at) for name in told.hard}
        self._triggered = dict.fromkeys(told.triggered, at)

    def update(self, found: evaluation.Evaluation, at: float, hysteresis: rules.Hysteresis) -> Published:
        """Take an evaluation in and return what to tell now."""
        self._update_hard(found, at, hysteresis)
        if found.interference_level is None:
            return self.silent(at)
        self._known_at = at
        for name, detection in found.detections.items():
            if detection.triggered:
                self._triggered[name] = at
            elif detection.triggered is False:
                self._triggered.pop(name, None)
        for name in self._triggered.keys() - found.detections.keys():
            del self._triggered[name]
        self._forget_untold(at)
        triggered = tuple(name for name in rules.DETECTIONS if name in self._triggered)
        return self._tell(
            Published(
                interference_level=found.interference_level,
                bucket=self._bucket(found.bucket, at, hysteresis),
                coverage=found.coverage,
                hard=self._in_force(),
                triggered=triggered,
                suspects=self._suspects(found, triggered, at, hysteresis),
            )
        )

    def silent(self, at: float) -> Published:
        """Return what to tell while no sample comes, or none that anything is known of."""
        self._expire(at)
        if self._known_at is None or at - self._known_at > SILENCE_S:
            self._triggered.clear()
            self._lower_since = self._suspects_since = None
            return self._tell(Published(hard=self._in_force()))
        return self._tell(dataclasses.replace(self._told, hard=self._in_force()))

    def _tell(self, now: Published) -> Published:
        self._told = dataclasses.replace(now, material=now.differs(self._told))
        return self._told

    def _update_hard(self, found: evaluation.Evaluation, at: float, hysteresis: rules.Hysteresis) -> None:
        for name, signal in compiled.HARD_LIMITS.items():
            if name in found.hard:
                self._hard[name] = _Hard(at)
            elif name in self._hard and signal not in found.missing:
                hard = self._hard[name]
                hard.known_at = at
                hard.clear_since = at if hard.clear_since is None else hard.clear_since
                if at - hard.clear_since >= hysteresis.min_hold_seconds:
                    del self._hard[name]
            elif name in self._hard:
                self._hard[name].clear_since = None
        self._expire(at)

    def _expire(self, at: float) -> None:
        self._hard = {name: hard for name, hard in self._hard.items() if at - hard.known_at < self._expiry_s}

    def _in_force(self) -> tuple[evaluation.HardLimit, ...]:
        return tuple(name for name in compiled.HARD_LIMITS if name in self._hard)

    def _forget_untold(self, at: float) -> None:
        """Drop detections of which nothing was known for as long as makes a node unknown."""
        self._triggered = {name: seen for name, seen in self._triggered.items() if at - seen <= SILENCE_S}

    def _bucket(self, bucket: evaluation.Bucket, at: float, hysteresis: rules.Hysteresis) -> evaluation.Bucket:
        told = self._told.bucket
        if told == "unknown" or bucket == "unknown" or _ORDER.index(bucket) >= _ORDER.index(told):
            self._lower_since = None
            return bucket
        self._lower_since = at if self._lower_since is None else self._lower_since
        if at - self._lower_since < hysteresis.min_hold_seconds:
            return told
        self._lower_since = None
        return bucket

    def _suspects(
        self,
        found: evaluation.Evaluation,
        triggered: tuple[evaluation.DetectionName, ...],
        at: float,
        hysteresis: rules.Hysteresis,
    ) -> Mapping[evaluation.DetectionName, tuple[str, ...]]:
        now = {
            name: tuple(sorted(suspect.name for suspect in found.detections[name].suspects))
            for name in triggered
            if found.detections[name].suspects
        }
        if triggered != self._told.triggered or now == self._told.suspects:
            self._suspects_since = None
            return now
        if self._suspects_since is None or self._suspects_since[0] != now:
            self._suspects_since = (now, at)
        if at - self._suspects_since[1] < hysteresis.leave_for_seconds:
            return self._told.suspects
        self._suspects_since = None
        return now
