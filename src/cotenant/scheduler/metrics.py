"""What the scheduler's process tells Prometheus. Every series is bounded: labels come from closed lists."""

import prometheus_client
from prometheus_client import core, registry

from cotenant.scheduler.source import Source
from cotenant.units.clock import Clock

DURATION_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


class Metrics:
    """Counters of the answers, on a registry of their own."""

    def __init__(self, restarts: int = 0) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=self.registry)
        self.requests = prometheus_client.Counter(
            "cotenant_scheduler_requests", "Requests answered, by verb and HTTP status.", ["verb", "code"],
            registry=self.registry,
        )  # fmt: skip
        self.duration = prometheus_client.Histogram(
            "cotenant_scheduler_request_duration_seconds", "Time from the whole body to the whole answer.", ["verb"],
            buckets=DURATION_BUCKETS, registry=self.registry,
        )  # fmt: skip
        self.refused = prometheus_client.Counter(
            "cotenant_scheduler_nodes_refused", "Candidate nodes refused, by verb.", ["verb"], registry=self.registry
        )
        self.waived = prometheus_client.Counter(
            "cotenant_scheduler_nodes_waived", "Candidates whose hard limit was waived because no node would remain.",
            registry=self.registry,
        )  # fmt: skip
        self.failures = prometheus_client.Counter(
            "cotenant_scheduler_internal_errors", "Requests that failed by a defect of ours; the scheduler goes on.",
            registry=self.registry,
        )  # fmt: skip

        self.restarts = prometheus_client.Counter(
            "cotenant_scheduler_restarts", "Times that this process was started again, since it hung or ended.",
            registry=self.registry,
        )  # fmt: skip
        self.restarts.inc(restarts)

    def watch(self, source: Source, clock: Clock) -> None:
        """Add the series that are read from the source when asked."""
        self.registry.register(_SourceCollector(source, clock))

    def render(self) -> bytes:
        """Return the text exposition."""
        return prometheus_client.generate_latest(self.registry)


class _SourceCollector(registry.Collector):
    def __init__(self, source: Source, clock: Clock) -> None:
        self._source = source
        self._clock = clock

    def collect(self) -> list[core.Metric]:
        counts = self._source.table.freshness(self._clock.wall())
        reports = core.GaugeMetricFamily("cotenant_scheduler_reports", "Reports held, by state.", labels=["state"])
        reports.add_metric(["fresh"], counts.fresh)
        reports.add_metric(["unknown"], counts.unknown)
        reports.add_metric(["expired"], counts.expired)
        reports.add_metric(["malformed"], self._source.malformed)
        return [
            reports,
            core.GaugeMetricFamily(
                "cotenant_scheduler_neutral",
                "1 while no report holds, so that every node passes with the same score.",
                value=0.0 if counts.fresh else 1.0,
            ),
            core.CounterMetricFamily(
                "cotenant_scheduler_reload_errors",
                "Times the reports could not be read; the last good ones stay until they expire.",
                value=self._source.errors,
            ),
        ]
