"""Who is hurt, and by whom: victims are online groups that stall, suspects are groups whose use rose with the pressure.

A suspect used the resource (at least the measure's ``least``) and used more of it than in calm times. Its confidence
is its share of the whole rise, of what the kernel charges to nobody too, less for groups that are not offline and
where no calm time was seen before. Below :data:`LEAST_CONFIDENCE` nobody is named. A group's use is its own: what
groups below it use is taken out.
"""

import collections
import dataclasses
from collections.abc import Mapping, Sequence

from cotenant.detect import registry
from cotenant.model import evaluation, sample

LEAST_CONFIDENCE = 0.3
MOST_SUSPECTS = 3
MOST_VICTIMS = 5
OWN_QUOTA_RATIO = 0.1
"""A group throttled in this share of periods waits for a CPU by its own quota, whatever else goes on."""

_EVERY_SECONDS = 10.0
_WEIGHT = 0.15
"""Each 10 s: a time constant of a minute. A sample is learned from when the 10 s after it were calm too: else the first
second of pressure would pass for what a group usually does."""
_RECENT = 5
_RENEWED_SECONDS = 3.0
"""Who is to blame does not change each second, and looking is the dear part of an incident."""
_NO_BASELINE = 0.7
_CLASS_FACTOR: Mapping[str | None, float] = {"offline": 1.0, "system": 0.8, None: 0.8, "online": 0.6}
"""Offline work is there to be held back, so it is looked at first."""
_GROWTH_FACTOR = 0.7
_CPU_STALLS = frozenset({"CPU stall"})

_NODE = ""


