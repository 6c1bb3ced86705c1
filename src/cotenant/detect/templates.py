"""Strategy templates: by type of business, what weighs how much, from where on it hurts, the QoS class, and how
strongly a pod keeps to calm nodes. Data: a bundled file, and the user's own over it.

Where several types share a node, the most sensitive one decides: the largest weight of each detection, the strictest
threshold of each signal.
"""

import dataclasses
import functools
import importlib.resources
import types
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

import yaml

from cotenant.detect import catalogue, errors, node, registry, rules
from cotenant.detect import detectors as _detectors  # noqa: F401  (importing it registers them)
from cotenant.model import evaluation
from cotenant.model.pod import QosClass

KIND = "StrategyTemplates"
WORKLOAD_TYPE_LABEL = "cotenant.io/workload-type"
"""On a pod, or on its namespace for all pods there that say nothing themselves."""
Affinity = Literal["off", "soft", "hard"]
AFFINITIES: tuple[Affinity, ...] = get_args(Affinity)
QOS_CLASSES = ("LSE", "LSR", "LS", "BE")
_TOP = ("apiVersion", "kind", "templates")
_TEMPLATE = ("description", "qosClass", "affinity", "weights", "thresholds")
_POINTS = ("normal", "threshold", "saturation")


@dataclasses.dataclass(frozen=True, slots=True)
class Points:
    """The three points of a signal, in its unit."""

    normal: float
    threshold: float
    saturation: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One type of business. What it leaves out is the rules' own, and the manager's."""

    name: str
    description: str = ""
    qos_class: QosClass | None = None
    affinity: Affinity | None = None
    weights: Mapping[evaluation.DetectionName, float] = dataclasses.field(default_factory=dict)
    thresholds: Mapping[str, Points] = dataclasses.field(default_factory=dict)


Templates = Mapping[str, Template]


def type_of(labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> str | None:
    """Return the type of business of a pod: its own label's, else its namespace's, or None where neither says."""
    return labels.get(WORKLOAD_TYPE_LABEL) or namespace_labels.get(WORKLOAD_TYPE_LABEL) or None


@functools.cache
def bundled() -> Templates:
    """Return the templates that come with cotenant."""
    text = importlib.resources.files("cotenant.detect").joinpath("templates.yaml").read_text()
    return parse(text, "templates.yaml")


def over_bundled(text: str, file: str) -> Templates:
    """Return the bundled templates with those of a user's file over them, whole.

    :raises BadRules: with every problem found in it.
    """
    return types.MappingProxyType({**bundled(), **parse(text, file)})


def parse(text: str, file: str) -> Templates:
    """Return the templates of a YAML or JSON text.

    :raises BadRules: with every problem found in it.
    """
    reader = node.Reader(file)
    found: dict[str, Template] = {}
    for document in node.documents(text, file):
        top = reader.mapping(document, "", _TOP)
        for key, only in (("apiVersion", rules.API_VERSION), ("kind", KIND)):
            if key in top:
                reader.choice(top[key], key, [only])
            else:
                reader.refuse(document, key, f"missing; write {key}: {only}")
        if "templates" in top:
            for name, value in reader.mapping(top["templates"], "templates", None).items():
                found[name] = _template(reader, name, value)
    if reader.problems:
        raise errors.BadRules(reader.problems)
    return types.MappingProxyType(found)


def document(known: Templates) -> dict[str, Any]:
    """Return templates in the form of a file, which can be parsed again."""
    return {
        "apiVersion": rules.API_VERSION,
        "kind": KIND,
        "templates": {
            name: {
                "description": one.description,
                **({"qosClass": one.qos_class} if one.qos_class is not None else {}),
                **({"affinity": one.affinity} if one.affinity is not None else {}),
                "weights": dict(one.weights),
                "thresholds": {signal: dataclasses.asdict(points) for signal, points in one.thresholds.items()},
            }
            for name, one in sorted(known.items())
        },
    }


def applied(source: rules.Rules, templates: Templates, hosted: Iterable[str]) -> rules.Rules:
    """Return rules as they are for a node that hosts work of these types; types that are not known change nothing.

    A threshold changes a signal wherever the rules list it, with its condition; it takes the place of the kind of a
    disk. A rule whose own threshold is stricter keeps it.
    """
    chosen = [templates[name] for name in sorted(set(hosted)) if name in templates]
    weights: dict[evaluation.DetectionName, float] = {}
    points: dict[str, Points] = {}
    for template in chosen:
        for detection, weight in template.weights.items():
            weights[detection] = max(weight, weights.get(detection, 0.0))
        for signal, given in template.thresholds.items():
            points[signal] = given if signal not in points else _stricter(signal, given, points[signal])
    if not weights and not points:
        return source
    detections = {
        name: dataclasses.replace(
            rule,
            weight=weights.get(name, rule.weight) if rule.enabled else rule.weight,
            signals=_signals(rule.signals, points),
            fallback_signals=_signals(rule.fallback_signals, points),
        )
        for name, rule in source.detections.items()
    }
    if sum(rule.weight for rule in detections.values() if rule.enabled) <= 0:
        return source  # nothing of what the rules detect has a weight here
    return dataclasses.replace(source, detections=types.MappingProxyType(detections))


def _signals(signals: tuple[rules.SignalRule, ...], points: Mapping[str, Points]) -> tuple[rules.SignalRule, ...]:
    return tuple(_signal(signal, points.get(signal.signal)) for signal in signals)


def _signal(signal: rules.SignalRule, given: Points | None) -> rules.SignalRule:
    if given is None:
        return signal
    if not signal.scale:
        own = Points(signal.normal, signal.threshold, signal.saturation)
        given = _stricter(signal.signal, given, own)
    return dataclasses.replace(
        signal, normal=given.normal, threshold=given.threshold, saturation=given.saturation, scale=""
    )


def _stricter(signal: str, one: Points, other: Points) -> Points:
    """Return the points with the threshold that is reached first."""
    rising = catalogue.find(signal).direction == "rising"
    return min(one, other, key=lambda points: points.threshold if rising else -points.threshold)


def _template(reader: node.Reader, name: str, value: yaml.Node) -> Template:
    path = f"templates.{name}"
    given = reader.mapping(value, path, _TEMPLATE)
    qos = reader.choice(given["qosClass"], f"{path}.qosClass", QOS_CLASSES) if "qosClass" in given else None
    affinity = reader.choice(given["affinity"], f"{path}.affinity", AFFINITIES) if "affinity" in given else None
    return Template(
        name=name,
        description=(reader.text(given["description"], f"{path}.description") or "") if "description" in given else "",
        qos_class=next((known for known in get_args(QosClass) if known == qos), None),
        affinity=next((known for known in AFFINITIES if known == affinity), None),
        weights=_weights(reader, given["weights"], f"{path}.weights") if "weights" in given else {},
        thresholds=_thresholds(reader, given["thresholds"], f"{path}.thresholds") if "thresholds" in given else {},
    )


def _weights(reader: node.Reader, value: yaml.Node, path: str) -> dict[evaluation.DetectionName, float]:
    found: dict[evaluation.DetectionName, float] = {}
    given = reader.mapping(value, path, rules.DETECTIONS)
    for name in rules.DETECTIONS:
        if name not in given:
            continue
        weight = reader.number(given[name], f"{path}.{name}")
        if weight is not None and not 0 <= weight <= 1:
            reader.refuse(given[name], f"{path}.{name}", f"{weight:g} must be at least 0 and at most 1")
        elif weight is not None:
            found[name] = weight
    if found and sum(found.values()) <= 0:
        reader.refuse(value, path, "no detection has a weight; give one a weight above 0")
    return found


def _thresholds(reader: node.Reader, value: yaml.Node, path: str) -> dict[str, Points]:
    listed = _listed()
    found: dict[str, Points] = {}
    for name, item in reader.mapping(value, path, listed).items():
        points = reader.mapping(item, f"{path}.{name}", _POINTS)
        numbers = {key: reader.number(points[key], f"{path}.{name}.{key}") for key in _POINTS if key in points}
        missing = [key for key in _POINTS if key not in points]
        if missing:
            reader.refuse(item, f"{path}.{name}", f"{' and '.join(missing)} missing")
            continue
        known = [number for number in numbers.values() if number is not None]
        if len(known) < len(_POINTS):
            continue
        signal = catalogue.find(name)
        ordered = known if signal.direction == "rising" else [-number for number in known]
        if not ordered[0] < ordered[1] <= ordered[2]:
            sign = ("<", "≤") if signal.direction == "rising" else (">", "≥")
            meant = f"normal {sign[0]} threshold {sign[1]} saturation"
            reader.refuse(item, f"{path}.{name}", f"{name} is {signal.direction}, so {meant} is meant")
        elif signal.ratio and not all(0 <= number <= 1 for number in known):
            reader.refuse(item, f"{path}.{name}", f"{name} is a ratio: 0 to 1 is meant")
        else:
            found[name] = Points(*known)
    return found


@functools.cache
def _listed() -> tuple[str, ...]:
    """Return the signals that a preset lists, for which a threshold can be given."""
    return tuple(
        sorted(
            {
                signal.signal
                for detector in registry.DETECTORS.values()
                for rule in detector.presets.values()
                for signal in (*rule.signals, *rule.fallback_signals)
            }
        )
    )
