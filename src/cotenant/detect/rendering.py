"""Rules as the object that a file or a cluster holds: what differs from the preset, and nothing else."""

from typing import Any

import yaml

from cotenant.detect import presets, rules


def object_of(source: rules.Rules) -> dict[str, Any]:
    """Return the ``DetectionRuleConfig`` whose reading gives these rules.

    A detection that has what only a preset can say (a scale by device, a condition) must be the preset's own.
    """
    basis, known = presets.get(source.preset), rules.keys(rules.Rules)
    spec: dict[str, Any] = {"preset": source.preset}
    if source.node_selector:
        spec["nodeSelector"] = dict(source.node_selector)
    if source.window_seconds != basis.window_seconds:
        spec["windowSeconds"] = source.window_seconds
    detections = {
        name: _detection(rule) for name, rule in source.detections.items() if rule != basis.detections.get(name)
    }
    if detections:
        spec["detections"] = detections
    for key in ("hardLimits", "hysteresis", "guard"):
        mine, theirs = getattr(source, known[key][0]), getattr(basis, known[key][0])
        changed = {
            inner: getattr(mine, field)
            for inner, (field, _) in rules.keys(type(mine)).items()
            if getattr(mine, field) != getattr(theirs, field)
        }
        if changed:
            spec[key] = changed
    return {
        "apiVersion": rules.API_VERSION,
        "kind": rules.KIND,
        "metadata": {"name": source.name},
        "spec": spec,
    }


def _detection(rule: rules.DetectionRule) -> dict[str, Any]:
    return {
        "enabled": rule.enabled,
        "weight": rule.weight,
        "signals": [_signal(signal) for signal in rule.signals],
        "fallbackSignals": [_signal(signal) for signal in rule.fallback_signals],
    }


def _signal(signal: rules.SignalRule) -> dict[str, Any]:
    return {key: getattr(signal, field) for key, (field, _) in rules.keys(rules.SignalRule).items()}


def text_of(source: rules.Rules) -> str:
    """Return the object as YAML that can be applied, or given to ``--rules``."""
    return yaml.safe_dump(object_of(source), sort_keys=False, width=120)
