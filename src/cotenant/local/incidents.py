"""From evaluations to incidents: one begins when a detection triggers, and ends when none is triggered any more."""

from collections.abc import Mapping, Sequence

import msgspec

from cotenant.model import series, summary
from cotenant.model.evaluation import Detection, DetectionName, Evaluation, Suspect, Victim
from cotenant.model.incident import EndedBy, Incident, Isolated, LatencyOutcome, PeakSignal

NAMED_LIMIT = 8
"""Victims, and suspects, kept of one incident: the strongest."""


class IncidentTracker:
    """The open incident of one host, if there is one."""

    def __init__(self) -> None:
        self.current: Incident | None = None
        self._peak_index = -1.0

    def follow(self, evaluation: Evaluation) -> list[Incident]:
        """Take the next evaluation; return the incidents whose stored form changed: none, or one."""
        triggered = {name: d for name, d in evaluation.detections.items() if d.triggered}
        before = self.current
        if triggered or evaluation.hard:
            if before is None:
                before = Incident(id=series.time_ms_of(evaluation.time), start=evaluation.time)
                self._peak_index = -1.0
            self.current = self._grown(before, evaluation, triggered)
            return [] if self.current == before else [self.current]
        if before is None:
            return []
        unknown = any(
            evaluation.detections[n].triggered is None for n in before.detections if n in evaluation.detections
        )
        self.current = None
        return [ended(before, evaluation.time, "unknown" if unknown else "calm")]

    def isolated(self, isolation: Isolated, recent: Sequence[Incident]) -> list[Incident]:
        """Take what became of a suspect that is held back; return the incident that it belongs to, if there is one.

        That is the one that knows of it already, though it has ended since; else the open one.
        """
        known = [i for i in [*recent, *([self.current] if self.current else [])] if _knows(i, isolation)]
        found = known[-1] if known else self.current
        if found is None:
            return []
        others = [other for other in found.isolations if other.start != isolation.start]
        grown = msgspec.structs.replace(found, isolations=[*others, isolation])
        if self.current is not None and grown.id == self.current.id:
            self.current = grown
        return [grown]

    def became(self, number: int, outcomes: list[LatencyOutcome], recent: Mapping[int, Incident]) -> list[Incident]:
        """Take what became of the online services in one incident; return it if that is news."""
        found = self.current if self.current is not None and self.current.id == number else recent.get(number)
        if found is None or found.latency == outcomes:
            return []
        grown = msgspec.structs.replace(found, latency=outcomes)
        if self.current is not None and self.current.id == number:
            self.current = grown
        return [grown]

    def _grown(self, incident: Incident, evaluation: Evaluation, triggered: dict[DetectionName, Detection]) -> Incident:
        level, peak = evaluation.interference_level, incident.level_peak
        dominant = incident.dominant
        leader = summary.dominant_of(evaluation)
        if leader is not None and (triggered[leader].index or 0.0) > self._peak_index:
            self._peak_index = triggered[leader].index or 0.0
            dominant = leader
        new = [name for name in triggered if name not in incident.detections]
        return msgspec.structs.replace(
            incident,
            detections=incident.detections + new,
            dominant=dominant,
            hard=incident.hard + [name for name in evaluation.hard if name not in incident.hard],
            level_peak=peak if level is None else level if peak is None else max(peak, level),
            victims=_merged_victims(incident.victims, triggered),
            suspects=_merged_suspects(incident.suspects, triggered),
            evidence=_merged_evidence(incident.evidence, triggered),
        )


def _knows(incident: Incident, isolation: Isolated) -> bool:
    return any(other.start == isolation.start for other in incident.isolations)


def ended(incident: Incident, end: str, by: EndedBy) -> Incident:
    """Return the incident with its end."""
    return msgspec.structs.replace(incident, end=end, ended_by=by)


def _merged_victims(known: list[Victim], triggered: dict[DetectionName, Detection]) -> list[Victim]:
    named = {victim.name: victim for victim in known}
    for detection in triggered.values():
        for victim in detection.victims:
            named.setdefault(victim.name, victim)
    return list(named.values())[:NAMED_LIMIT]


def _merged_suspects(known: list[Suspect], triggered: dict[DetectionName, Detection]) -> list[Suspect]:
    named = {suspect.name: suspect for suspect in known}
    for detection in triggered.values():
        for suspect in detection.suspects:
            if suspect.name not in named or suspect.confidence > named[suspect.name].confidence:
                named[suspect.name] = suspect
    return sorted(named.values(), key=lambda suspect: -suspect.confidence)[:NAMED_LIMIT]


def _merged_evidence(known: list[PeakSignal], triggered: dict[DetectionName, Detection]) -> list[PeakSignal]:
    worst = {(peak.detection, peak.signal): peak for peak in known}
    for name, detection in triggered.items():
        for signal, state in detection.signals.items():
            if state.value is None or not state.index:
                continue
            peak = worst.get((name, signal))
            if peak is None or state.index > peak.index or (state.index == peak.index and state.value > peak.value):
                worst[name, signal] = PeakSignal(
                    detection=name, signal=signal, value=state.value, index=state.index, threshold=state.threshold
                )
    return sorted(worst.values(), key=lambda peak: -peak.index)
