"""The sample: everything seen on one node in one period, immutable. Contracts §1.

Every field is None where it is unknown, and then :attr:`Sample.missing` says why, for the field or for its group.
Zero always means zero. Ratios are of 1; CPU ratios are of all online CPUs; rates are per second of the period.
"""

from typing import Any, Literal

import msgspec

MissingReason = Literal[
    "no_pmu",
    "no_resctrl",
    "no_bpf",
    "no_btf",
    "no_libbpf",
    "no_class",
    "psi_disabled",
    "permission",
    "not_enabled",
    "not_built",
    "not_running",
    "unsupported",
    "first_sample",
    "too_few",
    "reset",
    "stale",
    "gone",
    "io_error",
    "malformed",
]
"""The closed list of reasons for which a value is unknown."""

CgroupClass = Literal["online", "offline", "system"]
DeviceKind = Literal["nvme", "ssd", "cloud", "spinning"]
BlockSource = Literal["bpf", "diskstats"]
CpuSource = Literal["bpf", "schedstat", "stat"]
LlcSource = Literal["resctrl", "perf", "probe"]


class Psi(msgspec.Struct, frozen=True, kw_only=True):
    """Share of the period in which some or all tasks of the node stalled, from differences of the kernel's totals."""

    cpu_some_ratio: float | None = None
    memory_some_ratio: float | None = None
    memory_full_ratio: float | None = None
    io_some_ratio: float | None = None
    io_full_ratio: float | None = None
    irq_full_ratio: float | None = None


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One lowest-level disk, latencies in microseconds.

    ``p*`` is from when a request was made until it was complete, what its owner waits; ``queue_p99`` and ``device_p99``
    are the parts of it before and after it was issued to the device.
    """

    kind: DeviceKind | None = None
    completions: int | None = None
    p50_usec: float | None = None
    p95_usec: float | None = None
    p99_usec: float | None = None
    queue_p99_usec: float | None = None
    device_p99_usec: float | None = None
    read_iops: float | None = None
    write_iops: float | None = None
    read_bytes_per_sec: float | None = None
    write_bytes_per_sec: float | None = None
    in_flight: int | None = None
    oldest_in_flight_usec: float | None = None


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """All disks together (never dm, md or loop): latencies as of a :class:`Device`.

    ``histogram`` is :meth:`cotenant.units.histogram.Histogram.to_json` of the period's completions in microseconds.
    """

    source: BlockSource | None = None
    completions: int | None = None
    p50_usec: float | None = None
    p95_usec: float | None = None
    p99_usec: float | None = None
    histogram: dict[str, float] | None = None
    devices: dict[str, Device] = {}


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of the node. Scans, refaults and swaps are pages per second; ``oom_kills`` counts within the period.

    What is not ``available`` is used for good; what is not ``free`` is used or holds page cache.
    """

    available_ratio: float | None = None
    free_ratio: float | None = None
    page_scan_per_sec: float | None = None
    direct_scan_per_sec: float | None = None
    refault_per_sec: float | None = None
    major_fault_per_sec: float | None = None
    swap_in_per_sec: float | None = None
    swap_out_per_sec: float | None = None
    oom_kills: int | None = None


class Cpu(msgspec.Struct, frozen=True, kw_only=True):
    """CPU time of the node. ``used`` = user + nice + system + irq + softirq; steal is apart. ``user`` includes nice."""

    source: CpuSource | None = None
    online: int | None = None
    used_ratio: float | None = None
    user_ratio: float | None = None
    system_ratio: float | None = None
    iowait_ratio: float | None = None
    steal_ratio: float | None = None
    irq_ratio: float | None = None
    softirq_ratio: float | None = None
    interrupts_per_sec: float | None = None
    softirqs_per_sec: float | None = None
    run_queue_latency_p95_usec: float | None = None
    run_queue_latency_p99_usec: float | None = None
    run_queue_latency_mean_usec: float | None = None


