"""koordlet's names for what existing alerts ask for: the same series from our own values, where an operator wants them.

Names and labels are koordlet's, so a counter here has no ``_total``. A value that is not known has no series.
"""

import collections
from collections.abc import Iterator

from prometheus_client import core, registry

from cotenant.act import cpu_suppress
from cotenant.act.draft import Plan
from cotenant.kernel import enforcing
from cotenant.model.node import Usage
from cotenant.model.policy import NodeSlo
from cotenant.model.snapshot import Snapshot

DETAILS_LIMIT = 50
"""Evicted pods with a series of their own: the newest."""
REASONS = {
    "BECPUEvict": "EvictPodByBECPUSatisfaction",
    "BEMemoryEvict": "EvictPodByNodeMemoryUsage",
}
"""koordlet's word for the reason of an eviction, by our feature; where it has none, the feature's own name."""


class Aliases(registry.Collector):
    """The newest round in koordlet's words."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._gauges: dict[str, tuple[str, float | None]] = {}
        self._suppress: tuple[str, float] | None = None
        self._evictions: collections.Counter[str] = collections.Counter()
        self._details: dict[tuple[str, str, str], int] = {}

    def take(
        self, seen: Snapshot, used: Usage | None, slo: NodeSlo, plan: Plan | None, done: enforcing.Round | None
    ) -> None:
        """Take one round; ``plan`` None: nothing is decided, so nothing is suppressed."""
        offline = {pod.key for pod in seen.pods if pod.best_effort}
        uses = {} if used is None else {key: use.cpu_millicores for key, use in used.pods.items()}
        node = None if used is None else used.node
        self._gauges = {
            "be_suppress_ls_used_cpu_cores": (
                "CPU cores used by pods that are not offline.",
                _cores([cpu for key, cpu in uses.items() if key not in offline]) if used is not None else None,
            ),
            "be_suppress_be_used_cpu_cores": (
                "CPU cores used by offline pods.",
                _cores([cpu for key, cpu in uses.items() if key in offline]) if used is not None else None,
            ),
            "node_used_cpu_cores": ("CPU cores used by the node.", _cores([node.cpu_millicores]) if node else None),
            "node_used_memory_bytes": ("Memory used by the node.", node.memory_bytes if node else None),
        }
        self._suppress = None if plan is None else cpu_suppress.in_force(seen, slo, plan.targets)
        for outcome in done.outcomes if done is not None else ():
            if outcome.item.op == "evict" and outcome.state == "written":
                self._evicted(outcome.item.new or "", outcome.item.reason.partition(":")[0])

    def _evicted(self, key: str, feature: str) -> None:
        reason = REASONS.get(feature, feature)
        self._evictions[reason] += 1
        namespace, _, name = key.partition("/")
        detail = (namespace, name, reason)
        self._details[detail] = self._details.pop(detail, 0) + 1
        while len(self._details) > DETAILS_LIMIT:
            del self._details[next(iter(self._details))]

    def collect(self) -> Iterator[core.Metric]:
        for name, (text, value) in self._gauges.items():
            if value is not None:
                family = core.GaugeMetricFamily(f"koordlet_{name}", text, labels=["node"])
                family.add_metric([self._node], value)
                yield family
        if self._suppress is not None:
            kind, cores = self._suppress
            family = core.GaugeMetricFamily(
                "koordlet_be_suppress_cpu_cores", "CPU cores that offline pods may use.", labels=["node", "type"]
            )
            family.add_metric([self._node, kind], cores)
            yield family
        # Not counters: the client library would add _total, and existing alerts would find nothing.
        evictions = core.UnknownMetricFamily("koordlet_pod_eviction", "Evictions by us.", labels=["node", "reason"])
        for reason, count in sorted(self._evictions.items()):
            evictions.add_metric([self._node, reason], count)
        yield evictions
        details = core.UnknownMetricFamily(
            "koordlet_pod_eviction_detail",
            "Evictions by us, of the pods that were evicted last.",
            labels=["node", "pod_namespace", "pod_name", "reason"],
        )
        for (namespace, name, reason), count in self._details.items():
            details.add_metric([self._node, namespace, name, reason], count)
        yield details


def _cores(millicores: list[float | None]) -> float | None:
    """Return the sum in cores; None as soon as a part is not known."""
    known = [one for one in millicores if one is not None]
    return sum(known) / 1000 if len(known) == len(millicores) else None
