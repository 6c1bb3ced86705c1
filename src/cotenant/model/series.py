"""The numbers of one tick by the name they have in the sample: what is kept over time, drawn and compared."""

import datetime
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from cotenant.model.evaluation import Evaluation
from cotenant.model.latency import P99, P999, ServiceLatency
from cotenant.model.sample import Sample

GROUPS = ("psi", "block", "memory", "cpu", "llc", "net", "online", "offline")
"""The sample's groups that are kept; devices, cgroups and histograms are too many numbers for a bounded history."""

LEVEL = "level"


LATENCY = "latency."
LATENCY_FIELDS = {P99: "p99_usec", P999: "p999_usec"}


def latency_name(service: str, quantile: float) -> str:
    """Return the name under which a service's quantile is kept, in microseconds."""
    return f"{LATENCY}{service}.{LATENCY_FIELDS[quantile]}"


def values_of(sample: Sample, evaluation: Evaluation, latencies: Iterable[ServiceLatency] = ()) -> dict[str, float]:
    """Return every known number: the level, ``index.<detection>``, ``<group>.<field>``, ``latency.<service>.<field>``.

    Unknown ones are absent.
    """
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
    for latency in latencies:
        for quantile in LATENCY_FIELDS:
            seconds = latency.at(quantile).seconds
            if seconds is not None:
                values[latency_name(latency.service, quantile)] = seconds * 1e6
    return values


def _collect(struct: msgspec.Struct, prefix: str, values: dict[str, float]) -> None:
    for field in struct.__struct_fields__:
        value = getattr(struct, field)
        if isinstance(value, msgspec.Struct):
            _collect(value, f"{prefix}.{field}", values)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            values[f"{prefix}.{field}"] = float(value)


def sample_of(values: Mapping[str, float], node: str, time_s: float, period_s: float) -> Sample:
    """Return a sample with these numbers, by the names that :func:`values_of` gives; what has no place is left out.

    ``time_s`` is seconds since the epoch, and stands for the monotonic clock as well.
    """
    value: dict[str, Any] = {
        "node": node, "boot_id": "kept", "uptime_s": time_s, "time": _rfc3339(time_s), "period_s": period_s
    }  # fmt: skip
    for name, number in values.items():
        group, *path = name.split(".")
        if group not in GROUPS or not path:
            continue
        place = value.setdefault(group, {})
        for part in path[:-1]:
            place = place.setdefault(part, {})
        place[path[-1]] = round(number) if path[-1] in _WHOLE else number
    return msgspec.convert(value, Sample)


_WHOLE = frozenset({"completions", "oom_kills", "online", "occupancy_bytes"})
"""Fields that a sample has as whole numbers; a mean of them may have a fraction."""


def _rfc3339(time_s: float) -> str:
    return datetime.datetime.fromtimestamp(time_s, datetime.UTC).isoformat(timespec="milliseconds")


def time_ms_of(time: str) -> int:
    """Return an RFC 3339 time in milliseconds since the epoch. It is also an incident's number: unique on a host."""
    return round(datetime.datetime.fromisoformat(time).timestamp() * 1000)
