"""One node's colocation strategy: the cluster's, as its ConfigMap resolves it for the node, and the node's own words.

The names of the fields are Koordinator's (``colocation-config``). A value of the node that is not valid counts as not
given and is named beside the strategy.
"""

import dataclasses
import decimal
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import msgspec

from cotenant.api.koordinator import colocation, strategies
from cotenant.manager.overcommit import formula, names
from cotenant.units import quantity
from cotenant.units.malformed import MALFORMED


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """How much is given away, by which policy, and how often that is told. Percentages are exact."""

    enable: bool
    reclaim_percent: Mapping[names.Resource, Fraction]
    """How much of the node may be in use, batch work included."""
    policy: Mapping[names.Resource, formula.Policy]
    batch_percent: Mapping[names.Resource, Fraction | None]
    """Upper bound of batch resources, of capacity; None: none."""
    mid_percent: Mapping[names.Resource, Fraction]
    mid_unallocated_percent: Fraction
    mid_static: bool
    """Mid resources are a fixed share, whatever is used."""
    mid_static_percent: Mapping[names.Resource, Fraction]
    degrade_seconds: int
    """Without news of what a node uses for so long, nothing more is promised there."""
    sync_seconds: int
    """After so long any difference is published."""
    diff_threshold: Fraction
    """Before that, only a change by more than this share of what is published."""
    settle_seconds: int
    """How long a pod must run before what it uses says what it needs: the duration that metrics are averaged over."""


@dataclasses.dataclass(frozen=True, slots=True)
class Resolved:
    """A node's strategy, and what was not taken of what its labels and annotations say."""

    strategy: Strategy
    problems: tuple[str, ...] = ()


def of(config: Mapping[str, Any], labels: Mapping[str, str], annotations: Mapping[str, str]) -> Resolved:
    """Return the strategy of one node; ``config`` is what the ConfigMap says for it, checked already."""
    problems: list[str] = []
    return Resolved(_strategy(said(config, labels, annotations, problems)), tuple(problems))


def said(
    config: Mapping[str, Any], labels: Mapping[str, str], annotations: Mapping[str, str], problems: list[str]
) -> dict[str, Any]:
    """Return all that is said of one node, by Koordinator's names; what is not taken is added to ``problems``.

    The node's annotation goes over the ConfigMap's strategy, field by field, and its labels over both.
    """
    own = _annotated(annotations, problems)
    return {**colocation.DEFAULT_COLOCATION, **config, **own, **_labelled(labels, problems)}


def _strategy(said: Mapping[str, Any]) -> Strategy:
    def percent(name: str) -> Fraction | None:
        return None if said.get(name) is None else exact(said[name])

    return Strategy(
        enable=said["enable"],
        reclaim_percent={
            "cpu": exact(said["cpuReclaimThresholdPercent"]),
            "memory": exact(said["memoryReclaimThresholdPercent"]),
        },
        policy={"cpu": said["cpuCalculatePolicy"] or "usage", "memory": said["memoryCalculatePolicy"] or "usage"},
        batch_percent={"cpu": percent("batchCPUThresholdPercent"), "memory": percent("batchMemoryThresholdPercent")},
        mid_percent={
            "cpu": exact(said["midCPUThresholdPercent"]),
            "memory": exact(said["midMemoryThresholdPercent"]),
        },
        mid_unallocated_percent=exact(said["midUnallocatedPercent"]),
        mid_static=said.get("midReclaimMode") == "static",
        mid_static_percent={
            "cpu": exact(said["midStaticCPUReservedPercent"]),
            "memory": exact(said["midStaticMemoryReservedPercent"]),
        },
        degrade_seconds=said["degradeTimeMinutes"] * 60,
        sync_seconds=said["updateTimeThresholdSeconds"],
        diff_threshold=exact(said["resourceDiffThreshold"]),
        settle_seconds=said["metricAggregateDurationSeconds"],
    )


def exact(value: int | float | str) -> Fraction:
    """Return a number as it is written: 0.57 is 57/100, not the nearest binary fraction.

    :raises ValueError: if it is no finite number.
    """
    try:
        return Fraction(decimal.Decimal(str(value)))
    except (decimal.InvalidOperation, OverflowError):
        raise ValueError(f"{value!r} is not a number") from None


_CHECKS = strategies.Checks(colocation.COLOCATION_RANGES, colocation.COLOCATION_CHOICES)


def _annotated(annotations: Mapping[str, str], problems: list[str]) -> dict[str, Any]:
    text = annotations.get(names.COLOCATION_STRATEGY_ANNOTATION)
    if text is None:
        return {}
    try:
        said = msgspec.json.decode(text, type=dict[str, Any])
    except MALFORMED as error:
        problems.append(f"annotation {names.COLOCATION_STRATEGY_ANNOTATION}: {error}")
        return {}
    found = {}
    for name, value in strategies.known(said, colocation.ColocationStrategy, []).items():
        wrong = next(strategies.complaints({name: value}, colocation.ColocationStrategy, _CHECKS), None)
        if wrong is None:
            found[name] = value
        else:
            problems.append(f"annotation {names.COLOCATION_STRATEGY_ANNOTATION}: {wrong}")
    return found


_LABELS = {
    names.CPU_RECLAIM_LABEL: "cpuReclaimThresholdPercent",
    names.MEMORY_RECLAIM_LABEL: "memoryReclaimThresholdPercent",
    names.MID_STATIC_CPU_LABEL: "midStaticCPUReservedPercent",
    names.MID_STATIC_MEMORY_LABEL: "midStaticMemoryReservedPercent",
}


def _labelled(labels: Mapping[str, str], problems: list[str]) -> dict[str, Any]:
    """Return the percentages that labels give as ratios from 0 to 1, exactly."""
    found: dict[str, Any] = {}
    for label, name in _LABELS.items():
        if label not in labels:
            continue
        try:
            ratio = quantity.parse(labels[label])
        except quantity.BadQuantity:
            ratio = decimal.Decimal(-1)
        if 0 <= ratio <= 1:
            found[name] = str(ratio * 100)
        else:
            problems.append(f"label {label}={labels[label][:40]}: write a ratio from 0 to 1")
    return found
