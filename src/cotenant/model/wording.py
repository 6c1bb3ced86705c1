"""How numbers and names read to a person: on the page, in ``top``, in sentences."""

from cotenant.model.evaluation import DetectionName

DETECTION_TITLES: dict[DetectionName, str] = {
    "cachePollution": "Cache pollution",
    "ioCongestion": "I/O congestion",
    "memoryPressure": "Memory pressure",
    "cpuContention": "CPU contention",
}

HARD_TITLES = {"psiMemoryFull": "every task waited for memory", "psiIoSome": "tasks waited for the disk"}

UNKNOWN = "–"

_FIELD_TITLES = {
    "cpu_some_ratio": "CPU stall",
    "memory_some_ratio": "memory stall (some)",
    "memory_full_ratio": "memory stall (full)",
    "io_some_ratio": "I/O stall (some)",
    "io_full_ratio": "I/O stall (full)",
    "irq_full_ratio": "interrupt stall",
    "p50_usec": "median",
    "p95_usec": "p95",
    "p99_usec": "p99",
    "p999_usec": "p999",
    "block_p99_usec": "block latency p99",
    "oldest_in_flight_usec": "oldest in flight",
    "queue_p99_usec": "queue p99",
    "device_p99_usec": "device p99",
    "completions": "requests completed",
    "available_ratio": "memory available",
    "page_scan_per_sec": "pages scanned",
    "direct_scan_per_sec": "pages scanned by tasks",
    "refault_per_sec": "refaults",
    "major_fault_per_sec": "major faults",
    "swap_in_per_sec": "swapped in",
    "swap_out_per_sec": "swapped out",
    "oom_kills": "OOM kills",
    "used_ratio": "CPU used",
    "user_ratio": "user",
    "system_ratio": "system",
    "iowait_ratio": "I/O wait",
    "steal_ratio": "steal",
    "irq_ratio": "interrupts",
    "softirq_ratio": "soft interrupts",
    "interrupts_per_sec": "interrupts",
    "softirqs_per_sec": "soft interrupts",
    "run_queue_latency_p95_usec": "run-queue wait p95",
    "run_queue_latency_p99_usec": "run-queue wait p99",
    "run_queue_latency_mean_usec": "run-queue wait, mean",
    "miss_ratio": "LLC miss ratio",
    "mpki": "LLC misses per 1,000 instructions",
    "occupancy_bytes": "LLC occupancy",
    "memory_bandwidth_bytes_per_sec": "memory bandwidth",
    "probe_ratio": "cache probe, × its calm baseline",
    "softnet_dropped_per_sec": "packets dropped by softnet",
    "softnet_squeezed_per_sec": "softnet out of budget",
    "nic_dropped_per_sec": "packets dropped by the NIC",
    "throttled_ratio": "throttled by its own quota",
    "cpu_used_ratio": "CPU used",
    "memory_bytes": "memory",
    "read_bytes_per_sec": "bytes read",
    "write_bytes_per_sec": "bytes written",
    "read_iops": "reads",
    "write_iops": "writes",
    "in_flight": "requests in flight",
    "llc_occupancy_bytes": "LLC occupancy",
    "class": "class",
}

_GROUP_TITLES = {
    "psi": "pressure stall information",
    "block": "block I/O",
    "memory": "memory",
    "cpu": "CPU",
    "llc": "last-level cache",
    "net": "network",
    "online": "online class",
    "offline": "offline class",
    "cgroups": "groups",
    "boot_id": "boot id",
    "period_s": "length of the period",
}


def title_of(name: str) -> str:
    """Return what a signal, field or group such as ``block.p99_usec`` is called; its own name when it is not known."""
    group, _, field = name.rpartition(".")
    if not group:
        return _GROUP_TITLES.get(field, field)
    title = _FIELD_TITLES.get(field, field)
    if group.startswith("latency."):
        return f"{group.removeprefix('latency.')} {title}"
    if group.startswith("block.devices."):
        return f"{group.removeprefix('block.devices.')}: {'latency ' if field[1:3].isdecimal() else ''}{title}"
    if group in ("online", "online.psi"):
        return f"online {title}"
    if group in ("cgroups", "cgroups.psi"):
        return f"some groups: {title}"
    if group in ("offline", "offline.psi"):
        return f"offline {title}"
    if group == "block" and field != "oldest_in_flight_usec":
        return f"block latency {title}" if field.startswith("p") else title
    return title


def inside(title: str) -> str:
    """Return a title as it stands inside a sentence; abbreviations such as CPU and I/O keep their capitals."""
    return title[0].lower() + title[1:] if title[1].islower() else title


def unit_of(name: str) -> str:
    """Return the unit that a field's name ends in: ratio, usec, bytes, bytes_per_sec, per_sec, or a bare number."""
    if name.endswith("probe_ratio"):
        return "times"
    for unit in ("bytes_per_sec", "per_sec", "usec", "bytes", "ratio"):
        if name.endswith(unit):
            return unit
    return "number"


def value_text(name: str, value: float | None) -> str:
    """Return a value of the named signal with its unit, short."""
    if value is None:
        return UNKNOWN
    unit = unit_of(name)
    if unit == "ratio":
        return ratio_text(value)
    if unit == "usec":
        return usec_text(value)
    if unit == "bytes":
        return bytes_text(value)
    if unit == "bytes_per_sec":
        return f"{bytes_text(value)}/s"
    if unit == "times":
        return f"{value:.2f} ×"
    return f"{_number(value)}/s" if unit == "per_sec" else _number(value)


def ratio_text(value: float | None) -> str:
    """Return a ratio of 1 as a percentage."""
    if value is None:
        return UNKNOWN
    percent = value * 100
    return f"{percent:.0f} %" if percent >= 10 or percent == 0 else f"{percent:.1f} %"


def usec_text(value: float | None) -> str:
    """Return a time in microseconds, milliseconds or seconds."""
    if value is None:
        return UNKNOWN
    for limit, divisor, unit in ((1e3, 1.0, "µs"), (1e6, 1e3, "ms")):
        if value < limit:
            return f"{_three_digits(value / divisor)} {unit}"
    return f"{_three_digits(value / 1e6)} s"


def bytes_text(value: float | None) -> str:
    """Return a size in binary units."""
    if value is None:
        return UNKNOWN
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{_three_digits(value)} {unit}"
        value /= 1024
    return f"{_three_digits(value)} TiB"


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
