"""The process that writes verdicts: it follows the cluster, and writes while it leads."""

import asyncio
import logging

import prometheus_client
from prometheus_client import core, registry

from cotenant.kube.client import Client
from cotenant.kube.elector import Elector
from cotenant.scheduler.cluster import ClusterSource
from cotenant.scheduler.marking import LEASE, Marker, Settings
from cotenant.units.clock import Clock

_log = logging.getLogger(__name__)


async def keep(
    client: Client,
    source: ClusterSource,
    settings: Settings,
    clock: Clock,
    identity: str,
    own_registry: prometheus_client.CollectorRegistry | None = None,
) -> None:
    """Stand for leader again and again; while leading, write; until cancelled."""
    elector = Elector(client, LEASE, identity, clock)
    marker = Marker(client, source, settings, clock)
    if own_registry is not None:
        own_registry.register(VerdictCollector(marker, elector))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(source.keep())
        tasks.create_task(elector.stand(marker.run))


class VerdictCollector(registry.Collector):
    """Reads the writer when asked; a fixed number of series."""

    def __init__(self, marker: Marker, elector: Elector) -> None:
        self._marker = marker
        self._elector = elector

    def collect(self) -> list[core.Metric]:
        counts = self._marker.counts
        writes = core.CounterMetricFamily("cotenant_verdict_writes", "Writes to Nodes, by what.", labels=["what"])
        writes.add_metric(["labels"], counts.label_writes)
        writes.add_metric(["taint"], counts.taint_writes)
        writes.add_metric(["condition"], counts.condition_writes)
        waiting = core.GaugeMetricFamily(
            "cotenant_verdict_waiting", "Nodes under a hard limit that a cap leaves open.", labels=["cap"]
        )
        waiting.add_metric(["pool"], counts.waiting_for_pool)
        waiting.add_metric(["rate"], counts.waiting_for_rate)
        gauge = core.GaugeMetricFamily
        return [
            writes,
            waiting,
            core.CounterMetricFamily("cotenant_verdict_failures", "Failed writes.", value=counts.failures),
            core.CounterMetricFamily(
                "cotenant_verdict_conflicts",
                "Taint writes repeated because others wrote first.",
                value=counts.conflicts,
            ),
            gauge("cotenant_verdict_excluded", "Nodes kept from new pods.", value=counts.excluded),
            gauge("cotenant_verdict_leading", "1 while this replica writes.", value=float(self._elector.leading)),
            gauge(
                "cotenant_verdict_switched_off", "1 while the switch is off.", value=float(self._marker.switched_off)
            ),
        ]
