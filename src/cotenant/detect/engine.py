"""From samples to evaluations, one each: pure and synchronous, with state for each node. Contracts §3.

A sample moves its node's states on in any case; that costs half as much where nobody asks to see them.
"""

import math

import msgspec

from cotenant.detect import attribution, compiled, disks, reading, rules, state, timeline, window
from cotenant.model import evaluation, sample
from cotenant.units import histogram

_DIGITS = 12
"""Of a level; what lies beyond is the noise of binary sums."""


class _Node:
    """What is remembered of one node."""

    __slots__ = ("block", "boot_id", "bucket", "detections", "disks", "groups", "hard", "timeline", "values")

    def __init__(self, plan: compiled.Compiled) -> None:
        seconds = plan.rules.window_seconds
        self.boot_id: str | None = None
        self.timeline = timeline.Timeline()
        self.values = window.Window(seconds)
        self.block = window.LatencyWindow(seconds)
        self.disks = disks.Disks(seconds)
        self.detections: dict[evaluation.DetectionName, state.DetectionState] = {}
        self.hard: dict[evaluation.HardLimit, state.HardState] = {name: state.HardState() for name in plan.hard}
        self.bucket: evaluation.Bucket = "unknown"
        self.groups = attribution.Groups()

    def clear_windows(self) -> None:
        self.values.clear()
        self.block.clear()
        self.disks.clear()


class _Read(msgspec.Struct):
    """What the signals of one detection say."""

    entries: tuple[compiled.Entry, ...]
    readings: list[compiled.Reading]
    """One for each of the entries."""
    index: float = 0.0
    reached: bool = False
    calm: bool = True
    direct: bool = False
    """Known through its signals, not only through their fall-back."""
    certain: bool = False
    """Known at all: signals that only support others do not make it so."""

    def take(self, entry: compiled.Entry, read: compiled.Reading, index: float) -> None:
        """Count one that has an index."""
        self.index = max(self.index, index)
        self.reached = self.reached or read.reached
        self.calm = self.calm and read.calm
        self.certain = self.certain or not entry.rule.supporting


class _Judged(msgspec.Struct, frozen=True):
    """One detection at the end of one sample."""

    detection: compiled.CompiledDetection
    read: _Read
    index: float | None
    triggered: bool | None
    blame: attribution.Blame


_NOBODY: attribution.Blame = ([], [])


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """One node at the end of one sample. What it says of signals holds until the node's next sample."""

    level: float | None
    bucket: evaluation.Bucket
    coverage: float
    hard: list[evaluation.HardLimit]
    _taken: sample.Sample
    _view: reading.NodeView
    _judged: list[_Judged]
    _unknown_limits: list[str]
    """The signals of limits that are set and cannot be judged."""

    @property
    def is_calm(self) -> bool:
        """Whether the level is known, no detection triggered, and no hard limit in force."""
        return self.level is not None and not self.hard and not any(found.triggered for found in self._judged)

    def describe(self) -> evaluation.Evaluation:
        """Return the state of the node, with what each signal says and why what is unknown is."""
        missing: dict[str, sample.MissingReason] = {}
        detections = {found.detection.name: self._detection(found, missing) for found in self._judged}
        for signal in self._unknown_limits:
            missing[signal] = self._view.why_no_mean(signal, self._taken)
        return evaluation.Evaluation(
            node=self._taken.node,
            time=self._taken.time,
            interference_level=self.level,
            bucket=self.bucket,
            coverage=self.coverage,
            detections=detections,
            hard=self.hard,
            missing=missing,
        )

    def _detection(self, found: _Judged, missing: dict[str, sample.MissingReason]) -> evaluation.Detection:
        signals: dict[str, evaluation.SignalState] = {}
        for entry, read in zip(found.read.entries, found.read.readings, strict=True):
            name = entry.rule.signal
            if read.index is None:
                missing[name] = self._view.why_unknown(entry, self._taken)
            if name not in signals or signals[name].index is None:
                signals[name] = entry.unknown_state if read is entry.unknown else read.state()
        victims, suspects = found.blame
        return evaluation.Detection(
            triggered=found.triggered, index=found.index, signals=signals, victims=victims, suspects=suspects
        )


