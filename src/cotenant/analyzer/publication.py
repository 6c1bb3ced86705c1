"""What is published of a node, and when: slower than the detectors' state, so that no reader sees it flap.

Published turns unknown only after a minute without a known level; a hard limit is lifted only after it was clear for
``minHoldSeconds``. A report is written when something material changes (bucket, hard limits, triggered detections,
suspects, the agent's facts), or as a heartbeat. Pure: times come in, reports go out.
"""

import dataclasses
import math
import random
import types
from collections.abc import Iterable, Mapping

import msgspec

from cotenant.api import report, timestamp
from cotenant.detect.state import Standing
from cotenant.model.evaluation import Bucket, Detection, DetectionName, Evaluation, HardLimit, severity_of

SILENCE_SECONDS = 60.0
EXPIRY_SECONDS = 30 * 60.0
HEARTBEAT_SECONDS = 20 * 60.0
HEARTBEAT_JITTER = 0.1
MIN_INTERVAL_SECONDS = 10.0
"""Between two reports of one node, unless a hard limit comes or goes or a detection triggers."""
TRIGGER_INTERVAL_SECONDS = 1.0
"""Before a detection that triggers is reported: at the onset the bucket has risen, and was reported, just before."""
MAX_NAMED = 3
"""Victims and suspects named in a detection, so that a report stays about a kilobyte."""

_NOWHERE: Mapping[HardLimit, Standing] = types.MappingProxyType({})


@dataclasses.dataclass(frozen=True, slots=True)
class Material:
    """What a change of makes a report worth writing."""

    bucket: Bucket
    hard: tuple[HardLimit, ...] = ()
    triggered: frozenset[DetectionName] = frozenset()
    suspects: frozenset[str] = frozenset()
    facts: report.NodeFacts | None = None

    @property
    def severity(self) -> tuple[int, int]:
        """Hard limits first, then the bucket; unknown is least."""
        return len(self.hard), severity_of(self.bucket)

    @property
    def urgency(self) -> tuple[int, bool, int]:
        """Hard limits first, then whether a detection is triggered, then the bucket."""
        return len(self.hard), bool(self.triggered), severity_of(self.bucket)


