"""One sample and its evaluation as metric families: what is unknown has no series."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, StateSetMetricFamily

from cotenant.model.evaluation import BUCKETS, Evaluation
from cotenant.model.loss import Loss
from cotenant.model.sample import Cgroup, Device, Sample
from cotenant.model.wording import title_of

DEVICES_LIMIT = 32
GROUPS = ("psi", "block", "memory", "cpu", "llc", "net", "online", "offline")


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


def of_sample(taken: Sample, cgroups: Sequence[Cgroup]) -> Iterator[Metric]:
    """Yield the families of one sample, with series of these of its groups."""
    for group in GROUPS:
        for prefix, field, value in numbers_of(getattr(taken, group), f"cotenant_{group}"):
            name, unit, scaled = metric_of(prefix, field, value)
            yield GaugeMetricFamily(
                name, f"{title_of(f'{group}.{field}')}, in the last period.", value=scaled, unit=unit
            )
    missing = GaugeMetricFamily(
        "cotenant_signal_missing", "1 for each unknown signal or group.", labels=("signal", "reason")
    )
    for signal, reason in sorted(taken.missing.items())[:200]:
        missing.add_metric([signal, reason], 1)
    yield missing
    yield from _devices(taken.block.devices)
    yield GaugeMetricFamily("cotenant_cgroups", "Groups seen, shown here or not.", value=len(taken.cgroups))
    yield from _cgroups(cgroups)


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


def _cgroups(cgroups: Sequence[Cgroup]) -> Iterator[Metric]:
    families: dict[str, GaugeMetricFamily] = {}
    for cgroup in cgroups:
        for prefix, field, value in numbers_of(cgroup, "cotenant_cgroup"):
            name, unit, scaled = metric_of(prefix, field, value)
            family = families.get(name)
            if family is None:
                text = f"{title_of(f'cgroup.{field}')} of one group, in the last period."
                family = families[name] = GaugeMetricFamily(name, text, labels=("cgroup", "name", "class"), unit=unit)
            family.add_metric([cgroup.path, cgroup.name or "", cgroup.class_ or ""], scaled)
    yield from families.values()


def of_losses(losses: Iterable[Loss]) -> Iterator[Metric]:
    """Yield the family of events that eBPF missed; none where no program runs."""
    text = "Events that our eBPF programs missed."
    family = CounterMetricFamily("cotenant_agent_bpf_lost_events", text, labels=("program", "reason"))
    for loss in losses:
        family.add_metric([loss.program, loss.reason], loss.events)
    if family.samples:
        yield family


def of_evaluation(evaluation: Evaluation) -> Iterator[Metric]:
    """Yield the families of one evaluation."""
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
