"""Thresholds for one class of nodes, from what was recorded of it: calibrated on one part, checked on another.

Each signal that today's rules name gets a threshold above what it reaches in calm (but for as many triggers as are
allowed), and, where somebody says when services were slow, below what it reaches then. It becomes more sensitive than
today's only where that catches a slow episode. What comes out is replayed,
beside today's rules, on samples that nothing was learnt from: the rates are what was seen there.
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from cotenant.detect import catalogue, engine, parser, rendering, rules, scoring, truth
from cotenant.model import evaluation, sample, series

Samples = Callable[[], Iterable[sample.Sample]]
"""The samples of all nodes, each node's in their order; may be asked for again."""

HELD_OUT_SHARE = 0.25
"""The last part of each node's time: nothing is learnt from it."""
LEAST_SECONDS = 4 * 3600.0
"""Of known signals, over all nodes: less cannot tell a daily habit from an incident."""
LEAST_EPISODES = 5
"""Slow episodes in the held-out part, before a share of missed ones is told."""
LEAST_KNOWN_SHARE = 0.9
BLOCK_SECONDS = 60.0
"""Triggers closer together than this are one."""
MARGIN = 1.1
"""A threshold is at least so many times what calm reaches."""
LEAVE_MARGIN = 1.02
NORMAL_SHARE = 0.8
SATURATION_RATIO = 4.0
CEILING = 0.98
FLOORS = {"ratio": 0.02, "usec": 500.0, "per_sec": 10.0, "other": 1.0}
"""Least thresholds: below them a signal on an idle machine is noise."""


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one signal of one detection: ``after`` is what it was where it stays; None: it is left out.

    One that is not known here keeps its numbers and its place, since which signals stand in for which depends on that.
    """

    detection: evaluation.DetectionName
    signal: str
    before: rules.SignalRule
    after: rules.SignalRule | None
    reason: str
    known: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Recommendation:
    """New rules, what changed, and how they and today's fare on the held-out samples."""

    rules: rules.Rules
    changes: tuple[Change, ...]
    expected: scoring.Score
    today: scoring.Score
    nodes: int
    allowed_per_day: float

    @property
    def holds(self) -> bool:
        """Whether the held-out samples were enough to show that the allowed rate holds."""
        most = self.expected.false_per_day_at_most
        return most is not None and most <= self.allowed_per_day


class NotEnough(Exception):
    """There is too little to recommend anything from; the text says how much there is and how much is needed."""


def recommend(
    today: rules.Rules,
    taken: Samples,
    known: truth.Truth | None,
    allowed_per_day: float,
    name: str,
    node_selector: Mapping[str, str] | None = None,
) -> Recommendation:
    """Return thresholds for the nodes that these samples are of.

    :raises NotEnough: if there are fewer than four hours of known signals, or no signal can be calibrated.
    """
    cuts = _cuts(taken())
    early = (one for one in taken() if series.time_ms_of(one.time) / 1000 < cuts[one.node])
    learnt = _learn(today, early, known)
    total = max((signal.known_seconds for signal in learnt.values()), default=0.0) / (1 - HELD_OUT_SHARE)
    if total < LEAST_SECONDS:
        raise NotEnough(
            f"not enough data: {total / 3600:.1f} node-hours in which signals were known, "
            f"{LEAST_SECONDS / 3600:g} are needed"
        )
    changes, detections = _changed(today, learnt, allowed_per_day)
    selector = today.node_selector if node_selector is None else node_selector
    proposed = dataclasses.replace(today, name=name, node_selector=selector, detections=detections)
    parser.parse(rendering.text_of(proposed), "recommendation")  # what is printed can be applied, or this is a defect
    return Recommendation(
        rules=proposed,
        changes=tuple(changes),
        expected=scoring.replay(proposed, taken(), known, cuts),
        today=scoring.replay(today, taken(), known, cuts),
        nodes=len(cuts),
        allowed_per_day=allowed_per_day,
    )


def _cuts(taken: Iterable[sample.Sample]) -> dict[str, float]:
    """Return where the held-out part of each node begins."""
    spans: dict[str, tuple[float, float]] = {}
    for one in taken:
        at = series.time_ms_of(one.time) / 1000
        first, last = spans.get(one.node, (at, at))
        spans[one.node] = (min(first, at), max(last, at))
    return {node: last - (last - first) * HELD_OUT_SHARE for node, (first, last) in spans.items()}


# --- learning ---------------------------------------------------------------------------------------------------------