class Engine:
    """Evaluates samples of any number of nodes by one set of rules."""

    def __init__(self, source: rules.Rules) -> None:
        self._compiled = compiled.Compiled(source)
        self._nodes: dict[str, _Node] = {}

    @property
    def in_force(self) -> rules.Rules:
        """The rules in force."""
        return self._compiled.rules

    def replace(self, source: rules.Rules) -> None:
        """Take other rules; states and what the windows hold of signals that stay are kept."""
        before, self._compiled = self._compiled, compiled.Compiled(source)
        for node in self._nodes.values():
            _fit(node, before, self._compiled)

    def hand_over(self, node: str, to: "Engine") -> None:
        """Have another engine judge a node from now on, with the states and windows that it has here."""
        known = self._nodes.pop(node, None)
        if known is not None:
            _fit(known, self._compiled, to._compiled)
            to._nodes[node] = known

    def standing(self, node: str) -> dict[evaluation.HardLimit, state.Standing]:
        """Return where a node's hard limits stand as of its last sample, those that are not in force too."""
        known = self._nodes.get(node)
        return {} if known is None else {name: hard.standing for name, hard in known.hard.items()}

    def forget(self, node: str) -> None:
        """Forget a node that is gone."""
        self._nodes.pop(node, None)

    def evaluate(self, taken: sample.Sample) -> evaluation.Evaluation:
        """Return the state of the sample's node at the end of the sample.

        :raises BadSamples: as :meth:`advance`.
        """
        return self.advance(taken).describe()

    def advance(self, taken: sample.Sample) -> Moment:
        """Move the states of the sample's node on to the end of the sample, and return where it stands.

        :raises BadSamples: if the sample has neither ``uptime_s`` nor a ``time`` that can be read.
        """
        node = self._node_of(taken)
        step_s = self._take(node, taken)
        plan, at = self._compiled, node.timeline.at
        view = reading.NodeView(plan, at, node.values, node.block, node.disks)
        judged: list[_Judged] = []
        weighted: list[float] = []
        known_weight = covered = worst = 0.0
        for detection in plan.detections:
            found = self._judge(node, detection, view, step_s, taken)
            judged.append(found)
            if found.index is None:
                continue
            weighted.append(detection.weight * found.index)
            known_weight += detection.weight
            covered += detection.weight if found.read.direct else detection.weight / 2
            worst = max(worst, found.index)
        level = min(round(math.fsum(weighted) / known_weight, _DIGITS), 1.0) if known_weight > 0 else None
        node.bucket = state.bucket_after(node.bucket, None if level is None else worst)
        unknown_limits = self._limit(node, view, step_s)
        node.groups.rest(at, taken, calm=level is not None and worst < state.CALM_INDEX)
        return Moment(
            level=level,
            bucket=node.bucket,
            coverage=covered / plan.weight if plan.weight > 0 else 0.0,
            hard=[name for name, hard in node.hard.items() if hard.in_force],
            _taken=taken,
            _view=view,
            _judged=judged,
            _unknown_limits=unknown_limits,
        )

    def _node_of(self, taken: sample.Sample) -> _Node:
        node = self._nodes.get(taken.node)
        rebooted = node is not None and _rebooted(node, taken)
        if node is None or rebooted:
            node = self._nodes[taken.node] = _Node(self._compiled)
        node.boot_id = taken.boot_id or node.boot_id
        return node

    def _take(self, node: _Node, taken: sample.Sample) -> float:
        """Put the sample into the node's windows and return the seconds since the one before."""
        step_s = node.timeline.advance(taken)
        if step_s is None:
            node.clear_windows()
            step_s = 0.0
        at = node.timeline.at
        node.values.add(at, taken.period_s, self._compiled.values(taken))
        # Where each disk is judged by itself, all together only stand in, and merging histograms is dear.
        alone = self._compiled.stands_in_block and not taken.block.devices
        only = self._compiled.uses_disks and len(taken.block.devices) == 1
        counts = _counts(taken.block) if self._compiled.uses_block or alone or only else None
        if self._compiled.uses_block or alone:
            node.block.add(_latencies(at, taken.block, counts))
        if self._compiled.uses_disks:
            congestion = node.detections.get("ioCongestion")
            calm = not (congestion and congestion.triggered)
            node.disks.add(at, taken, calm, counts)
        return step_s

    def _judge(
        self,
        node: _Node,
        detection: compiled.CompiledDetection,
        view: reading.NodeView,
        step_s: float,
        taken: sample.Sample,
    ) -> _Judged:
        read = _read(detection, view)
        current = node.detections.get(detection.name)
        if current is None:
            current = node.detections[detection.name] = state.DetectionState()
        hysteresis = self._compiled.rules.hysteresis
        if read.certain:
            current.known(node.timeline.at, step_s, read.reached, read.calm, hysteresis)
        else:
            current.unknown(node.timeline.at, hysteresis)
        blame = _NOBODY
        if current.triggered:
            blame = node.groups.blame(detection.name, taken, node.timeline.at)
        else:
            node.groups.acquit(detection.name)
        return _Judged(detection, read, read.index if read.certain else None, current.triggered, blame)

    def _limit(self, node: _Node, view: reading.NodeView, step_s: float) -> list[str]:
        """Move the hard limits on, and return the signals of those that are set and cannot be judged."""
        hysteresis = self._compiled.rules.hysteresis
        unknown = []
        for name, hard in node.hard.items():
            limit = self._compiled.hard[name]
            signal = compiled.HARD_LIMITS[name]
            mean = view.mean(signal) if limit is not None else None
            hard.update(node.timeline.at, step_s, mean, limit, hysteresis)
            if limit is not None and mean is None:
                unknown.append(signal)
        return unknown


