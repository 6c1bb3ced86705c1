"""Isolation from one second to the next: whom it holds back, since when, and whether that helped.

One instance per node. It turns a sample and an evaluation into what :mod:`cotenant.act.isolate` decides on, and keeps
a record of each isolation for the incident that it belongs to.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from cotenant.act import isolate
from cotenant.act.draft import ISOLATION, Draft
from cotenant.model.enforcement import HeldFile
from cotenant.model.evaluation import Detection, DetectionName, Evaluation, Suspect
from cotenant.model.incident import Isolated
from cotenant.model.sample import Cgroup, Sample
from cotenant.model.snapshot import Snapshot

REPEATED_SECONDS = 600.0
"""The same suspect in the same resource within this time after a release: giving back was too early."""


class Curing:
    """Holds one suspect at a time back in one resource, and gives back when the victim is well."""

    def __init__(self, parameters: isolate.Parameters | None = None) -> None:
        self.parameters = parameters or isolate.Parameters()
        self.state: isolate.Isolation | None = None
        self.newest: Isolated | None = None
        """The isolation that goes on, or the last one."""
        self._started = ""
        self._ended: tuple[isolate.Isolation, float] | None = None

    def draft(
        self, snapshot: Snapshot, evaluation: Evaluation, sample: Sample, disks: Mapping[str, str], now: float
    ) -> Draft:
        """Return what isolation wants now. ``disks`` is ``major:minor`` by name; ``now`` is a monotonic clock."""
        draft = Draft(snapshot, ISOLATION)
        before = self.state
        self.state = isolate.decide(
            draft,
            before,
            by_path(evaluation, sample, [group.path for group in snapshot.groups]),
            uses(sample),
            now,
            self.parameters,
            busiest_disk(sample, disks),
            self._patience(now),
        )
        if before is not None and self.state is None:
            self._ended = (before, now)
        if before is None and self.state is not None:
            self._started = evaluation.time
        self._record(before, evaluation.time)
        return draft

    def adopt(self, held: Iterable[HeldFile], now: float) -> None:
        """Go on with what an earlier process left in force; it is given back when all is well."""
        self.state = self.state or isolate.adopted(held, now)

    def release(self, snapshot: Snapshot, time: str) -> Draft:
        """Return what gives everything back at once, because isolation was switched off; ``time`` is RFC 3339."""
        draft, state = Draft(snapshot, ISOLATION), self.state
        if state is not None:
            isolate.release(draft, state)
            self.state = None
            self._record(state, time)
        return draft

    def _patience(self, now: float) -> float | None:
        """Return how long a new isolation waits with giving back: longer when it follows closely on another."""
        if self._ended is None or now - self._ended[1] > REPEATED_SECONDS:
            return None
        return min(self._ended[0].patience_seconds * 2, self.parameters.patience_max_seconds)

    def _record(self, before: isolate.Isolation | None, time: str) -> None:
        state = self.state or before
        if state is None:
            return
        recovery = state.recovery_seconds
        if recovery is None and self.state is not None and self.newest is not None and before is not None:
            recovery = self.newest.recovery_seconds  # it had recovered once; that stays true of this incident
        self.newest = Isolated(
            detection=state.detection,
            suspect=state.suspect,
            victim=state.victim,
            start=self._started,
            steps=state.steps if self.state is not None else 0,
            recovered=state.recovered is not None,
            recovery_seconds=recovery,
            evicted=state.evicted,
            end=None if self.state is not None else time,
        )


def uses(sample: Sample) -> dict[str, isolate.Use]:
    """Return what each group uses, by path."""
    online = sample.cpu.online
    return {group.path: _use(group, online) for group in sample.cgroups}


def _use(group: Cgroup, online: int | None) -> isolate.Use:
    known = group.cpu_used_ratio is not None and online is not None
    return isolate.Use(
        cpu_millicores=(group.cpu_used_ratio or 0.0) * (online or 0) * 1000 if known else None,
        memory_bytes=group.memory_bytes,
        read_bytes_per_sec=group.read_bytes_per_sec,
        write_bytes_per_sec=group.write_bytes_per_sec,
    )


def by_path(evaluation: Evaluation, sample: Sample, units: Sequence[str] = ()) -> Evaluation:
    """Return the evaluation with suspects named by the path of their group; of two with one name, neither.

    A suspect below one of the units (a container of a pod) stands for that unit: there it is held back.
    """
    paths: dict[str, str] = {}
    doubtful = set()
    for group in sample.cgroups:
        name = group.name or group.path
        if paths.setdefault(name, group.path) != group.path:
            doubtful.add(name)
    found: dict[DetectionName, Detection] = {}
    for name, detection in evaluation.detections.items():
        suspects = [
            Suspect(name=_unit(paths.get(s.name, s.name), units), confidence=s.confidence, evidence=s.evidence)
            for s in detection.suspects
            if s.name not in doubtful
        ]
        found[name] = msgspec.structs.replace(detection, suspects=suspects)
    return msgspec.structs.replace(evaluation, detections=found)


def _unit(path: str, units: Sequence[str]) -> str:
    return next((unit for unit in units if path == unit or path.startswith(f"{unit}/")), path)


def busiest_disk(sample: Sample, disks: Mapping[str, str]) -> str | None:
    """Return the number of the disk whose requests wait longest, or None where none is known."""
    known = {n: d for n, d in sample.block.devices.items() if n in disks}
    waits = {n: d.p99_usec or d.oldest_in_flight_usec or 0.0 for n, d in known.items()}
    busy = [name for name, wait in waits.items() if wait > 0]
    return disks[max(busy, key=lambda name: (waits[name], name))] if busy else None
