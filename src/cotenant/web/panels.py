"""Which numbers are drawn together: one chart a panel, lines of one unit, ordered by resource."""

import dataclasses
from collections.abc import Iterable

from cotenant.model.latency import P99
from cotenant.model.series import latency_name


@dataclasses.dataclass(frozen=True, slots=True)
class Panel:
    """One chart: its key, its title, and the names of its lines (at most four: that is how many colours there are)."""

    key: str
    title: str
    names: tuple[str, ...]


PANELS: tuple[Panel, ...] = (
    Panel("level", "Interference level", ("level",)),
    Panel(
        "index",
        "Index of each detection",
        ("index.cpuContention", "index.ioCongestion", "index.memoryPressure", "index.cachePollution"),
    ),
    Panel(
        "online-stall",
        "Online groups: worst stall",
        (
            "online.psi.cpu_some_ratio",
            "online.psi.io_some_ratio",
            "online.psi.memory_some_ratio",
            "online.psi.memory_full_ratio",
        ),
    ),
    Panel(
        "online-latency",
        "Online groups: worst wait, p99",
        ("online.run_queue_latency_p99_usec", "online.block_p99_usec"),
    ),
    Panel("cpu", "CPU time", ("cpu.used_ratio", "cpu.steal_ratio", "cpu.softirq_ratio", "cpu.iowait_ratio")),
    Panel("runqueue", "Wait for a CPU", ("cpu.run_queue_latency_p99_usec", "cpu.run_queue_latency_p95_usec")),
    Panel("psi-cpu", "CPU stall", ("psi.cpu_some_ratio", "psi.irq_full_ratio")),
    Panel("interrupts", "Interrupts", ("cpu.softirqs_per_sec", "cpu.interrupts_per_sec")),
    Panel("block", "Disk latency", ("block.p99_usec", "block.p95_usec", "block.p50_usec")),
    Panel("oldest", "Oldest disk request in flight", ("block.oldest_in_flight_usec",)),
    Panel("psi-io", "I/O stall", ("psi.io_some_ratio", "psi.io_full_ratio")),
    Panel("psi-memory", "Memory stall", ("psi.memory_some_ratio", "psi.memory_full_ratio")),
    Panel("available", "Memory available", ("memory.available_ratio",)),
    Panel("faults", "Refaults and major faults", ("memory.refault_per_sec", "memory.major_fault_per_sec")),
    Panel("reclaim", "Page scans", ("memory.page_scan_per_sec", "memory.direct_scan_per_sec")),
    Panel("swap", "Swap", ("memory.swap_in_per_sec", "memory.swap_out_per_sec")),
    Panel("llc-miss", "LLC miss ratio", ("llc.miss_ratio",)),
    Panel("llc-mpki", "LLC misses per 1,000 instructions", ("llc.mpki",)),
    Panel("llc-occupancy", "LLC occupancy", ("llc.occupancy_bytes",)),
    Panel("llc-bandwidth", "Memory bandwidth", ("llc.memory_bandwidth_bytes_per_sec",)),
    Panel("llc-probe", "Cache probe, × calm", ("llc.probe_ratio",)),
    Panel(
        "net",
        "Packets lost or deferred",
        ("net.softnet_dropped_per_sec", "net.nic_dropped_per_sec", "net.softnet_squeezed_per_sec"),
    ),
)

LINES = 4
"""Lines of one panel, at most: that is how many colours there are."""


def latency_panels(services: Iterable[str]) -> tuple[Panel, ...]:
    """Return the charts of the services that are watched, so many lines to one."""
    names = [latency_name(service, P99) for service in services]
    groups = [tuple(names[at : at + LINES]) for at in range(0, len(names), LINES)]
    return tuple(Panel(f"latency-{n}", "Online services: p99", group) for n, group in enumerate(groups))
