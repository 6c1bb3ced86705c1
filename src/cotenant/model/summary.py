"""The answer to "is anyone hurt now?" in a few words: for the page's top row, ``top`` and others."""

from typing import Literal

from cotenant.model import wording
from cotenant.model.evaluation import Detection, DetectionName, Evaluation, Suspect, Victim
from cotenant.model.sample import Cgroup, MissingReason

State = Literal["hurt", "tense", "calm", "unknown"]
"""A detection or hard limit holds; an index is raised; nothing of that; nothing is known."""

RAISED_INDEX = 0.25
"""From here on an index is called raised: where bucket ``medium`` begins."""


def state_of(evaluation: Evaluation) -> State:
    """Return the state of the node in one word."""
    if evaluation.hard or any(d.triggered for d in evaluation.detections.values()):
        return "hurt"
    if evaluation.interference_level is None:
        return "unknown"
    return "calm" if evaluation.bucket in ("none", "low") else "tense"


def detection_state_of(detection: Detection) -> State:
    """Return the state of one detection in one word."""
    if detection.triggered:
        return "hurt"
    if detection.index is None:
        return "unknown"
    return "tense" if detection.index >= RAISED_INDEX else "calm"


def dominant_of(evaluation: Evaluation) -> DetectionName | None:
    """Return the triggered detection with the largest index, or None when none is triggered."""
    triggered = [(d.index or 0.0, name) for name, d in evaluation.detections.items() if d.triggered]
    return max(triggered)[1] if triggered else None


def leading_signal(detection: Detection) -> str | None:
    """Return the known signal with the largest index, or None when none is known."""
    known = [(state.index, name) for name, state in detection.signals.items() if state.index is not None]
    return max(known)[1] if known else None


def victims_of(evaluation: Evaluation) -> list[Victim]:
    """Return the victims of all triggered detections, each once."""
    found: dict[str, Victim] = {}
    for detection in evaluation.detections.values():
        if detection.triggered:
            for victim in detection.victims:
                found.setdefault(victim.name, victim)
    return list(found.values())


def suspects_of(evaluation: Evaluation) -> list[Suspect]:
    """Return the suspects of all triggered detections, each once, the surest first."""
    found: dict[str, Suspect] = {}
    for detection in evaluation.detections.values():
        if detection.triggered:
            for suspect in detection.suspects:
                if suspect.name not in found or suspect.confidence > found[suspect.name].confidence:
                    found[suspect.name] = suspect
    return sorted(found.values(), key=lambda suspect: -suspect.confidence)


def headline_of(evaluation: Evaluation, machine: str = "This machine") -> str:
    """Return who is hurt, in a few words; ``machine`` is what to call it where no victim is known."""
    state = state_of(evaluation)
    if state == "hurt":
        victims = victims_of(evaluation)
        if not victims:
            return f"{machine} is under pressure"
        others = len(victims) - 1
        return f"{victims[0].name} is hurt" if not others else f"{victims[0].name} and {others} more are hurt"
    if state == "tense":
        return "Nobody is hurt, but pressure is rising"
    return "Nobody is hurt" if state == "calm" else "Not known yet"


def worst_of(evaluation: Evaluation) -> tuple[DetectionName, float] | None:
    """Return the detection with the largest index, which the bucket goes by, and that index; None if none is known."""
    known = [(name, found.index) for name, found in evaluation.detections.items() if found.index is not None]
    return max(known, key=lambda one: one[1], default=None)


def detail_of(evaluation: Evaluation, missing: dict[str, MissingReason]) -> str:
    """Return the sentence below the headline: the cause with its number, or what is nearest to trouble."""
    known = {name: d for name, d in evaluation.detections.items() if d.index is not None}
    if evaluation.interference_level is None or not known:
        return "No signal of any detection is known; what is missing is listed with its reason."
    dominant = dominant_of(evaluation)
    name = dominant if dominant is not None else max(known, key=lambda key: known[key].index or 0.0)
    detection = evaluation.detections[name]
    if dominant is None and not detection.index:
        return "Every detection that can be seen is calm."
    title = wording.DETECTION_TITLES[name]
    if dominant is None:
        return f"Nearest to trouble: {wording.inside(title)} ({_number_of(detection)})."
    text = f"{title}: {_number_of(detection)}."
    if missing.get("online") == "no_class":
        text += " No group is marked online, so whom it hurts is not known."
    return text


def _number_of(detection: Detection) -> str:
    signal = leading_signal(detection)
    if signal is None:
        return "no signal known now"
    state = detection.signals[signal]
    text = f"{wording.title_of(signal)} {wording.value_text(signal, state.value)}"
    return text if state.threshold is None else f"{text}, threshold {wording.value_text(signal, state.threshold)}"


def block_of(cgroup: Cgroup) -> float | None:
    """Return the bytes per second that a group reads and writes, or None when neither is known."""
    known = [value for value in (cgroup.read_bytes_per_sec, cgroup.write_bytes_per_sec) if value is not None]
    return sum(known) if known else None


def stall_of(cgroup: Cgroup) -> tuple[float | None, str | None]:
    """Return a group's worst stall and the name of its field, or (None, None) when none is known."""
    psi = {name: getattr(cgroup.psi, name) for name in cgroup.psi.__struct_fields__}
    known = {name: value for name, value in psi.items() if value is not None}
    if not known:
        return None, None
    worst = max(known, key=lambda name: known[name])
    return known[worst], worst