Uses = dict[str, dict[str, float]]
"""Use by path (the node's own under "") and measure."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Second:
    """One sample of pressure: its groups by path, and what each used itself."""

    groups: Mapping[str, sample.Cgroup]
    uses: Uses

    @classmethod
    def of(cls, taken: sample.Sample) -> "_Second":
        return cls({group.path: group for group in taken.cgroups if group.path.strip("/")}, _uses(taken))


@dataclasses.dataclass(frozen=True, slots=True)
class _Rise:
    measure: registry.Measure
    use: float
    baseline: float | None

    @property
    def rise(self) -> float:
        return self.use - (self.baseline or 0.0)


Blame = tuple[list[evaluation.Victim], list[evaluation.Suspect]]


class Groups:
    """What the groups of one node use in calm times, and what they did in the last seconds of pressure."""

    __slots__ = ("_baselines", "_blamed", "_learned", "_now", "_pending", "_recent")

    def __init__(self) -> None:
        self._baselines: Uses = {}
        self._learned = False
        self._pending: tuple[float, sample.Sample] | None = None
        self._recent: collections.deque[_Second] = collections.deque(maxlen=_RECENT - 1)
        self._now: _Second | None = None
        self._blamed: dict[evaluation.DetectionName, tuple[float, Blame]] = {}

    def rest(self, at: float, taken: sample.Sample, calm: bool) -> None:
        """Take one sample in: into the baselines when the node is calm, else among the seconds of pressure."""
        if not calm:
            self._recent.append(self._now or _Second.of(taken))
            self._pending = self._now = None
            return
        self._now = None
        self._recent.clear()
        if self._pending is None:
            self._pending = (at, taken)
        elif not 0 <= at - self._pending[0] < _EVERY_SECONDS:
            self._learn(self._pending[1])
            self._pending = (at, taken)

    def _learn(self, taken: sample.Sample) -> None:
        learned = _uses(taken)
        for path, before in self._baselines.items():
            values = learned.get(path, {})
            for name in values.keys() & before.keys():
                values[name] = before[name] + _WEIGHT * (values[name] - before[name])
        self._baselines = learned
        self._learned = True

    def acquit(self, detection: evaluation.DetectionName) -> None:
        """Forget who was blamed for a detection that is not triggered."""
        if self._blamed:
            self._blamed.pop(detection, None)

    def blame(self, detection: evaluation.DetectionName, taken: sample.Sample, at: float) -> Blame:
        """Return the victims and suspects of a triggered detection, the worst first; looked at anew every 3 s."""
        known = self._blamed.get(detection)
        if known and 0 <= at - known[0] < _RENEWED_SECONDS - 0.5:
            return known[1]
        self._now = self._now or _Second.of(taken)
        found = self._look(registry.DETECTORS[detection], [*self._recent, self._now])
        self._blamed[detection] = (at, found)
        return found

    def _look(self, detector: registry.Detector, seconds: Sequence[_Second]) -> Blame:
        groups = seconds[-1].groups
        names = _names(groups)
        victims = _victims(detector, seconds)
        hurt = {name for _, _, name in victims}
        uses = _mean_uses(seconds, [measure.name for measure in detector.uses])
        rises = self._rises(detector, uses)
        totals = {
            measure.name: max(
                sum(max(rise.rise, 0.0) for path, rise in rises.get(measure.name, {}).items() if path != _NODE),
                self._node_rise(measure, uses),
            )
            for measure in detector.uses
        }
        best: dict[str, tuple[float, _Rise, float]] = {}
        for name, by_path in rises.items():
            for path, rise in by_path.items():
                if path == _NODE or path not in groups or path in hurt:
                    continue
                share = rise.rise / totals[name] if totals[name] > 0 else 0.0
                confidence = _confidence(groups[path], rise, share)
                if confidence >= LEAST_CONFIDENCE and (path not in best or confidence > best[path][0]):
                    best[path] = (confidence, rise, share)
        ranked = sorted(best.items(), key=lambda item: (-item[1][0], item[0]))[:MOST_SUSPECTS]
        return (
            [evaluation.Victim(name=names[path], evidence=text) for _, text, path in victims[:MOST_VICTIMS]],
            [
                evaluation.Suspect(name=names[path], confidence=round(confidence, 2), evidence=_evidence(rise, share))
                for path, (confidence, rise, share) in ranked
            ],
        )

    def _rises(
        self, detector: registry.Detector, uses: Mapping[str, Mapping[str, float]]
    ) -> dict[str, dict[str, _Rise]]:
        """Return by measure and path whose use is large enough and rose."""
        rises: dict[str, dict[str, _Rise]] = {}
        for measure in detector.uses:
            for path, values in uses.items():
                use = values.get(measure.name)
                baseline = self._baseline(path, measure)
                if use is None or (measure.growth and baseline is None):
                    continue
                rise = _Rise(measure, use, baseline)
                if use >= measure.least and rise.rise >= measure.least:
                    rises.setdefault(measure.name, {})[path] = rise
        return rises

    def _baseline(self, path: str, measure: registry.Measure) -> float | None:
        if not self._learned:
            return None
        return self._baselines.get(path, {}).get(measure.name, 0.0)

    def _node_rise(self, measure: registry.Measure, uses: Mapping[str, Mapping[str, float]]) -> float:
        use = uses.get(_NODE, {}).get(measure.name)
        return 0.0 if use is None else use - (self._baseline(_NODE, measure) or 0.0)


def _confidence(group: sample.Cgroup, rise: _Rise, share: float) -> float:
    confidence = share * _CLASS_FACTOR[group.class_]
    if rise.baseline is None:
        confidence *= _NO_BASELINE
    return confidence * _GROWTH_FACTOR if rise.measure.growth else confidence


def _victims(detector: registry.Detector, seconds: Sequence[_Second]) -> list[tuple[float, str, str]]:
    """Return severity, evidence and path of each online group that stalls, the worst first."""
    found: list[tuple[float, str, str]] = []
    for path, group in seconds[-1].groups.items():
        if group.class_ != "online":
            continue
        throttled = (group.throttled_ratio or 0.0) >= OWN_QUOTA_RATIO
        history = [second.groups[path] for second in seconds if path in second.groups]
        stalls = []
        for measure in detector.stalls:
            if throttled and measure.name in _CPU_STALLS:
                continue
            known = [value for then in history if (value := measure.value(then)) is not None]
            mean = sum(known) / len(known) if known else 0.0
            if known and mean >= measure.least:
                stalls.append((mean / measure.least, f"{measure.name} {_quantity(mean, measure.unit)}"))
        if stalls:
            stalls.sort(reverse=True)
            found.append((stalls[0][0], ", ".join(text for _, text in stalls), path))
    return sorted(found, key=lambda item: (-item[0], item[2]))


def _uses(taken: sample.Sample) -> Uses:
    """Return how much each group uses itself: what groups below it use is taken out."""
    measures = {measure.name: measure for detector in registry.DETECTORS.values() for measure in detector.uses}
    uses: Uses = {_NODE: {}}
    for name, measure in measures.items():
        total = measure.total(taken) if measure.total else None
        if total is not None:
            uses[_NODE][name] = total
    of_group = [(name, measure.value) for name, measure in measures.items()]
    for group in taken.cgroups:
        if group.path.strip("/"):
            known = uses[group.path] = {}
            for name, value_of in of_group:
                value = value_of(group)
                if value is not None:
                    known[name] = value
    below: dict[str, dict[str, float]] = {}
    for path, values in uses.items():
        parent = path
        while parent:
            parent = parent.rpartition("/")[0]
            if parent and parent in uses:
                taken_out = below.setdefault(parent, {})
                for name, value in values.items():
                    taken_out[name] = taken_out.get(name, 0.0) + value
                break
    for parent, children in below.items():
        for name, value in children.items():
            if name in uses[parent]:
                uses[parent][name] = max(0.0, uses[parent][name] - value)
    return uses


def _mean_uses(seconds: Sequence[_Second], names: Sequence[str]) -> Uses:
    gathered: dict[str, dict[str, list[float]]] = {}
    for second in seconds:
        for path, values in second.uses.items():
            for name in names:
                if name in values:
                    gathered.setdefault(path, {}).setdefault(name, []).append(values[name])
    return {
        path: {name: sum(values) / len(values) for name, values in by_name.items()}
        for path, by_name in gathered.items()
    }


def _names(groups: Mapping[str, sample.Cgroup]) -> dict[str, str]:
    """Return what each group is called: by its name where it has one that no other has, else by its path."""
    count = collections.Counter(group.name for group in groups.values())
    return {path: group.name if group.name and count[group.name] == 1 else path for path, group in groups.items()}


def _evidence(rise: _Rise, share: float) -> str:
    use = _quantity(rise.use, rise.measure.unit)
    part = f"{share * 100:.0f} % of the rise of all"
    if rise.baseline is None:
        return f"{rise.measure.name} {use}, {share * 100:.0f} % of all; no calm time was seen before"
    return f"{rise.measure.name} rose from {_quantity(rise.baseline, rise.measure.unit)} to {use}, {part}"


def _quantity(value: float, unit: str) -> str:
    if unit == "ratio":
        return f"{value * 100:.0f} %"
    if unit == "usec":
        return f"{value / 1000:.1f} ms"
    if unit.startswith("B"):
        for factor, prefix in ((2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki")):
            if value >= factor:
                return f"{value / factor:.1f} {prefix}{unit}"
    return f"{value:.0f} {unit}"
