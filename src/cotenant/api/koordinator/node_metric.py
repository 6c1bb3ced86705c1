"""``NodeMetric`` (``slo.koordinator.sh/v1alpha1``): what a node uses. The manager writes the spec, the node the status.

Every field is absent where it is unknown: an empty map of resources says nothing about them, and never zero.
"""

import re
from typing import Literal

import msgspec

from cotenant.api.objects import ObjectMeta
from cotenant.units import quantity

GROUP = "slo.koordinator.sh"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "NodeMetric"
PLURAL = "nodemetrics"
MAX_AGE_SECONDS = 180
"""koord-scheduler takes no notice of a node whose metric is older than this by default."""

Quantity = str | int | float
"""A Kubernetes quantity as JSON carries it: ``500m``, ``2Gi``, or a bare number."""
MemoryPolicy = Literal["usageWithoutPageCache", "usageWithHotPageCache", "usageWithPageCache"]
Aggregation = Literal["avg", "p50", "p90", "p95", "p99"]
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(h|ms|m|s|us|µs|ns)")
_PART_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
AGGREGATIONS: tuple[Aggregation, ...] = ("avg", "p50", "p90", "p95", "p99")


class AggregatePolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Over which durations the node's usage is aggregated, as Go writes them: `5m0s`."""

    durations: list[str] | None = None


class CollectPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """How a node measures: seconds for the averages, seconds between two reports, durations, and what counts as memory."""  # noqa: E501

    aggregate_duration_seconds: int | None = None
    report_interval_seconds: int | None = None
    node_aggregate_policy: AggregatePolicy | None = None
    node_memory_collect_policy: MemoryPolicy | None = None


class NodeMetricSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What the node is asked to measure."""

    metric_collect_policy: CollectPolicy | None = None


class ResourceMap(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Quantities by resource name (`cpu`, `memory`). A resource that is not named is not known."""

    resources: dict[str, Quantity] | None = None

    def millicores(self) -> float | None:
        """Return the CPU in thousandths, or None where it is not said.

        :raises BadQuantity: if it is not a quantity.
        """
        value = (self.resources or {}).get("cpu")
        return None if value is None else float(quantity.parse(value) * 1000)

    def memory_bytes(self) -> int | None:
        """Return the memory in bytes, or None where it is not said.

        :raises BadQuantity: if it is not a quantity.
        """
        value = (self.resources or {}).get("memory")
        return None if value is None else quantity.whole(value)


class AggregatedUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Mean and percentiles over one duration; there only when the samples span at least half of it."""

    usage: dict[Aggregation, ResourceMap] | None = None
    duration: str | None = None


class NumaUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What one NUMA node uses."""

    numa_node_id: int = msgspec.field(name="numaNodeID")
    node_usage: ResourceMap | None = None
    system_usage: ResourceMap | None = None


class NodeUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What the node uses, and the part of it (`system`) that neither pods nor host applications use."""

    node_usage: ResourceMap | None = None
    aggregated_node_usages: list[AggregatedUsage] | None = None
    system_usage: ResourceMap | None = None
    aggregated_system_usages: list[AggregatedUsage] | None = None
    numa_usages: list[NumaUsage] | None = None


class PodMetric(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What one pod uses, with its band (`koord-prod`, empty for none) and class (`LS`)."""

    name: str = ""
    namespace: str = ""
    pod_usage: ResourceMap | None = None
    priority: str | None = None
    qos: str | None = None


class HostApplicationMetric(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one application outside Kubernetes uses."""

    name: str = ""
    usage: ResourceMap | None = None
    priority: str | None = None
    qos: str | None = None


class Prediction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Quantities that the node predicts."""

    resource: ResourceMap | None = None


class NodeMetricStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What the node measured, and when (`updateTime`)."""

    update_time: str | None = None
    node_metric: NodeUsage | None = None
    pods_metric: list[PodMetric] | None = None
    host_application_metric: list[HostApplicationMetric] | None = None
    prod_reclaimable_metric: Prediction | None = None
    prod_peak_metric: Prediction | None = None


class NodeMetric(msgspec.Struct, frozen=True, kw_only=True):
    """How a node is measured (`spec`, by the manager) and what it uses (`status`, by the node)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeMetricSpec = NodeMetricSpec()
    status: NodeMetricStatus = NodeMetricStatus()


def usage(millicores: float | None, memory_bytes: float | None) -> ResourceMap | None:
    """Return the map of what is known, or None where nothing is. CPU goes out in whole thousandths."""
    resources: dict[str, Quantity] = {}
    if millicores is not None:
        resources["cpu"] = f"{round(millicores)}m"
    if memory_bytes is not None:
        resources["memory"] = str(round(memory_bytes))
    return ResourceMap(resources=resources) if resources else None


def duration_text(seconds: int) -> str:
    """Return a duration as Go writes it: 300 → ``5m0s``, 3600 → ``1h0m0s``, 90 → ``1m30s``."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def duration_seconds(text: str) -> int | None:
    """Return the whole seconds of a duration as Go writes it (``1m30s`` → 90); None where it is none, or below 1 s."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    seconds = int(sum(float(number) * _PART_SECONDS[unit] for number, unit in parts))
    return seconds or None
