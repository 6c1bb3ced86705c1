"""Every value in force and where it came from: a line of the file, or the preset and its reason."""

from collections.abc import Iterator
from typing import Any

import msgspec

from cotenant.detect import parser, presets, registry, rules
from cotenant.model import evaluation


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """One value: its key, the value, ``FILE:LINE`` or ``preset NAME``, and the preset's reason."""

    key: str
    value: Any
    origin: str
    reason: str = ""


def of_preset(name: rules.PresetName) -> list[Value]:
    """Return every value of a preset."""
    return effective(parser.Parsed(presets.get(name), f"preset {name}", {}))


def effective(parsed: parser.Parsed) -> list[Value]:
    """Return every value that is in force."""
    return list(_Walk(parsed).values())


class _Walk:
    def __init__(self, parsed: parser.Parsed) -> None:
        self._parsed = parsed

    def _value(self, key: str, value: Any, reason: str = "", given_by: str | None = None) -> Value:
        line = self._parsed.lines.get(given_by or key)
        if line is not None:
            return Value(key=key, value=value, origin=f"{self._parsed.file}:{line}")
        return Value(key=key, value=value, origin=f"preset {self._parsed.rules.preset}", reason=reason)

    def values(self) -> Iterator[Value]:
        known = rules.keys(rules.Rules)
        source = self._parsed.rules
        yield self._value("spec.preset", source.preset, presets.DESCRIPTIONS[source.preset])
        if source.node_selector:
            for label, wanted in source.node_selector.items():
                yield self._value(f"spec.nodeSelector.{label}", wanted)
        yield self._value("spec.windowSeconds", source.window_seconds, known["windowSeconds"][1].reason)
        for name in rules.DETECTIONS:
            yield from self._detection(name)
        for key in ("hardLimits", "hysteresis", "guard"):
            part = getattr(source, known[key][0])
            default = type(part)()
            for inner, (field, facts) in rules.keys(type(part)).items():
                value = getattr(part, field)
                # A reason speaks of the default; a preset that differs has its own, told in its description.
                reason = facts.reason if value == getattr(default, field) else presets.DESCRIPTIONS[source.preset]
                yield self._value(f"spec.{key}.{inner}", value, reason)

    def _detection(self, name: evaluation.DetectionName) -> Iterator[Value]:
        rule = self._parsed.rules.detections[name]
        path = f"spec.detections.{name}"
        yield self._value(f"{path}.enabled", rule.enabled)
        yield self._value(f"{path}.weight", rule.weight)
        for key, signals in (("signals", rule.signals), ("fallbackSignals", rule.fallback_signals)):
            if not signals:
                yield self._value(f"{path}.{key}", [], given_by=path)
            for index, signal in enumerate(signals):
                place = f"{path}.{key}[{index}]"
                yield self._value(place, described(name, signal), signal.reason)


def described(name: evaluation.DetectionName, signal: rules.SignalRule) -> dict[str, Any]:
    """Return a signal's rule as a file would list it, and what only a preset can say of it."""
    result: dict[str, Any] = {key: getattr(signal, field) for key, (field, _) in rules.keys(rules.SignalRule).items()}
    if signal.scale == "device":
        result["scale"] = "by device kind"
    if signal.condition:
        result["condition"] = registry.DETECTORS[name].conditions[signal.condition].text
    if signal.supporting:
        result["supporting"] = True
    return result
