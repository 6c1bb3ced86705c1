"""``/metrics``: the newest sample as OpenMetrics. What is unknown has no series; the number of series is bounded."""

from collections.abc import Iterable, Iterator

import msgspec
from prometheus_client import CollectorRegistry, exposition
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
    StateSetMetricFamily,
)
from prometheus_client.openmetrics import exposition as openmetrics

import cotenant
from cotenant.model.latency import ServiceLatency
from cotenant.model.sample import Cgroup, Device
from cotenant.model.series import time_ms_of
from cotenant.model.wording import title_of
from cotenant.web import ledger
from cotenant.web.feed import Feed, Moment
from cotenant.web.protection import metrics_of as protection_metrics_of
from cotenant.web.stream import Broadcast

CGROUPS_LIMIT = 100
"""Groups with series of their own: the busiest. ``cotenant_cgroups`` says how many there are."""

DEVICES_LIMIT = 32
SERIES_LIMIT = 2700
"""The stated bound on series: about 100 of the node, 12 of a device, 13 of a group, 8 of a service, 7 of an offline
group."""

GROUPS = ("psi", "block", "memory", "cpu", "llc", "net", "online", "offline")
BUCKETS = ("none", "low", "medium", "high", "severe", "unknown")


def metric_of(prefix: str, field: str, value: float) -> tuple[str, str, float]:
    """Return the name, the unit and the value of a field in Prometheus' base units."""
    if field.endswith("_usec"):
        return f"{prefix}_{field.removesuffix('_usec')}_seconds", "seconds", value / 1e6
    if field.endswith("_bytes_per_sec"):
        return f"{prefix}_{field.removesuffix('_per_sec')}_per_second", "", value
    if field.endswith("_per_sec"):
        return f"{prefix}_{field.removesuffix('_per_sec')}_per_second", "", value
    if field.endswith("_ratio"):
        return f"{prefix}_{field}", "ratio", value
    if field.endswith("_bytes"):
        return f"{prefix}_{field}", "bytes", value
    return f"{prefix}_{field}", "", value


def numbers_of(struct: msgspec.Struct, prefix: str) -> Iterator[tuple[str, str, float]]:
    """Yield (prefix, field, value) of every known number of a struct, nested structs included."""
    for field in struct.__struct_fields__:
        value = getattr(struct, field)
        if isinstance(value, msgspec.Struct):
            yield from numbers_of(value, f"{prefix}_{field}")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield prefix, field, float(value)


def busiest(cgroups: list[Cgroup], limit: int) -> list[Cgroup]:
    """Return up to ``limit`` groups: those with a class first, then by what they use or wait for."""

    def weight(cgroup: Cgroup) -> tuple[bool, float]:
        use = (cgroup.cpu_used_ratio or 0.0) + max((value for _, _, value in numbers_of(cgroup.psi, "")), default=0.0)
        io = (cgroup.read_bytes_per_sec or 0.0) + (cgroup.write_bytes_per_sec or 0.0)
        return cgroup.class_ in ("online", "offline"), use + io / 1e9 + (cgroup.memory_bytes or 0) / 1e13

    return sorted(cgroups, key=weight, reverse=True)[:limit]


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
        yield from _node(moment)
        yield from _devices(moment.sample.block.devices)
        yield from _cgroups(moment.sample.cgroups)
        yield from _judgement(moment)
        yield from _self(moment)
        yield from latency_metrics(moment.latencies)
        if moment.enforcement is not None:
            yield from protection_metrics_of(moment.enforcement)
            now = time_ms_of(moment.sample.time) / 1000
            yield from ledger.metrics_of(moment.enforcement.ledger.session, "group", now)


def _node(moment: Moment) -> Iterator[Metric]:
    for group in GROUPS:
        for prefix, field, value in numbers_of(getattr(moment.sample, group), f"cotenant_{group}"):
            name, unit, scaled = metric_of(prefix, field, value)
            yield GaugeMetricFamily(
                name, f"{title_of(f'{group}.{field}')}, in the last period.", value=scaled, unit=unit
            )
    missing = GaugeMetricFamily(
        "cotenant_signal_missing", "1 for each unknown signal or group.", labels=("signal", "reason")
    )
    for signal, reason in sorted(moment.sample.missing.items())[:200]:
        missing.add_metric([signal, reason], 1)
    yield missing


def _devices(devices: dict[str, Device]) -> Iterator[Metric]:
    families: dict[str, GaugeMetricFamily] = {}
    for device, values in sorted(devices.items())[:DEVICES_LIMIT]:
        for prefix, field, value in numbers_of(values, "cotenant_block_device"):
            name, unit, scaled = metric_of(prefix, field, value)
            family = families.get(name)
            if family is None:
                text = f"{title_of(f'device.{field}')} of one disk, in the last period."
                family = families[name] = GaugeMetricFamily(name, text, labels=("device", "kind"), unit=unit)
            family.add_metric([device, values.kind or ""], scaled)
    yield from families.values()


def _cgroups(cgroups: list[Cgroup]) -> Iterator[Metric]:
    yield GaugeMetricFamily("cotenant_cgroups", "Groups seen, shown here or not.", value=len(cgroups))
    families: dict[str, GaugeMetricFamily] = {}
    for cgroup in busiest(cgroups, CGROUPS_LIMIT):
        for prefix, field, value in numbers_of(cgroup, "cotenant_cgroup"):
            name, unit, scaled = metric_of(prefix, field, value)
            family = families.get(name)
            if family is None:
                text = f"{title_of(f'cgroup.{field}')} of one group, in the last period."
                family = families[name] = GaugeMetricFamily(name, text, labels=("cgroup", "class"), unit=unit)
            family.add_metric([cgroup.path, cgroup.class_ or ""], scaled)
    yield from families.values()


def _judgement(moment: Moment) -> Iterator[Metric]:
    evaluation = moment.evaluation
    if evaluation.interference_level is not None:
        text = "How much the node interferes with its online work, 0 to 1."
        yield GaugeMetricFamily("cotenant_interference_level", text, value=evaluation.interference_level)
    yield GaugeMetricFamily(
        "cotenant_coverage_ratio", "Share of the rules' weight that is known.", value=evaluation.coverage, unit="ratio"
    )
    bucket = StateSetMetricFamily(
        "cotenant_interference_bucket", "The level in words.", value={b: b == evaluation.bucket for b in BUCKETS}
    )
    yield bucket
    triggered = GaugeMetricFamily(
        "cotenant_detection_triggered", "1 while the detection is triggered.", labels=("detection",)
    )
    index = GaugeMetricFamily("cotenant_detection_index", "Normalised interference, 0 to 1.", labels=("detection",))
    threshold = GaugeMetricFamily(
        "cotenant_signal_index", "Index of one signal, 0 to 1.", labels=("detection", "signal")
    )
    for name, detection in evaluation.detections.items():
        if detection.triggered is not None:
            triggered.add_metric([name], float(detection.triggered))
        if detection.index is not None:
            index.add_metric([name], detection.index)
        for signal, state in detection.signals.items():
            if state.index is not None:
                threshold.add_metric([name, signal], state.index)
    hard = GaugeMetricFamily("cotenant_hard_limit", "1 for each hard limit in force.", labels=("limit",))
    for limit in evaluation.hard:
        hard.add_metric([limit], 1)
    yield from (triggered, index, threshold, hard)


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
            return exposition.generate_latest(self._registry), exposition.CONTENT_TYPE_LATEST
        text: bytes = openmetrics.generate_latest(self._registry)  # type: ignore[no-untyped-call]
        return text, openmetrics.CONTENT_TYPE_LATEST