class NodePublication:
    """The published state of one node. Times are seconds of the analyzer's monotonic clock, ``wall`` of the epoch."""

    def __init__(self, node: str, now: float) -> None:
        self.node = node
        self.facts: report.NodeFacts | None = None
        self.evaluation: Evaluation | None = None
        """The last one that knew a level, while it is not too old; else the last one."""
        self.heard_at = now
        self.observed_wall = 0.0
        self.changed_at = now
        self.written: Material | None = None
        self.written_at = -math.inf
        self.heartbeat_at = math.inf
        self.retry_at = -math.inf
        self.writing = False
        self._known_at = -math.inf
        self._in_force_at: dict[HardLimit, float] = {}
        """When a published limit was last not known to be clear."""
        self._told_at: dict[HardLimit, float] = {}
        """When it was last known where a published limit stands."""
        self._material: Material | None = None

    def seed(self, status: report.ReportStatus, now: float) -> None:
        """Take over what an earlier leader published: it stays in force until the node's own samples say otherwise."""
        self._in_force_at = dict.fromkeys(status.hard, now)
        self._told_at = dict(self._in_force_at)
        self.written = Material(
            bucket=status.bucket or "unknown",
            hard=tuple(sorted(status.hard)),
            triggered=frozenset(found.type for found in status.detections if found.triggered),
            suspects=frozenset(suspect.name for found in status.detections for suspect in found.suspects),
            facts=status.node_facts,
        )
        self.facts = status.node_facts
        self.written_at = now
        self.heartbeat_at = now + HEARTBEAT_SECONDS * random.uniform(0.2, 1.0)
        self.observed_wall = timestamp.parse(status.observed_at) or 0.0
        self._material = self.written

    def tell(self, facts: report.NodeFacts, now: float) -> None:
        """Take what the node's agent says of its machine and of itself."""
        if facts is not self.facts and facts != self.facts:
            self.facts = facts
            self._settle(now)

    @property
    def limited(self) -> bool:
        """Whether a hard limit is published."""
        return bool(self._in_force_at)

    def hear(
        self,
        evaluation: Evaluation,
        now: float,
        observed_wall: float,
        min_hold_seconds: float,
        standing: Mapping[HardLimit, Standing] = _NOWHERE,
    ) -> None:
        """Take the newest evaluation of the node, and where its hard limits stand.

        A limit that is published is lifted after ``min_hold_seconds`` in which it was known to be clear: what is not
        known, for want of samples after an agent's restart, is not clear until the node counts as silent.
        """
        self.heard_at = now
        self.observed_wall = observed_wall
        known = evaluation.interference_level is not None
        if known or now - self._known_at > SILENCE_SECONDS:
            self.evaluation = evaluation
        if known:
            self._known_at = now
        for limit in evaluation.hard:
            self._in_force_at[limit] = now
        for limit in self._in_force_at:
            where = standing.get(limit, "clear")
            if limit in evaluation.hard or where != "unknown":
                self._told_at[limit] = now
            if where == "above" or (where == "unknown" and now - self._told_at.get(limit, now) <= SILENCE_SECONDS):
                self._in_force_at[limit] = now
        self._in_force_at = {
            limit: at
            for limit, at in self._in_force_at.items()
            if limit in evaluation.hard or now - at < min_hold_seconds
        }
        self._settle(now)

    def pass_over(self, now: float, observed_wall: float) -> None:
        """Note an evaluation that knew a level and that another follows at once."""
        self.heard_at = self._known_at = now
        self.observed_wall = observed_wall

    def check_silence(self, now: float) -> None:
        """Turn the node unknown if nothing was heard of it for too long; hard limits then last until they expire."""
        if now - self.heard_at <= SILENCE_SECONDS:
            return
        if self.evaluation is not None or (self._material is not None and self._material.bucket != "unknown"):
            self.evaluation = None
            self._known_at = -math.inf
            self._settle(now)

    def _settle(self, now: float) -> None:
        material = self.material()
        if material != self._material:
            self._material = material
            self.changed_at = now

    def material(self) -> Material:
        """Return what is to be published now."""
        found = self.evaluation
        hard = tuple(sorted(self._in_force_at))
        if found is None:
            return Material(bucket="unknown", hard=hard, facts=self.facts)
        return Material(
            bucket=found.bucket if found.interference_level is not None else "unknown",
            hard=hard,
            triggered=frozenset(name for name, state in found.detections.items() if state.triggered),
            suspects=frozenset(
                suspect.name for state in found.detections.values() for suspect in state.suspects[:MAX_NAMED]
            ),
            facts=self.facts,
        )

    def is_due(self, now: float, no_loosening_until: float) -> bool:
        """Tell whether a report should be written now."""
        if self.writing or now < self.retry_at:
            return False
        material = self._material or self.material()
        if material == self.written:
            return now >= self.heartbeat_at and self.evaluation is not None
        if self.written is None:
            return self.evaluation is not None
        if now < no_loosening_until and material.severity < self.written.severity:
            return False
        if material.hard != self.written.hard:
            return True
        triggers = material.triggered - self.written.triggered
        return now - self.written_at >= (TRIGGER_INTERVAL_SECONDS if triggers else MIN_INTERVAL_SECONDS)

    def begin_write(self) -> tuple[Material, report.ReportStatus]:
        """Return what to write; until :meth:`end_write`, nothing more is due."""
        self.writing = True
        return self.material(), self._status()

    def end_write(self, material: Material | None, now: float) -> None:
        """Note that this was written; None: it could not be, and stays due."""
        self.writing = False
        if material is None:
            self.retry_at = now + MIN_INTERVAL_SECONDS
        else:
            self.written, self.written_at = material, now
            jitter = random.uniform(1 - HEARTBEAT_JITTER, 1 + HEARTBEAT_JITTER)
            self.heartbeat_at = now + HEARTBEAT_SECONDS * jitter

    def _status(self) -> report.ReportStatus:
        observed_at, expires_at = self._times()
        material = self.material()
        if self.evaluation is None:
            return report.ReportStatus(
                observed_at=observed_at,
                expires_at=expires_at,
                bucket="unknown",
                coverage=0.0,
                hard=list(material.hard),
                node_facts=self.facts,
            )
        shown = msgspec.structs.replace(
            self.evaluation,
            bucket=material.bucket,
            hard=list(material.hard),
            interference_level=_rounded(self.evaluation.interference_level),
            coverage=_rounded(self.evaluation.coverage) or 0.0,
            detections={name: _shortened(state) for name, state in self.evaluation.detections.items()},
        )
        metrics = {
            name: state.value
            for found in shown.detections.values()
            for name, state in found.signals.items()
            if state.value is not None
        }
        return report.status_of(shown, metrics, observed_at, expires_at, self.facts)

    def summary(self) -> report.ClusterNode:
        """Return the node's entry in the summary of all nodes."""
        material = self._material or self.material()
        known = self.evaluation.interference_level if self.evaluation is not None else None
        observed_at, expires_at = self._times()
        return report.ClusterNode(
            name=self.node,
            interference_level=_rounded(known),
            bucket=material.bucket,
            hard=list(material.hard),
            detections=sorted(material.triggered),
            observed_at=observed_at,
            expires_at=expires_at,
        )

    def _times(self) -> tuple[str | None, str | None]:
        """Return when the node was observed and until when that holds; None where no sample of it was judged yet."""
        if not self.observed_wall:
            return None, None
        return timestamp.render(self.observed_wall), timestamp.render(self.observed_wall + EXPIRY_SECONDS)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _shortened(state: Detection) -> Detection:
    return msgspec.structs.replace(
        state,
        index=_rounded(state.index),
        signals={
            name: msgspec.structs.replace(
                known, value=None if known.value is None else float(f"{known.value:.6g}"), index=_rounded(known.index)
            )
            for name, known in state.signals.items()
            if known.value is not None
        },
        victims=state.victims[:MAX_NAMED],
        suspects=state.suspects[:MAX_NAMED],
    )


def worst_first(nodes: Iterable[NodePublication]) -> list[NodePublication]:
    """Return nodes in the order in which their reports matter: getting worse before getting better, then the longest
    waiting."""

    def order(node: NodePublication) -> tuple[bool, int, bool, int, float]:
        material = node.material()
        better = material.severity < (node.written.severity if node.written else (0, -1))
        hard, triggered, rank = material.urgency
        return better, -hard, not triggered, -rank, node.changed_at

    return sorted(nodes, key=order)
