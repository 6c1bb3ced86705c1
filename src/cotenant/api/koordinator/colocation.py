"""The strategies of ``slo-controller-config`` that concern resources of nodes: overcommit, normalization and
amplification. Fields, defaults and bounds are Koordinator's.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from cotenant.api.koordinator.node_metric import AggregatePolicy, MemoryPolicy, duration_seconds, duration_text
from cotenant.model.node import CPU_NORMALIZATION_RANGE


class _Strategy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields as the ConfigMap spells them."""


class ColocationStrategy(_Strategy, frozen=True, kw_only=True):
    """How much of a node batch and mid work may have, and how the node measures for that."""

    enable: bool | None = None
    metric_aggregate_duration_seconds: int | None = None
    metric_report_interval_seconds: int | None = None
    metric_aggregate_policy: AggregatePolicy | None = None
    metric_memory_collect_policy: MemoryPolicy | None = None
    cpu_reclaim_threshold_percent: int | None = None
    cpu_calculate_policy: str | None = None
    memory_reclaim_threshold_percent: int | None = None
    memory_calculate_policy: str | None = None
    degrade_time_minutes: int | None = None
    update_time_threshold_seconds: int | None = None
    resource_diff_threshold: float | None = None
    mid_reclaim_mode: str | None = None
    mid_cpu_threshold_percent: int | None = msgspec.field(default=None, name="midCPUThresholdPercent")
    mid_memory_threshold_percent: int | None = None
    mid_unallocated_percent: int | None = None
    mid_static_cpu_reserved_percent: int | None = msgspec.field(default=None, name="midStaticCPUReservedPercent")
    mid_static_memory_reserved_percent: int | None = None
    batch_cpu_threshold_percent: int | None = msgspec.field(default=None, name="batchCPUThresholdPercent")
    batch_memory_threshold_percent: int | None = None
    extensions: Mapping[str, Any] | None = None


DEFAULT_COLOCATION: Mapping[str, Any] = {
    "enable": False,
    "metricAggregateDurationSeconds": 300,
    "metricReportIntervalSeconds": 60,
    "metricAggregatePolicy": {"durations": ["5m0s", "10m0s", "30m0s"]},
    "metricMemoryCollectPolicy": "usageWithoutPageCache",
    "cpuReclaimThresholdPercent": 60,
    "cpuCalculatePolicy": "usage",
    "memoryReclaimThresholdPercent": 65,
    "memoryCalculatePolicy": "usage",
    "degradeTimeMinutes": 15,
    "updateTimeThresholdSeconds": 300,
    "resourceDiffThreshold": 0.1,
    "midCPUThresholdPercent": 100,
    "midMemoryThresholdPercent": 100,
    "midUnallocatedPercent": 0,
    "midStaticCPUReservedPercent": 0,
    "midStaticMemoryReservedPercent": 0,
}

_MOST = float(1 << 31)
_PERCENT = (0.0, 100.0)
COLOCATION_RANGES: Mapping[str, tuple[float, float]] = {
    "metricAggregateDurationSeconds": (1, _MOST),
    "metricReportIntervalSeconds": (1, _MOST),
    "cpuReclaimThresholdPercent": (0, _MOST),
    "memoryReclaimThresholdPercent": (0, _MOST),
    "degradeTimeMinutes": (1, _MOST),
    "updateTimeThresholdSeconds": (1, _MOST),
    "resourceDiffThreshold": (5e-324, 1),
    "midCPUThresholdPercent": _PERCENT,
    "midMemoryThresholdPercent": _PERCENT,
    "midUnallocatedPercent": _PERCENT,
    "midStaticCPUReservedPercent": _PERCENT,
    "midStaticMemoryReservedPercent": _PERCENT,
    "batchCPUThresholdPercent": (0, _MOST),
    "batchMemoryThresholdPercent": (0, _MOST),
}
COLOCATION_CHOICES: Mapping[str, tuple[str, ...]] = {
    "cpuCalculatePolicy": ("usage", "request", "maxUsageRequest"),
    "memoryCalculatePolicy": ("usage", "request", "maxUsageRequest"),
    "midReclaimMode": ("static",),
}


def with_go_durations(strategy: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    """Return a colocation strategy with its durations as Go writes them: ``5m`` is ``5m0s``.

    :raises ValueError: if one is no duration; the text says which.
    """
    policy = strategy.get("metricAggregatePolicy")
    if not policy or not policy.get("durations"):
        return strategy
    durations = []
    for index, text in enumerate(policy["durations"]):
        seconds = duration_seconds(text)
        if seconds is None:
            where = f"{place}.metricAggregatePolicy.durations[{index}]".removeprefix(".")
            raise ValueError(f"{where} is {text!r}: not a duration, for example 5m")
        durations.append(duration_text(seconds))
    return {**strategy, "metricAggregatePolicy": {**policy, "durations": durations}}


class ModelRatio(_Strategy, frozen=True, kw_only=True):
    """How much one logical CPU of a model does, by what is switched on, beside the fleet's reference CPU."""

    base_ratio: float | None = None
    hyper_thread_enabled_ratio: float | None = None
    turbo_enabled_ratio: float | None = None
    hyper_thread_turbo_enabled_ratio: float | None = None


class NormalizationStrategy(_Strategy, frozen=True, kw_only=True):
    """``cpu-normalization-config``: the ratios of CPU models."""

    enable: bool | None = None
    default_ratio: float | None = None
    ratio_model: Mapping[str, ModelRatio] | None = None


_RATIOS = ("defaultRatio", "baseRatio", "hyperThreadEnabledRatio", "turboEnabledRatio", "hyperThreadTurboEnabledRatio")
NORMALIZATION_RANGES: Mapping[str, tuple[float, float]] = dict.fromkeys(_RATIOS, CPU_NORMALIZATION_RANGE)


class AmplificationStrategy(_Strategy, frozen=True, kw_only=True):
    """``resource-amplification-config``: how much more of a resource a node shows than it has."""

    enable: bool | None = None
    resource_amplification_ratio: Mapping[str, float] | None = None


AMPLIFICATION_RANGES: Mapping[str, tuple[float, float]] = {"resourceAmplificationRatio": (1.0, _MOST)}
