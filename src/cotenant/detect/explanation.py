"""Why the level is what it is, in sentences with numbers."""

from cotenant.detect import catalogue, registry, rules
from cotenant.detect import detectors as _detectors  # noqa: F401  (importing it registers them)
from cotenant.model import evaluation, sample


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
    if found.missing:
        reasons: dict[str, list[str]] = {}
        for signal, reason in found.missing.items():
            reasons.setdefault(reason, []).append(signal)
        parts = "; ".join(f"{reason}: {', '.join(signals)}" for reason, signals in reasons.items())
        said.append(f"Unknown: {parts}.")
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
    said += [f"  hurt: {victim.name} ({victim.evidence})." for victim in found.victims]
    said += [
        f"  suspected: {suspect.name}, confidence {suspect.confidence:.2f} ({suspect.evidence})."
        for suspect in found.suspects
    ]
    if found.triggered and not found.suspects:
        said.append("  suspected: unknown, the evidence is weak.")
    return said