def _read(detection: compiled.CompiledDetection, view: reading.NodeView) -> _Read:
    """Return what a detection's signals say.

    The fall-back signals follow where it is not known through them, or where no signal of the online class tells that
    should.
    """
    found = _Read((), [])
    online = False
    for entries in (detection.signals, detection.fallback):
        found.direct = found.certain
        if online if detection.has_online else found.direct:
            break
        found.entries += entries
        for entry in entries:
            read = view.read(entry)
            found.readings.append(read)
            if read.index is not None:
                found.take(entry, read, read.index)
                online = online or (entry.online and not entry.rule.supporting)
    return found


def _fit(node: _Node, before: compiled.Compiled, after: compiled.Compiled) -> None:
    """Fit what is remembered of a node to other rules; states and windows of what stays are kept."""
    seconds = after.rules.window_seconds
    node.values = node.values.remapped([before.columns.get(name) for name in after.columns], seconds)
    node.block.seconds = seconds
    node.disks.resize(seconds)
    kept = {detection.name for detection in after.detections}
    node.detections = {name: known for name, known in node.detections.items() if name in kept}


def _rebooted(node: _Node, taken: sample.Sample) -> bool:
    if taken.boot_id and node.boot_id:
        return taken.boot_id != node.boot_id
    # Without boot ids, a monotonic clock that steps back is another boot.
    return node.timeline.rebooted(taken)


def _counts(block: sample.Block) -> histogram.Histogram | None:
    if block.histogram is None:
        return None
    try:
        return histogram.Histogram.from_json(block.histogram)
    except ValueError:
        return None  # a histogram that cannot be read is unknown


def _latencies(at: float, block: sample.Block, counts: histogram.Histogram | None) -> window.Latencies:
    completions = block.completions
    if completions is None and counts is not None:
        completions = round(counts.total)
    percentiles = (block.p50_usec, block.p95_usec, block.p99_usec)
    ages = [window.age_usec(device) for device in block.devices.values()]
    oldest = max((age for age in ages if age is not None), default=0.0) or (None if None in ages else 0.0)
    return window.latencies(at, completions, percentiles, counts, oldest)