class _Signal:
    """What one signal did: the most it held for long enough to trigger, by minute of calm and by episode."""

    def __init__(self, name: str, enter_for: int) -> None:
        self.name = name
        self.falling = catalogue.find(name).direction == "falling"
        self._enter_for = enter_for
        self.known_seconds = self.seconds = self.calm_seconds = 0.0
        self.calm_peaks: dict[tuple[str, int], float] = {}
        self.episode_peaks: dict[tuple[str, int], float] = {}
        self._recent: dict[str, list[float]] = {}

    def badness(self, value: float) -> float:
        """Return the value so that more is worse."""
        return 1.0 - value if self.falling else value

    def value(self, badness: float) -> float:
        return 1.0 - badness if self.falling else badness

    def leaving(self, usual: float, leave_ratio: float) -> float:
        """Return the least threshold whose leave point what is usual is past."""
        bound = usual * LEAVE_MARGIN
        return 1.0 - leave_ratio * (1.0 - bound) if self.falling else bound / leave_ratio

    def take(
        self, node: str, at: float, period_s: float, state: evaluation.SignalState | None, near: int | None
    ) -> None:
        self.seconds += period_s
        if state is None or state.index is None:
            self._recent.pop(node, None)
            return
        self.known_seconds += period_s
        recent = self._recent.setdefault(node, [])
        recent.append(0.0 if state.value is None else self.badness(state.value))
        del recent[: -self._enter_for]
        held = min(recent) if len(recent) == self._enter_for else 0.0
        if near is None:
            self.calm_seconds += period_s
            key = (node, int(at // BLOCK_SECONDS))
            self.calm_peaks[key] = max(self.calm_peaks.get(key, 0.0), held)
        else:
            self.episode_peaks[node, near] = max(self.episode_peaks.get((node, near), 0.0), held)


def _learn(today: rules.Rules, taken: Iterable[sample.Sample], known: truth.Truth | None) -> dict[str, _Signal]:
    sensing = dataclasses.replace(today, detections={n: _sensing(rule) for n, rule in today.detections.items()})
    judge = engine.Engine(sensing)
    enter_for = today.hysteresis.enter_for
    learnt = {
        entry.signal: _Signal(entry.signal, enter_for) for rule in today.detections.values() for entry in _all(rule)
    }
    places: dict[str, truth.Place] = {}
    for one in scoring.bare(taken):
        if one.node not in places:
            places[one.node] = truth.Place(() if known is None else known.of(one.node), today.window_seconds)
        at = series.time_ms_of(one.time) / 1000
        found = judge.evaluate(one)
        states = {name: state for detection in found.detections.values() for name, state in detection.signals.items()}
        near = places[one.node].near(at)
        for name, signal in learnt.items():
            signal.take(one.node, at, one.period_s or 1.0, states.get(name), near)
    return learnt


def _all(rule: rules.DetectionRule) -> tuple[rules.SignalRule, ...]:
    return (*rule.signals, *rule.fallback_signals)


def _sensing(rule: rules.DetectionRule) -> rules.DetectionRule:
    """Return a detection that reads every signal, whether another is known or not, and never triggers."""

    def sensor(entry: rules.SignalRule) -> rules.SignalRule:
        if catalogue.find(entry.signal).direction == "falling":
            return rules.SignalRule(entry.signal, 1.0, -1e18, -1e18)
        return rules.SignalRule(entry.signal, 0.0, 1e18, 1e18)

    names = dict.fromkeys(entry.signal for entry in _all(rule))
    by_name = {entry.signal: entry for entry in _all(rule)}
    return rules.DetectionRule(enabled=True, weight=1.0, signals=tuple(sensor(by_name[name]) for name in names))


# --- choosing ---------------------------------------------------------------------------------------------------------


def _changed(
    today: rules.Rules, learnt: Mapping[str, _Signal], allowed_per_day: float
) -> tuple[list[Change], dict[evaluation.DetectionName, rules.DetectionRule]]:
    usable = [name for name, signal in learnt.items() if not _unusable(signal)]
    share = allowed_per_day / max(len(usable), 1)
    leave_ratio = today.hysteresis.leave_ratio
    changes: list[Change] = []
    calibrated: list[Change] = []
    detections = dict(today.detections)
    for name, rule in today.detections.items():
        if not rule.enabled:
            continue
        own = {entry.signal: _change(name, entry, learnt[entry.signal], share, leave_ratio) for entry in _all(rule)}
        calibrated += [change for change in own.values() if change.known and change.after is not None]
        usable_here = any(change.known and change.after is not None for change in own.values())
        if any(_moves(change, usable_here) for change in own.values()):
            signals, fallback = (
                tuple(after for entry in entries if (after := own[entry.signal].after) is not None)
                for entries in (rule.signals, rule.fallback_signals)
            )
            detections[name] = dataclasses.replace(rule, signals=signals, fallback_signals=fallback)
        else:
            # Listed anew, its signals would lose the conditions that only a preset can say.
            own = {key: dataclasses.replace(change, after=change.before) for key, change in own.items()}
        changes += own.values()
    if not calibrated:
        why = "; ".join(f"{change.signal}: {change.reason}" for change in changes)
        raise NotEnough(f"not enough data: no signal can be calibrated ({why})")
    return changes, detections


def _moves(change: Change, usable: bool) -> bool:
    """Return whether a detection is listed anew for this signal: to move it, or to drop one that is always full."""
    if change.after is None:
        return usable
    return change.after.threshold != change.before.threshold


def _unusable(signal: _Signal) -> str:
    """Return why a signal cannot be calibrated, or nothing."""
    if signal.seconds <= 0 or signal.known_seconds < LEAST_KNOWN_SHARE * signal.seconds:
        share = signal.known_seconds / signal.seconds if signal.seconds else 0.0
        return f"known for {share:.0%} of the time; {LEAST_KNOWN_SHARE:.0%} are needed"
    return "" if signal.calm_peaks else "never seen in calm"


def _change(
    detection: evaluation.DetectionName,
    entry: rules.SignalRule,
    signal: _Signal,
    allowed_per_day: float,
    leave_ratio: float,
) -> Change:
    why = _unusable(signal)
    if why:
        return Change(detection, entry.signal, entry, _plain(entry), why, known=False)
    peaks = sorted(signal.calm_peaks.values(), reverse=True)
    spared = min(math.floor(allowed_per_day * signal.calm_seconds / scoring.DAY_SECONDS), len(peaks) - 1)
    calm = peaks[spared]
    usual = statistics.quantiles(peaks, n=10)[-1] if len(peaks) > 1 else calm
    # Past what calm reaches, and so far past what is usual that a trigger ends when the trouble does.
    least = max(calm * MARGIN, signal.leaving(usual, leave_ratio), _floor(entry.signal))
    ratio = catalogue.find(entry.signal).ratio
    if ratio and least > CEILING:
        return Change(detection, entry.signal, entry, None, f"reaches {_short(signal.value(calm))} in calm")
    now = signal.badness(entry.threshold)
    slow = sorted(peak for peak in signal.episode_peaks.values() if peak > least)
    threshold = max(least, now)
    reason = f"calm reaches {_short(signal.value(calm))}"
    if signal.episode_peaks:
        reason += f"; past it in {len(slow)} of {len(signal.episode_peaks)} slow episodes"
    if slow:  # in the middle, by ratio, between calm and three quarters of the episodes that it sees
        threshold = max(least, math.sqrt(least * slow[len(slow) // 4]))
    elif least <= now:
        return Change(detection, entry.signal, entry, _plain(entry), reason)  # nothing says that it should move
    top = max(threshold, slow[-1] if slow else SATURATION_RATIO * threshold)
    points = [_down(min(usual, NORMAL_SHARE * threshold)), _up(threshold), _up(top)]
    if ratio:
        points = [min(point, 1.0) for point in points]
    normal, threshold, top = (round(signal.value(point), 9) for point in points)
    after = rules.SignalRule(entry.signal, normal, threshold, top, reason=reason)
    return Change(detection, entry.signal, entry, after, reason)


def _plain(entry: rules.SignalRule) -> rules.SignalRule:
    """Return a signal as a file can list it: its numbers alone."""
    return rules.SignalRule(entry.signal, entry.normal, entry.threshold, entry.saturation, reason=entry.reason)


def _floor(name: str) -> float:
    kind = next((kind for kind in FLOORS if name.endswith(kind)), "other")
    return FLOORS[kind]


def _up(value: float) -> float:
    """Return a number of three digits that is not less."""
    return _digits(value, math.ceil)


def _down(value: float) -> float:
    return _digits(value, math.floor)


def _digits(value: float, toward: Callable[[float], int]) -> float:
    if value <= 0:
        return 0.0
    scale = 10.0 ** (2 - math.floor(math.log10(value)))
    return toward(round(value * scale, 6)) / scale


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def table(found: Recommendation) -> Sequence[Mapping[str, Any]]:
    """Return what becomes of each signal, as rows for people and programs."""
    return [
        {
            "detection": change.detection,
            "signal": change.signal,
            "what": _what(change),
            "today": _points(change.before),
            "recommended": None if change.after is None else _points(change.after),
            "reason": change.reason,
        }
        for change in found.changes
    ]


def _what(change: Change) -> str:
    if not change.known:
        return "not known"
    if change.after is None:
        return "left out"
    return "stays" if change.after.threshold == change.before.threshold else "changed"


def _points(entry: rules.SignalRule) -> dict[str, Any]:
    points: dict[str, Any] = {
        "normal": entry.normal, "threshold": entry.threshold, "saturation": entry.saturation
    }  # fmt: skip
    if entry.scale:
        points["scale"] = "by device kind"
    if entry.condition:
        points["condition"] = entry.condition
    return points