class Llc(msgspec.Struct, frozen=True, kw_only=True):
    """Last-level cache. ``mpki`` is misses per thousand instructions; ``probe_ratio`` a latency ÷ its calm baseline."""

    source: LlcSource | None = None
    miss_ratio: float | None = None
    mpki: float | None = None
    occupancy_bytes: int | None = None
    memory_bandwidth_bytes_per_sec: float | None = None
    probe_ratio: float | None = None


class Net(msgspec.Struct, frozen=True, kw_only=True):
    """Packets that the node lost or deferred."""

    softnet_dropped_per_sec: float | None = None
    softnet_squeezed_per_sec: float | None = None
    nic_dropped_per_sec: float | None = None


class CgroupPsi(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """As :class:`Psi`, of one group's tasks (for a class: the worst of its groups)."""

    cpu_some_ratio: float | None = None
    memory_some_ratio: float | None = None
    memory_full_ratio: float | None = None
    io_some_ratio: float | None = None
    io_full_ratio: float | None = None


class Online(msgspec.Struct, frozen=True, kw_only=True):
    """The online class: the worst of its groups, except ``cpu_used_ratio``, which is their sum."""

    psi: CgroupPsi = CgroupPsi()
    run_queue_latency_p99_usec: float | None = None
    block_p99_usec: float | None = None
    throttled_ratio: float | None = None
    cpu_used_ratio: float | None = None


class Offline(msgspec.Struct, frozen=True, kw_only=True):
    """The offline class: CPU as a sum, throttling as the worst."""

    cpu_used_ratio: float | None = None
    throttled_ratio: float | None = None


class Cgroup(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One control group. ``throttled_ratio`` = throttled periods ÷ periods, by its own quota.

    ``memory_bytes`` is all that is charged to it, page cache included; ``memory_anon_bytes`` the part that cannot be
    dropped: anonymous, shared and locked memory.
    """

    path: str
    class_: CgroupClass | None = msgspec.field(default=None, name="class")
    name: str | None = None
    cpu_used_ratio: float | None = None
    throttled_ratio: float | None = None
    memory_bytes: int | None = None
    memory_anon_bytes: int | None = None
    refault_per_sec: float | None = None
    major_fault_per_sec: float | None = None
    read_bytes_per_sec: float | None = None
    write_bytes_per_sec: float | None = None
    run_queue_latency_p99_usec: float | None = None
    block_p99_usec: float | None = None
    llc_occupancy_bytes: int | None = None
    psi: CgroupPsi = CgroupPsi()


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One node in one period. ``time`` (RFC 3339, UTC) is the period's end; ``uptime_s`` is CLOCK_BOOTTIME."""

    node: str
    boot_id: str | None = None
    uptime_s: float | None = None
    time: str
    period_s: float | None = None
    psi: Psi = Psi()
    block: Block = Block()
    memory: Memory = Memory()
    cpu: Cpu = Cpu()
    llc: Llc = Llc()
    net: Net = Net()
    online: Online = Online()
    offline: Offline = Offline()
    cgroups: list[Cgroup] = []
    missing: dict[str, MissingReason] = {}


_decoder = msgspec.json.Decoder(Sample)
_encoder = msgspec.json.Encoder()


def encode(sample: Sample) -> bytes:
    """Return the sample as one JSON object without a newline."""
    return _encoder.encode(sample)


def decode(line: bytes | str) -> Sample:
    """Return the sample of one JSON object; absent and null is unknown, keys that we do not know are ignored.

    :raises msgspec.DecodeError: if it is not JSON, or a value has the wrong type.
    """
    try:
        return _decoder.decode(line)
    except msgspec.ValidationError:
        return msgspec.convert(_plain(msgspec.json.decode(line)), Sample)


def _plain(value: Any) -> Any:
    """Return the value without keys that are null, which means the same, and with 130 for 130.0, which JSON may say."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value
