"""The signals: every number of a sample that a rule may name, which way it points, and what it does not see.

A signal's name is its path in the sample: ``block.p99_usec``, ``online.psi.io_some_ratio``,
``block.devices.vda.p99_usec``. A number of the sample without a row
here or in :data:`NOT_SIGNALS` fails a test.
"""

import dataclasses
import difflib
from collections.abc import Iterable
from typing import Literal

from cotenant.detect import errors

Direction = Literal["rising", "falling"]


@dataclasses.dataclass(frozen=True, slots=True)
class Signal:
    """One signal. ``ratio``: its values lie in 0..1. A ``falling`` signal is worse the smaller it is."""

    name: str
    unit: str
    description: str
    source: str
    blind: str = ""
    direction: Direction = "rising"
    ratio: bool = False

    @property
    def online(self) -> bool:
        """Whether it speaks of the online class alone."""
        return self.name.startswith("online.")


_SHARE = "share of the period"
_PSI = "/proc/pressure"
_CGROUP_PSI = "the groups' *.pressure files (cgroup v2, or v1 booted with psi_v1=1)"
_BLOCK = "eBPF on the block tracepoints"
_VMSTAT = "/proc/vmstat"
_STAT = "/proc/stat"
_LLC = "resctrl, or perf events"


def _psi(prefix: str, source: str, who: str, irq: bool) -> list[Signal]:
    def of(field: str, description: str, blind: str) -> Signal:
        return Signal(f"{prefix}psi.{field}", _SHARE, f"{description} ({who})", source, blind, ratio=True)

    rows = [
        of("cpu_some_ratio", "some task was runnable and waited for a CPU", "throttling by the group's own quota too"),
        of("memory_some_ratio", "some task waited for reclaim or for a page it had lost", "memory that is merely full"),
        of("memory_full_ratio", "every non-idle task waited for memory", "a node where one CPU still makes progress"),
        of(
            "io_some_ratio", "some task waited for I/O", "whether the disk is slow or merely used: one reader gives 0.7"
        ),
        of("io_full_ratio", "every non-idle task waited for I/O", "a node where one task still computes"),
    ]
    if irq:
        rows.append(of("irq_full_ratio", "tasks lost their CPU to interrupts", "kernels before 6.1"))
    return rows


def _latency(prefix: str, whose: str) -> list[Signal]:
    blind = "requests that never complete, except by the age of the oldest; windows of fewer than 30 completions"
    return [
        Signal(f"{prefix}p{q}_usec", "µs", f"{q} % of requests of {whose} completed within this", _BLOCK, blind)
        for q in (50, 95, 99)
    ]


_LISTED: tuple[Signal, ...] = (
    *_psi("", _PSI, "node-wide", irq=True),
    *_latency("block.", "all disks together"),
    Signal("block.completions", "requests", "requests completed in the period", f"{_BLOCK}, or /proc/diskstats"),
    Signal(
        "memory.available_ratio",
        "share of memory",
        "memory that can be had without swapping",
        "/proc/meminfo",
        "memory that is available but slow to get",
        direction="falling",
        ratio=True,
    ),
    Signal(
        "memory.page_scan_per_sec", "pages/s", "pages looked at by reclaim", _VMSTAT, "reclaim inside a group's limit"
    ),
    Signal(
        "memory.direct_scan_per_sec",
        "pages/s",
        "pages looked at by tasks that had to reclaim for themselves",
        _VMSTAT,
        "reclaim inside a group's limit",
    ),
    Signal("memory.refault_per_sec", "pages/s", "pages read again soon after they were evicted", _VMSTAT),
    Signal("memory.major_fault_per_sec", "faults/s", "page faults that had to read from a disk", _VMSTAT),
    Signal("memory.swap_in_per_sec", "pages/s", "pages read back from swap", _VMSTAT),
    Signal("memory.swap_out_per_sec", "pages/s", "pages written to swap", _VMSTAT),
    Signal("memory.oom_kills", "kills", "processes killed for memory in the period", _VMSTAT),
    Signal("cpu.used_ratio", "share of all CPUs", "user, nice, system and interrupt time", _STAT, ratio=True),
    Signal("cpu.user_ratio", "share of all CPUs", "user and nice time", _STAT, ratio=True),
    Signal("cpu.system_ratio", "share of all CPUs", "kernel time", _STAT, ratio=True),
    Signal("cpu.iowait_ratio", "share of all CPUs", "idle while a task of that CPU waited for I/O", _STAT, ratio=True),
    Signal(
        "cpu.steal_ratio", "share of all CPUs", "taken by the hypervisor", _STAT, "hosts that do not report", ratio=True
    ),
    Signal(
        "cpu.irq_ratio",
        "share of all CPUs",
        "hard interrupts",
        _STAT,
        "kernels without IRQ time accounting",
        ratio=True,
    ),
    Signal("cpu.softirq_ratio", "share of all CPUs", "soft interrupts", _STAT, "one busy CPU among many", ratio=True),
    Signal("cpu.interrupts_per_sec", "1/s", "hard interrupts", _STAT),
    Signal("cpu.softirqs_per_sec", "1/s", "soft interrupts", _STAT),
    Signal("cpu.run_queue_latency_p95_usec", "µs", "95 % of waits for a CPU were within this", "eBPF"),
    Signal("cpu.run_queue_latency_p99_usec", "µs", "99 % of waits for a CPU were within this", "eBPF"),
    Signal("cpu.run_queue_latency_mean_usec", "µs", "mean wait for a CPU, where there is no eBPF", "/proc/schedstat"),
    Signal(
        "llc.miss_ratio",
        "misses/references",
        "last-level cache misses",
        _LLC,
        "how often the cache is used",
        ratio=True,
    ),
    Signal("llc.mpki", "misses/1000 instructions", "last-level cache misses by work done", "perf events"),
    Signal("llc.occupancy_bytes", "bytes", "last-level cache held", "resctrl"),
    Signal("llc.memory_bandwidth_bytes_per_sec", "bytes/s", "traffic between cache and memory", "resctrl"),
    Signal(
        "llc.probe_ratio", "× calm", "a timed pointer chase over its own calm baseline", "--llc-probe", "brief bursts"
    ),
    Signal("net.softnet_dropped_per_sec", "packets/s", "dropped for want of backlog", "/proc/net/softnet_stat"),
    Signal("net.softnet_squeezed_per_sec", "1/s", "soft interrupts that ran out of budget", "/proc/net/softnet_stat"),
    Signal("net.nic_dropped_per_sec", "packets/s", "dropped by the network devices", "/proc/net/dev"),
    *_psi("online.", _CGROUP_PSI, "the worst online group", irq=False),
    Signal("online.run_queue_latency_p99_usec", "µs", "99 % of an online group's waits for a CPU", "eBPF"),
    Signal("online.block_p99_usec", "µs", "99 % of an online group's requests completed within this", _BLOCK),
    Signal(
        "online.throttled_ratio", "share of periods", "the worst online group at its own quota", "cpu.stat", ratio=True
    ),
    Signal("online.cpu_used_ratio", "share of all CPUs", "used by online groups", "cpuacct, cpu.stat", ratio=True),
    Signal("offline.cpu_used_ratio", "share of all CPUs", "used by offline groups", "cpuacct, cpu.stat", ratio=True),
    Signal(
        "offline.throttled_ratio", "share of periods", "the worst offline group at its quota", "cpu.stat", ratio=True
    ),
)

