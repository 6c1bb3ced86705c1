"""From samples to evaluations, one each: pure and synchronous, with state for each node. Contracts §3."""

import math

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

        :raises BadSamples: if the sample has neither ``uptime_s`` nor a ``time`` that can be read.
        """
        node = self._node_of(taken)
        step_s = self._take(node, taken)
        plan, at = self._compiled, node.timeline.at
        view = reading.NodeView(plan, at, node.values, node.block, node.disks)
        missing: dict[str, sample.MissingReason] = {}
        detections: dict[evaluation.DetectionName, evaluation.Detection] = {}
        weighted: list[float] = []
        known_weight = covered = worst = 0.0
        for detection in plan.detections:
            found, direct = self._detect(node, detection, view, step_s, taken, missing)
            detections[detection.name] = found
            if found.index is None:
                continue
            weighted.append(detection.weight * found.index)
            known_weight += detection.weight
            covered += detection.weight if direct else detection.weight / 2
            worst = max(worst, found.index)
        level = min(round(math.fsum(weighted) / known_weight, _DIGITS), 1.0) if known_weight > 0 else None
        node.bucket = state.bucket_after(node.bucket, None if level is None else worst)
        self._limit(node, view, step_s, taken, missing)
        node.groups.rest(at, taken, calm=level is not None and worst < state.CALM_INDEX)
        return evaluation.Evaluation(
            node=taken.node,
            time=taken.time,
            interference_level=level,
            bucket=node.bucket,
            coverage=covered / plan.weight if plan.weight > 0 else 0.0,
            detections=detections,
            hard=[name for name, hard in node.hard.items() if hard.in_force],
            missing=missing,
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

    def _detect(
        self,
        node: _Node,
        detection: compiled.CompiledDetection,
        view: reading.NodeView,
        step_s: float,
        taken: sample.Sample,
        missing: dict[str, sample.MissingReason],
    ) -> tuple[evaluation.Detection, bool]:
        """Return one detection, and whether it is known through its signals, not only through their fall-back."""
        readings, direct = _read(detection, view)
        certain = direct or any(_decides(entry, read) for entry, read in readings[len(detection.signals) :])
        index, reached, calm = 0.0, False, True
        signals: dict[str, evaluation.SignalState] = {}
        for entry, read in readings:
            name = entry.rule.signal
            if read.index is None:
                missing[name] = view.why_unknown(entry, taken)
            else:
                index = read.index if read.index > index else index
                reached = reached or read.reached
                calm = calm and read.calm
            if name not in signals or signals[name].index is None:
                signals[name] = entry.unknown_state if read is entry.unknown else read.state()
        current = node.detections.get(detection.name)
        if current is None:
            current = node.detections[detection.name] = state.DetectionState()
        hysteresis = self._compiled.rules.hysteresis
        if certain:
            current.known(node.timeline.at, step_s, reached, calm, hysteresis)
        else:
            current.unknown(node.timeline.at, hysteresis)
        if current.triggered:
            victims, suspects = node.groups.blame(detection.name, taken, node.timeline.at)
        else:
            node.groups.acquit(detection.name)
            victims, suspects = [], []
        found = evaluation.Detection(
            triggered=current.triggered,
            index=index if certain else None,
            signals=signals,
            victims=victims,
            suspects=suspects,
        )
        return found, direct

    def _limit(
        self,
        node: _Node,
        view: reading.NodeView,
        step_s: float,
        taken: sample.Sample,
        missing: dict[str, sample.MissingReason],
    ) -> None:
        hysteresis = self._compiled.rules.hysteresis
        for name, hard in node.hard.items():
            limit = self._compiled.hard[name]
            signal = compiled.HARD_LIMITS[name]
            mean = view.mean(signal) if limit is not None else None
            hard.update(node.timeline.at, step_s, mean, limit, hysteresis)
            if limit is not None and mean is None:
                missing[signal] = view.why_no_mean(signal, taken)


def _read(
    detection: compiled.CompiledDetection, view: reading.NodeView
) -> tuple[list[tuple[compiled.Entry, compiled.Reading]], bool]:
    """Return what a detection's signals say, and whether it is known through them.

    The fall-back signals follow where it is not, or where no signal of the online class tells that should.
    """
    readings = []
    direct = online = False
    for entry in detection.signals:
        read = view.read(entry)
        readings.append((entry, read))
        if _decides(entry, read):
            direct = True
            online = online or entry.online
    if not (online if detection.has_online else direct):
        readings += [(entry, view.read(entry)) for entry in detection.fallback]
    return readings, direct


def _decides(entry: compiled.Entry, read: compiled.Reading) -> bool:
    """Return whether a signal is known and makes its detection known by itself."""
    return read.index is not None and not entry.rule.supporting


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
