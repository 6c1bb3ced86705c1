"""The two presets: ``default``, and ``mco``, openFuyao's rules to the letter."""

from cotenant.detect import detectors as _detectors  # noqa: F401  (importing it registers them)
from cotenant.detect import registry, rules
from cotenant.model import evaluation

DESCRIPTIONS: dict[rules.PresetName, str] = {
    "default": "Signals of the online class first, node-wide as fall-back; disks by their kind; slow hard limits.",
    "mco": "openFuyao MCO: three detections over node-wide signals, memory full > 0 or I/O some > 0.60 excludes.",
}


def _detections(name: rules.PresetName) -> dict[evaluation.DetectionName, rules.DetectionRule]:
    return {detection: registry.DETECTORS[detection].presets[name] for detection in rules.DETECTIONS}


_PRESETS: dict[rules.PresetName, rules.Rules] = {
    "default": rules.Rules(name="default", preset="default", detections=_detections("default")),
    "mco": rules.Rules(
        name="mco",
        preset="mco",
        detections=_detections("mco"),
        hard_limits=rules.HardLimits(psi_memory_full_ratio=0.0, psi_io_some_ratio=0.6),
        hysteresis=rules.Hysteresis(hard_enter_for_seconds=2.0),
    ),
}


def get(name: rules.PresetName = "default") -> rules.Rules:
    """Return a preset as rules of its own name."""
    return _PRESETS[name]
