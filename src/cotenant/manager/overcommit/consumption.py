"""What a node and everything on it uses, from whichever of the two inputs it came."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Literal

import msgspec

from cotenant.api import timestamp, usage
from cotenant.api.koordinator import node_metric
from cotenant.manager.overcommit import names
from cotenant.units import quantity

Source = Literal["stream", "NodeMetric"]
OFFLINE_PRIORITIES = ("koord-batch", "koord-free")


class Use(msgspec.Struct, frozen=True, gc=False):
    """Whole thousandths of a core, and bytes, rounded up; None is unknown."""

    cpu: int | None = None
    memory: int | None = None

    def of(self, resource: names.Resource) -> int | None:
        """Return the amount of one resource."""
        return self.cpu if resource == "cpu" else self.memory


NOTHING, UNKNOWN = Use(0, 0), Use()


class PodUse(msgspec.Struct, frozen=True, gc=False):
    """What one pod uses, and whether it is offline work by its node: all that is known of one that is not listed."""

    use: Use
    offline: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Consumption:
    """One node's use."""

    source: Source
    node: Use
    system: Use | None = None
    """What neither pods nor host applications use; None: it is the rest."""
    pods: Mapping[str, PodUse] = dataclasses.field(default_factory=dict)
    """By ``namespace/name``."""
    host_high_priority: Use = NOTHING
    """Applications outside Kubernetes, other than batch ones."""
    host_offline: Use = NOTHING
    zones: Mapping[int, Use] = dataclasses.field(default_factory=dict)
    """What the system uses of each NUMA node."""
    reclaimable: Use = UNKNOWN
    """What prod work asked for and is predicted not to use."""

    def system_use(self, resource: names.Resource, unmeasured: int) -> int | None:
        """Return what the system uses; None where that cannot be told.

        Where it is the rest, what running pods without a metric may use (``unmeasured``) is in it, and is theirs, not
        the system's: they are counted by their requests.
        """
        stated = self.system.of(resource) if self.system is not None else None
        if stated is not None:
            return stated
        total = self.node.of(resource)
        if total is None:
            return None
        of_pods = sum([pod.use.of(resource) or 0 for pod in self.pods.values()])
        of_hosts = (self.host_high_priority.of(resource) or 0) + (self.host_offline.of(resource) or 0)
        return max(total - of_pods - of_hosts - unmeasured, 0)


def of_node_metric(status: node_metric.NodeMetricStatus) -> Consumption:
    """Return the use that a NodeMetric reports.

    :raises BadQuantity: if an amount in it is no quantity.
    """
    node = status.node_metric or node_metric.NodeUsage()
    applications = [
        (one.priority in OFFLINE_PRIORITIES, _use(one.usage)) for one in status.host_application_metric or ()
    ]
    return Consumption(
        source="NodeMetric",
        node=_use(node.node_usage),
        system=_use(node.system_usage),
        pods={
            f"{pod.namespace}/{pod.name}": PodUse(_use(pod.pod_usage), pod.priority in OFFLINE_PRIORITIES)
            for pod in status.pods_metric or ()
        },
        host_high_priority=_total([use for offline, use in applications if not offline]),
        host_offline=_total([use for offline, use in applications if offline]),
        zones={zone.numa_node_id: _use(zone.system_usage) for zone in node.numa_usages or ()},
        reclaimable=reclaimable_of(status),
    )


def of_row(row: usage.Row, capacity_memory_bytes: int) -> Consumption:
    """Return the use that a row of the analyzer's table reports of a node with so much memory."""
    used = row.memory_used_ratio
    return Consumption(
        source="stream",
        node=Use(_up(row.cpu_millicores), None if used is None else math.ceil(used * capacity_memory_bytes)),
        pods={
            key: PodUse(Use(_up(pod.cpu_millicores), pod.memory_bytes), pod.is_offline) for key, pod in row.pods.items()
        },
    )


def reclaimable_of(status: node_metric.NodeMetricStatus) -> Use:
    """Return what the node predicts that prod work does not use of what it asked for.

    :raises BadQuantity: if it is no quantity.
    """
    return _use(status.prod_reclaimable_metric.resource if status.prod_reclaimable_metric is not None else None)


def updated_at(status: node_metric.NodeMetricStatus) -> float | None:
    """Return when a NodeMetric was last reported, in seconds since the epoch; None where it never was."""
    return timestamp.parse(status.update_time)


def _use(amounts: node_metric.ResourceMap | None) -> Use:
    resources = (amounts.resources if amounts is not None else None) or {}
    return Use(
        cpu=quantity.millicores(resources["cpu"]) if "cpu" in resources else None,
        memory=quantity.whole(resources["memory"]) if "memory" in resources else None,
    )


def _total(uses: list[Use]) -> Use:
    """Return the sum of what is known: what is not known is in the rest, which is the system's."""
    return Use(sum(use.cpu or 0 for use in uses), sum(use.memory or 0 for use in uses))


def _up(amount: float | None) -> int | None:
    return None if amount is None else math.ceil(amount)
