"""The status of this node's NodeMetric: who asks for what, and what the node answers. No I/O."""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import msgspec

from cotenant.api import timestamp
from cotenant.api.koordinator import node_metric as api
from cotenant.model.node import Use
from cotenant.model.pod import Pod
from cotenant.model.policy import HostApplication
from cotenant.node.metering import Aggregates, Collection, Meter
from cotenant.node.prediction import Predictor
from cotenant.units import quantity

MIN_AGGREGATE_SECONDS, DEFAULT_AGGREGATE_SECONDS = 60, 300
MIN_REPORT_SECONDS, DEFAULT_REPORT_SECONDS = 30, 60
MAX_REPORT_SECONDS = api.MAX_AGE_SECONDS - 30
"""A longer interval would make koord-scheduler leave the node out between two reports."""
MAX_AGGREGATE_SECONDS = 24 * 3600
MAX_DURATIONS = 8
STALE_SECONDS = 30.0
"""Without a sample for so long nothing is told: an old mean with a new time would be believed."""
MAX_PODS = 500
"""A status of so many pods is 100 kB."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a NodeMetric asks for, in force, and what of it is not done as it stands there."""

    collection: Collection = Collection()
    report_s: float = DEFAULT_REPORT_SECONDS
    notices: tuple[str, ...] = ()


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a status tells of: pods by the path of their group, host applications, and what pods may have."""

    pods: Mapping[str, Pod] = {}
    applications: Sequence[HostApplication] = ()
    allocatable: Use = Use()
    cpu_normalization_ratio: Fraction = Fraction(1)
    """How many reference CPUs, in which pods ask, one CPU of the node counts for."""


def request_of(spec: api.NodeMetricSpec) -> Request:
    """Return what a spec asks for; what it leaves out, or says in a way nobody can follow, is the default's."""
    policy = spec.metric_collect_policy or api.CollectPolicy()
    notices: list[str] = []
    durations = _durations(policy.node_aggregate_policy, notices)
    asked = policy.node_memory_collect_policy
    if asked == "usageWithHotPageCache":
        notices.append("usageWithHotPageCache: no kernel here tells hot from cold page cache; reported without any")
    aggregate_s = _bounded(policy.aggregate_duration_seconds, DEFAULT_AGGREGATE_SECONDS, MIN_AGGREGATE_SECONDS)
    report_s = _bounded(policy.report_interval_seconds, DEFAULT_REPORT_SECONDS, MIN_REPORT_SECONDS)
    if report_s > MAX_REPORT_SECONDS:
        notices.append(
            f"reportIntervalSeconds {report_s:.0f}: koord-scheduler ignores nodes past {api.MAX_AGE_SECONDS} s; "
            f"reported every {MAX_REPORT_SECONDS} s"
        )
    return Request(
        collection=Collection(
            aggregate_s=min(aggregate_s, MAX_AGGREGATE_SECONDS),
            durations_s=durations,
            page_cache=asked == "usageWithPageCache",
        ),
        report_s=min(report_s, MAX_REPORT_SECONDS),
        notices=tuple(notices),
    )


def _bounded(asked: int | None, default: int, least: int) -> float:
    return float(max(default if asked is None else asked, least))


def _durations(policy: api.AggregatePolicy | None, notices: list[str]) -> tuple[float, ...]:
    if policy is None or policy.durations is None:
        return Collection().durations_s
    found = []
    for text in policy.durations[:MAX_DURATIONS]:
        try:
            found.append(min(quantity.seconds(text), float(MAX_AGGREGATE_SECONDS)))
        except quantity.BadQuantity as error:
            notices.append(f"nodeAggregatePolicy: {error}; left out")
    return tuple(sorted(set(found)))


def status_of(
    meter: Meter, predictor: Predictor, subject: Subject, now: float, wall: float
) -> api.NodeMetricStatus | None:
    """Return the status now, or None while nothing is known of the node, or nothing new.

    ``now`` is the meter's clock, ``wall`` seconds since the epoch.
    """
    node = _map(meter.node(now))
    if node is None or now - meter.taken_at > STALE_SECONDS:
        return None
    durations = meter.collection.durations_s
    numa = _numa(meter, now)
    pods = [entry for path, pod in subject.pods.items() if (entry := _pod(pod, meter.pod(path)))]
    applications = [
        api.HostApplicationMetric(name=app.name, usage=used, priority=app.priority or None, qos=app.qos or None)
        for app in subject.applications
        if (used := _map(meter.application(app.name)))
    ]
    return api.NodeMetricStatus(
        update_time=timestamp.render(wall),
        node_metric=api.NodeUsage(
            node_usage=node,
            aggregated_node_usages=_aggregated(meter, "node", durations, now) or None,
            system_usage=_map(meter.system(now)),
            aggregated_system_usages=_aggregated(meter, "system", durations, now) or None,
            numa_usages=numa or None,
        ),
        pods_metric=sorted(pods, key=lambda entry: (entry.namespace, entry.name))[:MAX_PODS],
        host_application_metric=applications or None,
        prod_reclaimable_metric=_prediction(
            predictor.reclaimable(subject.pods.values(), subject.allocatable, wall, subject.cpu_normalization_ratio)
        ),
        prod_peak_metric=_prediction(predictor.peak(wall)),
    )


def _map(use: Use) -> api.ResourceMap | None:
    return api.usage(use.cpu_millicores, use.memory_bytes)


def _prediction(use: Use) -> api.Prediction | None:
    found = _map(use)
    return None if found is None else api.Prediction(resource=found)


def _pod(pod: Pod, use: Use) -> api.PodMetric | None:
    used = _map(use)
    if used is None:
        return None
    band = pod.band
    return api.PodMetric(
        name=pod.name,
        namespace=pod.namespace,
        pod_usage=used,
        priority=f"koord-{band}" if band else None,
        qos=pod.qos,
    )


def _numa(meter: Meter, now: float) -> list[api.NumaUsage]:
    """Return the NUMA nodes. The system's share of one is known only where there is but one: pods cross them."""
    uses = meter.numa(now)
    return [
        api.NumaUsage(
            numa_node_id=node,
            node_usage=_map(use),
            system_usage=_map(meter.system(now)) if len(uses) == 1 else None,
        )
        for node, use in uses.items()
        if _map(use) is not None
    ]


def _aggregated(meter: Meter, what: str, durations: Sequence[float], now: float) -> list[api.AggregatedUsage]:
    found = []
    for duration_s in durations:
        cpu = meter.aggregates(f"{what}_cpu", duration_s, now)
        memory = meter.aggregates(f"{what}_memory", duration_s, now)
        usage = {
            name: used
            for name in api.AGGREGATIONS
            if (used := api.usage(_of(cpu, name), _of(memory, name))) is not None
        }
        if usage:
            found.append(api.AggregatedUsage(usage=usage, duration=api.duration_text(math.ceil(duration_s))))
    return found


def _of(aggregates: Aggregates | None, name: api.Aggregation) -> float | None:
    return None if aggregates is None else float(getattr(aggregates, name))
