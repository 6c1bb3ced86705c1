"""``/metrics``: the newest sample as OpenMetrics. What is unknown has no series; the number of series is bounded."""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, exposition
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.openmetrics import exposition as openmetrics

import cotenant
from cotenant.model.latency import ServiceLatency
from cotenant.model.series import time_ms_of
from cotenant.web import ledger, sample_metrics
from cotenant.web.answer import METRICS_TEXT
from cotenant.web.feed import Feed, Moment
from cotenant.web.protection import metrics_of as protection_metrics_of
from cotenant.web.sample_metrics import busiest
from cotenant.web.stream import Broadcast

CGROUPS_LIMIT = 100
"""Groups with series of their own: the busiest. ``cotenant_cgroups`` says how many there are."""
SERIES_LIMIT = 2700
"""The stated bound on series: about 100 of the node, 12 of a device, 13 of a group, 8 of a service, 7 of an offline
group."""


class SampleCollector:
    """Makes metric families of the newest moment at each scrape."""

    def __init__(self, feed: Feed, broadcast: Broadcast) -> None:
        self._feed = feed
        self._broadcast = broadcast

    def describe(self) -> list[Metric]:
        """Return nothing: the names depend on what is known, and registering must not ask for a sample."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        yield InfoMetricFamily("cotenant_build", "The version that runs.", value={"version": cotenant.__version__})
        yield GaugeMetricFamily("cotenant_stream_clients", "Pages that follow live.", value=self._broadcast.clients)
        yield CounterMetricFamily(
            "cotenant_stream_clients_dropped", "Pages that did not keep up.", value=self._broadcast.dropped
        )
        moment = self._feed.latest()
        if moment is None:
            return
        age = self._feed.age_s()
        if age is not None:
            yield GaugeMetricFamily(
                "cotenant_sample_age_seconds", "Age of the newest sample.", value=age, unit="seconds"
            )
        yield from sample_metrics.of_sample(moment.sample, busiest(moment.sample.cgroups, CGROUPS_LIMIT))
        yield from sample_metrics.of_evaluation(moment.evaluation)
        yield from _self(moment)
        yield from latency_metrics(moment.latencies)
        if moment.enforcement is not None:
            yield from protection_metrics_of(moment.enforcement)
            now = time_ms_of(moment.sample.time) / 1000
            yield from ledger.metrics_of(moment.enforcement.ledger.session, "group", now)


def latency_metrics(latencies: Iterable[ServiceLatency]) -> Iterator[Metric]:
    """Yield the families of online services; none where no service is watched."""
    services = list(latencies)
    if not services:
        return
    seconds = GaugeMetricFamily(
        "cotenant_service_latency_seconds",
        "Latency of a service's requests, over the last 10 or 60 s.",
        labels=("service", "quantile"),
        unit="seconds",
    )
    beyond = GaugeMetricFamily(
        "cotenant_service_latency_beyond_buckets",
        "1 where the latency is at least what is shown: it is beyond the last bucket.",
        labels=("service", "quantile"),
    )
    rate = GaugeMetricFamily("cotenant_service_requests_per_second", "Requests of a service.", labels=("service",))
    failed = GaugeMetricFamily(
        "cotenant_service_latency_failed", "1 while a service's latency cannot be read.", labels=("service",)
    )
    for service in services:
        for known in service.quantiles:
            if known.seconds is not None:
                labels = [service.service, f"{known.quantile:g}"]
                seconds.add_metric(labels, known.seconds)
                beyond.add_metric(labels, float(known.at_least))
        if service.requests_per_sec is not None:
            rate.add_metric([service.service], service.requests_per_sec)
        failed.add_metric([service.service], float(bool(service.error)))
    yield from (seconds, beyond, rate, failed)


def _self(moment: Moment) -> Iterator[Metric]:
    cost, rules, history = moment.cost, moment.rules, moment.history
    known = (
        ("cotenant_agent_cpu_ratio", "ratio", "Our own CPU time, of one core, over a minute.", cost.cpu_ratio),
        ("cotenant_agent_resident_memory_bytes", "bytes", "Our own resident memory.", cost.rss_bytes),
        ("cotenant_agent_bpf_cpu_ratio", "ratio", "CPU time of our eBPF programs, of one core.", cost.bpf_cpu_ratio),
        ("cotenant_agent_sample_seconds", "seconds", "Time that the last sample took.", _seconds(cost.sample_usec)),
        (
            "cotenant_agent_sample_p99_seconds",
            "seconds",
            "99th percentile over a minute.",
            _seconds(cost.sample_p99_usec),
        ),
        ("cotenant_history_size_bytes", "bytes", "Size of the history file.", history.size_bytes),
        ("cotenant_rules_revision", "", "Revision of the rules in force.", rules.revision),
        (
            "cotenant_rules_rejected",
            "",
            "1 while the rules file is refused and older rules are in force.",
            rules.error is not None,
        ),
        ("cotenant_history_failed", "", "1 while the history is not written.", history.error is not None),
    )
    for name, unit, text, value in known:
        if value is not None:
            yield GaugeMetricFamily(name, text, value=float(value), unit=unit)
    yield from sample_metrics.of_losses(cost.bpf_losses)
    yield CounterMetricFamily("cotenant_agent_late_ticks", "Periods that were skipped.", value=cost.late_ticks)
    yield CounterMetricFamily("cotenant_agent_failed_ticks", "Samples that failed.", value=cost.failed_ticks)
    yield CounterMetricFamily("cotenant_history_dropped", "Samples that the history lost.", value=history.dropped)


def _seconds(usec: float | None) -> float | None:
    return None if usec is None else usec / 1e6


class Exposition:
    """The text of ``/metrics``: OpenMetrics, or the older text format for a client that names only that."""

    def __init__(self, feed: Feed, broadcast: Broadcast) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(SampleCollector(feed, broadcast))

    def render(self, accept: str) -> tuple[bytes, str]:
        """Return the text and its content type."""
        if "text/plain" in accept and "openmetrics" not in accept:
            return exposition.generate_latest(self._registry), METRICS_TEXT
        text: bytes = openmetrics.generate_latest(self._registry)  # type: ignore[no-untyped-call]
        return text, openmetrics.CONTENT_TYPE_LATEST