SIGNALS: dict[str, Signal] = {signal.name: signal for signal in _LISTED}
"""Signals by name, in the order of the sample. Those of single devices are made on demand by :func:`find`."""

DEVICE_FIELDS: dict[str, Signal] = {
    signal.name: signal
    for signal in (
        *_latency("", "one disk"),
        Signal("completions", "requests", "requests completed in the period", f"{_BLOCK}, or /proc/diskstats"),
        Signal("queue_p99_usec", "µs", "99 % of requests waited less than this before they were issued", _BLOCK),
        Signal("device_p99_usec", "µs", "99 % of requests took the device less than this", _BLOCK),
        Signal("read_iops", "1/s", "reads completed", f"{_BLOCK}, or /proc/diskstats"),
        Signal("write_iops", "1/s", "writes completed", f"{_BLOCK}, or /proc/diskstats"),
        Signal("read_bytes_per_sec", "bytes/s", "bytes read", f"{_BLOCK}, or /proc/diskstats"),
        Signal("write_bytes_per_sec", "bytes/s", "bytes written", f"{_BLOCK}, or /proc/diskstats"),
        Signal("in_flight", "requests", "requests issued and not completed", f"{_BLOCK}, or /proc/diskstats"),
        Signal(
            "oldest_in_flight_usec", "µs", "age of the oldest request in flight", f"{_BLOCK}; /proc/diskstats: at least"
        ),
    )
}
"""What can be asked of one device, as ``block.devices.NAME.FIELD``."""

DEVICES = "block.devices."

NOT_SIGNALS = frozenset({"uptime_s", "period_s", "cpu.online", "memory.free_ratio"})
"""Numbers of the sample that say nothing about interference: memory that is not free is mostly page cache."""


def find(name: str) -> Signal:
    """Return the signal of that name.

    :raises UnknownSignal: with the nearest name, if there is none.
    """
    signal = SIGNALS.get(name)
    if signal:
        return signal
    if name.startswith(DEVICES):
        device, _, field = name.removeprefix(DEVICES).rpartition(".")
        if device and field in DEVICE_FIELDS:
            return dataclasses.replace(DEVICE_FIELDS[field], name=name)
        if device and (close := difflib.get_close_matches(field, DEVICE_FIELDS, 1, 0)):
            raise errors.UnknownSignal(name, f"{DEVICES}{device}.{close[0]}")
    raise errors.UnknownSignal(name, nearest(name, SIGNALS))


def nearest(word: str, words: Iterable[str]) -> str | None:
    """Return the one of the words that is most like it, or None when none is at all."""
    candidates = list(words)
    folded = {w.lower().replace("_", ""): w for w in candidates}
    close = difflib.get_close_matches(word.lower().replace("_", ""), folded, 1, 0.3)
    return folded[close[0]] if close else None
