"""Metrics that all parts of the manager share: what they follow, and what they write."""

from typing import Any

from prometheus_client import core, registry

from cotenant.kube.informer import Informer
from cotenant.manager.reconciling import Reconciler


class Observed(registry.Collector):
    """The informers and reconcilers of one term; a fixed number of series each."""

    def __init__(self) -> None:
        self._informers: dict[tuple[str, str], Informer[Any]] = {}
        self._reconcilers: dict[str, Reconciler] = {}

    def follow(self, controller: str, **informers: Informer[Any]) -> None:
        """Show whether these informers, by what they follow, are in step."""
        self._informers |= {(controller, kind): informer for kind, informer in informers.items()}

    def write(self, *reconcilers: Reconciler) -> None:
        """Show what these reconcilers write."""
        self._reconcilers |= {one.name: one for one in reconcilers}

    def collect(self) -> list[core.Metric]:
        counter, gauge = core.CounterMetricFamily, core.GaugeMetricFamily
        synced = gauge("cotenant_manager_synced", "1 while what is followed is in step.", labels=["controller", "kind"])
        lists = counter("cotenant_manager_lists", "Times that all was listed anew.", labels=["controller", "kind"])
        failed = counter(
            "cotenant_manager_watch_failures", "Lists and watches that failed.", labels=["controller", "kind"]
        )
        malformed = counter(
            "cotenant_manager_malformed", "Objects that could not be read.", labels=["controller", "kind"]
        )
        for (controller, kind), informer in self._informers.items():
            in_step = informer.synced.is_set() and informer.last_error is None
            synced.add_metric([controller, kind], float(in_step))
            lists.add_metric([controller, kind], informer.lists)
            failed.add_metric([controller, kind], informer.failures)
            malformed.add_metric([controller, kind], informer.malformed)
        writes = counter("cotenant_manager_writes", "Objects written, by controller.", labels=["controller"])
        failures = counter("cotenant_manager_write_failures", "Writes that failed.", labels=["controller"])
        conflicts = counter(
            "cotenant_manager_write_conflicts", "Writes repeated because others wrote first.", labels=["controller"]
        )
        waiting = gauge("cotenant_manager_waiting", "Objects still to be looked at.", labels=["controller"])
        for name, one in self._reconcilers.items():
            writes.add_metric([name], one.counts.writes)
            failures.add_metric([name], one.counts.failures)
            conflicts.add_metric([name], one.counts.conflicts)
            waiting.add_metric([name], one.waiting)
        return [synced, lists, writes, failures, conflicts, waiting, failed, malformed]
