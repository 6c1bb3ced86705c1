"""One control group over time: its counters of two reads become its line of the sample."""

import dataclasses
from collections.abc import Mapping

from cotenant.kernel import psi
from cotenant.kernel.cgroup.classes import Label
from cotenant.kernel.cgroup.counters import GroupCounters, GroupFiles
from cotenant.model import rate
from cotenant.model.rate import Count, Value
from cotenant.model.sample import Cgroup, CgroupPsi, MissingReason
from cotenant.units.histogram import Histogram

_PSI = ("cpu_some", "memory_some", "memory_full", "io_some", "io_full")
_RATES = {
    "refault_per_sec": "refaults",
    "major_fault_per_sec": "major_faults",
    "read_bytes_per_sec": "read_bytes",
    "write_bytes_per_sec": "write_bytes",
}
Reasons = dict[str, MissingReason]


@dataclasses.dataclass(slots=True)
class Period:
    """What the lines of all groups of one period are made with."""

    seconds: float | MissingReason
    cpus: int | MissingReason
    """On line."""
    run_queue: Mapping[str, Histogram] | MissingReason
    """Waits for a CPU by group, those of the groups below included."""
    block: Mapping[str, Histogram] | MissingReason
    no_occupancy: MissingReason
    """Why no group's cache occupancy is known: monitoring a group needs a write to resctrl, which no reader does."""


def readable(name: str) -> str:
    """Return a group's path or name as text that can be encoded and shown: what is not printable as ``\\xff``.

    A name is bytes, and whoever owns a group names the ones below it: bytes that are no UTF-8 cannot be sent on, and
    control characters would reach the terminal of whoever looks.
    """
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else _escaped(c) for c in name)


def _escaped(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in character.encode(errors="surrogateescape"))


class Group:
    """One group whose files are open."""

    __slots__ = ("_before", "_still", "files", "path")

    def __init__(self, path: str, files: GroupFiles) -> None:
        self.path = path
        self.files = files
        self._before: GroupCounters | None = None
        self._still: tuple[tuple[object, ...], Cgroup, Reasons] | None = None
        """The last line and its reasons, where no counter had changed for it, and what else it was made of."""

    def line(
        self,
        after: GroupCounters,
        label: Label,
        period: Period,
        written_bytes: Count | None,
        reasons: Reasons,
    ) -> Cgroup:
        """Return the group's line. Why a field is unknown goes into ``reasons``, where the first reason stays.

        ``written_bytes`` is what its processes wrote by their own account (v1); None where the kernel knows itself.
        """
        before, self._before = self._before, after
        run_queue = _p99(period.run_queue, self.path, period.seconds)
        block = _p99(period.block, self.path, period.seconds)
        made_of = None
        if after is before:
            # Rates are nought then, however long the period and however many the CPUs, if these are known.
            unknown = period.seconds if isinstance(period.seconds, str) else None, isinstance(period.cpus, str)
            made_of = (label, written_bytes, run_queue, block, *unknown)
        if made_of is not None and self._still is not None and self._still[0] == made_of:
            _, line, own = self._still
        else:
            own = {}
            line = self._line(before, after, label, period, written_bytes, run_queue, block, own)
            self._still = None if made_of is None else (made_of, line, own)
        for field, reason in own.items():
            reasons.setdefault(field, reason)
        return line

    def _line(
        self,
        before: GroupCounters | None,
        after: GroupCounters,
        label: Label,
        period: Period,
        written_bytes: Count | None,
        run_queue: Value,
        block: Value,
        reasons: Reasons,
    ) -> Cgroup:
        seconds = period.seconds
        values: dict[str, float] = {}

        def put(field: str, value: Value) -> None:
            if isinstance(value, str):
                reasons.setdefault(field, value)
            else:
                values[field] = value

        put("cpu_used_ratio", _cpu_ratio(before, after, period))
        put("throttled_ratio", _throttled_ratio(before, after, seconds))
        put("memory_bytes", after.memory_bytes)
        put("memory_anon_bytes", after.memory_anon_bytes)
        for field, name in _RATES.items():
            grown = _grown(before, after, name)
            if name == "write_bytes" and written_bytes is not None and before is not None:
                grown = _larger(grown, written_bytes)
            put(field, _per_second(grown, seconds))
        put("run_queue_latency_p99_usec", run_queue)
        put("block_p99_usec", block)
        reasons.setdefault("llc_occupancy_bytes", period.no_occupancy)
        stalls: dict[str, float] = {}
        for name in _PSI:
            ratio = psi.stall_ratio(_grown(before, after, f"{name}_usec"), seconds)
            if isinstance(ratio, str):
                reasons.setdefault(f"psi.{name}_ratio", ratio)
            else:
                stalls[f"{name}_ratio"] = ratio
        if label.class_ is None:
            reasons.setdefault("class", "no_class")
        return Cgroup(
            path=readable(self.path),
            class_=label.class_,
            name=readable(label.name or self.path),
            psi=CgroupPsi(**stalls),
            **values,  # type: ignore[arg-type]
        )


def _grown(before: GroupCounters | None, after: GroupCounters, name: str) -> Count:
    now: Count = getattr(after, name)
    if isinstance(now, str):
        return now
    if before is None:
        return "first_sample"
    then: Count = getattr(before, name)
    return rate.difference(None if isinstance(then, str) else then, now)


def _per_second(grown: Count, seconds: float | MissingReason) -> Value:
    if isinstance(grown, str):
        return grown
    return seconds if isinstance(seconds, str) else grown / seconds


def _cpu_ratio(before: GroupCounters | None, after: GroupCounters, period: Period) -> Value:
    """Return the share of all CPUs on line; at most 1, since the clocks are read apart."""
    used_usec = _per_second(_grown(before, after, "usage_usec"), period.seconds)
    if isinstance(used_usec, str):
        return used_usec
    if isinstance(period.cpus, str):
        return period.cpus
    return min(used_usec / 1e6 / period.cpus, 1.0)


def _throttled_ratio(before: GroupCounters | None, after: GroupCounters, seconds: float | MissingReason) -> Value:
    """Return throttled periods ÷ periods: 0 without a period, since only a group with a quota has any."""
    throttled, periods = _grown(before, after, "nr_throttled"), _grown(before, after, "nr_periods")
    if isinstance(throttled, str):
        return throttled
    if isinstance(periods, str):
        return periods
    if isinstance(seconds, str):
        return seconds
    return min(throttled / periods, 1.0) if periods else 0.0


def _p99(latencies: Mapping[str, Histogram] | MissingReason, path: str, seconds: float | MissingReason) -> Value:
    if isinstance(latencies, str):
        return latencies
    if isinstance(seconds, str):
        return seconds
    latency = latencies.get(path)
    value = None if latency is None else latency.quantile(0.99)
    return "too_few" if value is None else value


def _larger(block: Count, account: Count) -> Count:
    """Return what a group wrote on v1: both counts miss a part of it, and neither says more than there was."""
    if isinstance(account, str):
        return account
    return max(block, account) if not isinstance(block, str) else account
