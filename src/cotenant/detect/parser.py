"""From the text of a ``DetectionRuleConfig`` to rules: read onto a preset, or refused with all that is wrong."""

import dataclasses
import json
import math
import types
from collections.abc import Mapping
from typing import Any

import yaml

from cotenant.detect import catalogue, errors, node, presets, rules
from cotenant.model import evaluation

_TOP = ("apiVersion", "kind", "metadata", "spec", "status")
_METADATA = (
    "name",
    "namespace",
    "labels",
    "annotations",
    "generation",
    "resourceVersion",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "finalizers",
    "generateName",
    "managedFields",
    "ownerReferences",
    "selfLink",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Parsed:
    """Rules, the lines that gave a value (by key, like ``spec.hysteresis.enterFor``), and what deserves a remark."""

    rules: rules.Rules
    file: str
    lines: Mapping[str, int]
    remarks: tuple[str, ...] = ()


def parse(text: str, file: str, period_s: float = rules.PERIOD_SECONDS) -> list[Parsed]:
    """Return the rules of each document of a YAML or JSON text, at least one.

    :raises BadRules: with every problem found in it.
    """
    found = node.documents(text, file)
    if not found:
        raise errors.BadRules([errors.Problem(file, 1, "", f"empty: write a {rules.KIND}")])
    reader = node.Reader(file)
    parsed = [_Document(reader, period_s).read(document) for document in found]
    names: dict[str, yaml.Node] = {}
    for document, result in zip(found, parsed, strict=True):
        if result.rules.name in names:
            reader.refuse(document, "metadata.name", f"a second {rules.KIND} named {result.rules.name!r}")
        names[result.rules.name] = document
    if reader.problems:
        raise errors.BadRules(reader.problems)
    return parsed


def parse_object(value: Mapping[str, Any], place: str, period_s: float = rules.PERIOD_SECONDS) -> Parsed:
    """Return the rules of one object as the API server gives it; ``place`` stands for the file in errors.

    :raises BadRules: with every problem found in it.
    """
    return parse(json.dumps(value), place, period_s)[0]


class _Document:
    """Reads one document."""

    def __init__(self, reader: node.Reader, period_s: float) -> None:
        self._reader = reader
        self._period_s = period_s
        self._lines: dict[str, int] = {}
        self._remarks: list[str] = []

    def read(self, document: yaml.Node) -> Parsed:
        top = self._reader.mapping(document, "", _TOP)
        for key, only in (("apiVersion", rules.API_VERSION), ("kind", rules.KIND)):
            if key in top:
                self._reader.choice(top[key], key, [only])
            elif isinstance(document, yaml.MappingNode):
                self._reader.refuse(document, key, f"missing; write {key}: {only}")
        metadata = self._reader.mapping(top["metadata"], "metadata", _METADATA) if "metadata" in top else {}
        name = self._reader.text(metadata["name"], "metadata.name") if "name" in metadata else "default"
        result = self._spec(name or "default", top.get("spec"))
        return Parsed(result, self._reader.file, types.MappingProxyType(self._lines), tuple(self._remarks))

    def _spec(self, name: str, spec: yaml.Node | None) -> rules.Rules:
        given = self._reader.mapping(spec, "spec", rules.keys(rules.Rules)) if spec is not None else {}
        preset: rules.PresetName = "default"
        if "preset" in given:
            self._note("spec.preset", given["preset"])
            chosen = self._reader.choice(given["preset"], "spec.preset", rules.PRESETS)
            preset = next((known for known in rules.PRESETS if known == chosen), "default")
        basis = presets.get(preset)
        detections = dict(basis.detections)
        if "detections" in given:
            detections |= self._detections(given["detections"], basis)
        self._weights(given.get("detections") or spec, detections)
        return dataclasses.replace(
            basis,
            name=name,
            preset=preset,
            node_selector=self._selector(name, given.get("nodeSelector")),
            window_seconds=self._window(given.get("windowSeconds"), spec, basis),
            detections=types.MappingProxyType(detections),
            **{
                field: self._fields(given[key], f"spec.{key}", getattr(basis, field))
                for key, field in (("hardLimits", "hard_limits"), ("hysteresis", "hysteresis"), ("guard", "guard"))
                if key in given
            },
        )

    def _note(self, path: str, value: yaml.Node) -> None:
        self._lines[path] = node.line_of(value)

    def _selector(self, name: str, value: yaml.Node | None) -> Mapping[str, str]:
        selector: dict[str, str] = {}
        if value is None:
            return types.MappingProxyType(selector)
        for label, wanted in self._reader.entries(value, "spec.nodeSelector", None):
            path = f"spec.nodeSelector.{label}"
            self._note(path, wanted)
            text = self._reader.text(wanted, path)
            if text is not None:
                selector[label] = text
        if selector and name == "default":
            self._reader.refuse(value, "spec.nodeSelector", "the object default serves the nodes that no other selects")
        return types.MappingProxyType(selector)

    def _window(self, value: yaml.Node | None, spec: yaml.Node | None, basis: rules.Rules) -> float:
        window: float | None = basis.window_seconds
        if value is not None:
            bounds = rules.keys(rules.Rules)["windowSeconds"][1]
            window = self._bounded(value, "spec.windowSeconds", bounds, whole=False)
        if window is None:
            return basis.window_seconds
        place = value or spec
        if place is not None and window < 3 * self._period_s:
            least = f"{3 * self._period_s:g}"
            message = f"{window:g} s is less than 3 periods of {self._period_s:g} s; write {least} or more"
            self._reader.refuse(place, "spec.windowSeconds", message)
        return window

    def _bounded(self, value: yaml.Node, path: str, known: rules.Key, whole: bool) -> float | int | None:
        self._note(path, value)
        number = self._reader.whole(value, path) if whole else self._reader.number(value, path)
        if number is None:
            return None
        bounds = []
        if known.above is not None:
            bounds.append((number > known.above, f"more than {known.above:g}"))
        if known.minimum is not None:
            bounds.append((number >= known.minimum, f"at least {known.minimum:g}"))
        if known.maximum is not None:
            bounds.append((number <= known.maximum, f"at most {known.maximum:g}"))
        if not all(ok for ok, _ in bounds):
            self._reader.refuse(value, path, f"{number:g} must be {' and '.join(text for _, text in bounds)}")
            return None
        return number

    def _fields(self, value: yaml.Node, path: str, basis: Any) -> Any:
        """Return the dataclass with the numbers that a mapping gives; null switches off what can be None."""
        known = rules.keys(type(basis))
        types_of = {field.name: field.type for field in dataclasses.fields(basis)}
        changes: dict[str, Any] = {}
        for key, item in self._reader.entries(value, path, known):
            field, facts = known[key]
            if node.is_null(item):
                if types_of[field] == float | None:
                    self._note(f"{path}.{key}", item)
                    changes[field] = None
                continue
            number = self._bounded(item, f"{path}.{key}", facts, whole=types_of[field] is int)
            if number is not None:
                changes[field] = number
        return dataclasses.replace(basis, **changes)

    def _detections(self, value: yaml.Node, basis: rules.Rules) -> dict[evaluation.DetectionName, rules.DetectionRule]:
        result: dict[evaluation.DetectionName, rules.DetectionRule] = {}
        given = self._reader.mapping(value, "spec.detections", rules.DETECTIONS)
        for name in rules.DETECTIONS:
            if name in given:
                result[name] = self._detection(name, given[name], basis.detections[name])
        return result

    def _detection(self, name: str, value: yaml.Node, basis: rules.DetectionRule) -> rules.DetectionRule:
        path = f"spec.detections.{name}"
        self._note(path, value)
        known = rules.keys(rules.DetectionRule)
        given = self._reader.mapping(value, path, known)
        enabled, weight = basis.enabled, basis.weight
        if "enabled" in given:
            self._note(f"{path}.enabled", given["enabled"])
            said = self._reader.boolean(given["enabled"], f"{path}.enabled")
            enabled = enabled if said is None else said
        if "weight" in given:
            number = self._bounded(given["weight"], f"{path}.weight", known["weight"][1], whole=False)
            weight = weight if number is None else number
        listed = {
            field: self._signals(given[key], f"{path}.{key}") if key in given else ()
            for key, field in (("signals", "signals"), ("fallbackSignals", "fallback_signals"))
        }
        if enabled and not any(listed.values()):
            self._remarks.append(
                f"{self._reader.file}:{node.line_of(value)}: {path}: lists no signals, so it is never known"
            )
        return rules.DetectionRule(enabled=enabled, weight=weight, **listed)

    def _signals(self, value: yaml.Node, path: str) -> tuple[rules.SignalRule, ...]:
        result: list[rules.SignalRule] = []
        for index, item in enumerate(self._reader.sequence(value, path)):
            rule = self._signal(item, f"{path}[{index}]")
            if rule is None:
                continue
            if any(other.signal == rule.signal for other in result):
                self._reader.refuse(item, f"{path}[{index}].signal", f"{rule.signal} is listed twice")
            result.append(rule)
        return tuple(result)

    def _signal(self, item: yaml.Node, path: str) -> rules.SignalRule | None:
        known = rules.keys(rules.SignalRule)
        given = self._reader.mapping(item, path, known)
        self._note(path, item)
        if not isinstance(item, yaml.MappingNode):
            return None
        missing = [key for key in known if key not in given]
        if missing:
            self._reader.refuse(item, path, f"{' and '.join(missing)} missing")
        name = self._reader.text(given["signal"], f"{path}.signal") if "signal" in given else None
        signal = None
        if name is not None:
            try:
                signal = catalogue.find(name)
            except errors.UnknownSignal as error:
                self._reader.refuse(given["signal"], f"{path}.signal", f"unknown signal {name!r}", error.nearest)
        points: dict[str, float] = {}
        for key in ("normal", "threshold", "saturation"):
            bounds = known[key][1]
            if signal and signal.ratio:
                bounds = dataclasses.replace(bounds, minimum=0, maximum=1)
            number = self._bounded(given[key], f"{path}.{key}", bounds, whole=False) if key in given else None
            if number is not None:
                points[key] = number
        if signal is None or len(points) < 3:
            return None
        if not self._ordered(signal, points):
            sign = ("<", "≤") if signal.direction == "rising" else (">", "≥")
            wanted = f"normal {sign[0]} threshold {sign[1]} saturation"
            said = ", ".join(f"{key} {number:g}" for key, number in points.items())
            message = f"{signal.name} is {signal.direction}, so {wanted} is meant, not {said}"
            self._reader.refuse(given["threshold"], f"{path}.threshold", message)
            return None
        return rules.SignalRule(signal.name, points["normal"], points["threshold"], points["saturation"])

    @staticmethod
    def _ordered(signal: catalogue.Signal, points: Mapping[str, float]) -> bool:
        normal, threshold, saturation = points["normal"], points["threshold"], points["saturation"]
        if signal.direction == "rising":
            return normal < threshold <= saturation
        return normal > threshold >= saturation

    def _weights(
        self, value: yaml.Node | None, detections: Mapping[evaluation.DetectionName, rules.DetectionRule]
    ) -> None:
        if value is None:
            return
        total = sum(rule.weight for rule in detections.values() if rule.enabled)
        if total <= 0:
            self._reader.refuse(
                value, "spec.detections", "no enabled detection has a weight; give one a weight above 0"
            )
        elif not math.isfinite(total):
            self._reader.refuse(
                value, "spec.detections", "the weights together are no finite number; give smaller ones"
            )
