"""The numbers of one tick by the name they have in the sample: what is kept over time, drawn and compared."""

import datetime

import msgspec

from cotenant.model.evaluation import Evaluation
from cotenant.model.sample import Sample

GROUPS = ("psi", "block", "memory", "cpu", "llc", "net", "online", "offline")
"""The sample's groups that are kept; devices, cgroups and histograms are too many numbers for a bounded history."""

LEVEL = "level"


def values_of(sample: Sample, evaluation: Evaluation) -> dict[str, float]:
    """Return every known number: the level, ``index.<detection>`` and ``<group>.<field>``; unknown ones are absent."""
    values: dict[str, float] = {}
    if evaluation.interference_level is not None:
        values[LEVEL] = evaluation.interference_level
    for name, detection in evaluation.detections.items():
        if detection.index is not None:
            values[f"index.{name}"] = detection.index
    for group in GROUPS:
        _collect(getattr(sample, group), group, values)
    oldest = [d.oldest_in_flight_usec for d in sample.block.devices.values() if d.oldest_in_flight_usec is not None]
    if oldest:
        values["block.oldest_in_flight_usec"] = max(oldest)
    return values


def _collect(struct: msgspec.Struct, prefix: str, values: dict[str, float]) -> None:
    for field in struct.__struct_fields__:
        value = getattr(struct, field)
        if isinstance(value, msgspec.Struct):
            _collect(value, f"{prefix}.{field}", values)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            values[f"{prefix}.{field}"] = float(value)


def time_ms_of(time: str) -> int:
    """Return an RFC 3339 time in milliseconds since the epoch. It is also an incident's number: unique on a host."""
    return round(datetime.datetime.fromisoformat(time).timestamp() * 1000)
