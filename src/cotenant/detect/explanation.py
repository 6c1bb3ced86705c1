"""Why the level is what it is, in sentences with numbers."""

from cotenant.detect import catalogue, registry, rules
from cotenant.detect import detectors as _detectors  # noqa: F401  (importing it registers them)
from cotenant.model import evaluation, missing, sample


def dominant(found: evaluation.Evaluation) -> evaluation.DetectionName | None:
    """Return the triggered detection with the largest index (unknown counts as 0), or None when none is triggered."""
    triggered = [name for name, detection in found.detections.items() if detection.triggered]
    return max(triggered, key=lambda name: found.detections[name].index or 0.0, default=None)


def sentences(found: evaluation.Evaluation, by: rules.Rules | None = None) -> list[str]:
    """Return the reasons of a level: the level, each detection with its largest signals, hard limits, what is missing.

    With the rules, each part of the level is given in numbers too.
    """
    said = [_level(found, by)]
    cause = dominant(found)
    if cause:
        said.append(f"Dominant cause: {registry.DETECTORS[cause].title}.")
    for name, detection in found.detections.items():
        said += _detection(name, detection, by)
    for hard in found.hard:
        said.append(f"Hard limit {hard} is in force: the node takes no new work.")
    said += _unknown(found)
    return said


def _unknown(found: evaluation.Evaluation) -> list[str]:
    """Return for each reason what is unknown for it, and what would make it known."""
    by_reason: dict[sample.MissingReason, list[str]] = {}
    for signal, reason in found.missing.items():
        by_reason.setdefault(reason, []).append(signal)
    said = []
    for reason, signals in by_reason.items():
        explained = missing.EXPLANATIONS[reason]
        said.append(f"Unknown, {explained.why} ({reason}): {', '.join(signals)}.")
        said.append(f"  {explained.remedy}.")
    return said


def throttled(taken: sample.Sample, from_ratio: float) -> list[str]:
    """Return a sentence for each online group that its own quota throttles: it waits, but nobody interferes."""
    return [
        f"{group.name or group.path} is throttled by its own quota in {group.throttled_ratio * 100:.0f} % of periods; "
        "that is not interference."
        for group in taken.cgroups
        if group.class_ == "online" and group.throttled_ratio is not None and group.throttled_ratio >= from_ratio
    ]


def quantity(signal: str, value: float) -> str:
    """Return a signal's value with its unit, for people."""
    facts = catalogue.find(signal)
    if facts.ratio:
        return f"{value * 100:.1f} %"
    if facts.unit == "µs":
        return f"{value / 1000:.1f} ms" if value >= 1000 else f"{value:.0f} µs"
    return f"{value:.4g} {facts.unit}"


def _level(found: evaluation.Evaluation, by: rules.Rules | None) -> str:
    if found.interference_level is None:
        return f"{found.node} at {found.time}: the interference level is unknown, since no detection is known."
    text = f"{found.node} at {found.time}: interference level {found.interference_level:.2f} ({found.bucket})"
    text += f", known for {found.coverage * 100:.0f} % of the weight"
    if by is None:
        return text + "."
    known = {name: d.index for name, d in found.detections.items() if d.index is not None}
    parts = " + ".join(f"{by.detections[name].weight:g} × {index:.2f}" for name, index in known.items())
    weight = sum(by.detections[name].weight for name in known)
    return f"{text}; that is ({parts}) ÷ {weight:g}."


def _past(signal: str, state: evaluation.SignalState) -> bool:
    if state.value is None or state.threshold is None:
        return False
    falling = catalogue.find(signal).direction == "falling"
    return state.value <= state.threshold if falling else state.value >= state.threshold


def _but(name: evaluation.DetectionName, signal: str, by: rules.Rules | None) -> str:
    """Return why a signal past its threshold did not trigger: for too short a time, or its condition does not hold."""
    if by is None:
        return "not for long enough yet, or its condition does not hold (docs/detections.md)"
    listed = [*by.detections[name].signals, *by.detections[name].fallback_signals]
    condition = next((one.condition for one in listed if one.signal == signal), "")
    if not condition:
        return f"not in {by.hysteresis.enter_for} evaluations in a row yet"
    return f"counts {registry.DETECTORS[name].conditions[condition].text}"


def _detection(name: evaluation.DetectionName, found: evaluation.Detection, by: rules.Rules | None) -> list[str]:
    title = registry.DETECTORS[name].title
    if found.index is None:
        state = "was triggered and is unknown now" if found.triggered else "is unknown"
        return [f"{title} {state}: none of its signals is known."]
    state = {True: "is triggered", False: "is calm", None: "is not decided yet"}[found.triggered]
    if found.triggered is False and found.index > 0:
        state = "is not triggered"
    known = sorted(
        ((signal, s) for signal, s in found.signals.items() if s.index is not None),
        key=lambda item: -(item[1].index or 0.0),
    )
    parts = [
        f"{signal} is {quantity(signal, s.value)}, threshold {quantity(signal, s.threshold)} (index {s.index:.2f})"
        for signal, s in known[:3]
        if s.value is not None and s.threshold is not None
    ]
    said = [f"{title} {state}, index {found.index:.2f}" + (f": {'; '.join(parts)}." if parts else ".")]
    if found.triggered is False:
        said += [
            f"  {signal} is past its threshold, but {_but(name, signal, by)}."
            for signal, s in known
            if _past(signal, s)
        ]
    said += [f"  hurt: {victim.name} ({victim.evidence})." for victim in found.victims]
    said += [
        f"  suspected: {suspect.name}, confidence {suspect.confidence:.2f} ({suspect.evidence})."
        for suspect in found.suspects
    ]
    if found.triggered and not found.suspects:
        said.append("  suspected: unknown, the evidence is weak.")
    return said
