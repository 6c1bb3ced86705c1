"""I/O congestion: online work waits for disks that are slower than their kind should be.

Predicate: the 99th percentile of the time from issue to completion, over the window, is at or past the threshold of
the disk's kind (or 4 times the disk's own long-term p99, whichever is larger), or tasks stall for I/O while latency
is at least half way to that threshold. Latency of the online groups counts first, that of all disks stands in.
Units: microseconds; shares of the period. Source: eBPF on the block layer, PSI.
A stall beside fast disks does not count: one sequential reader keeps `io some` at 0.7 and hurts nobody. Reads of pages
that were evicted a moment ago are memory pressure, not congestion: they are taken out by their share of all traffic.
Blind spots: network file systems; time spent in a dm or md layer above the disks; pages larger than 4 KiB make the
share too small. Without eBPF only in-flight ÷ IOPS is known of latency, by which PSI alone is judged, and that a disk
hangs.
A false positive keeps work away from a healthy node and throttles an offline job that hurts nobody.
"""

from collections.abc import Mapping

from cotenant.detect import registry, rules
from cotenant.model import sample

MIB = 1024 * 1024

CLOUD_USEC = 30_000
DEVICE_THRESHOLDS_USEC: Mapping[sample.DeviceKind, int] = {
    "nvme": 2_000,
    "ssd": 10_000,
    "cloud": CLOUD_USEC,
    "spinning": 150_000,
}
"""p99 at which a disk of each kind is slow; a disk of unknown kind is held to ``cloud``."""

OWN_P99_FACTOR = 4.0
"""A disk is slow only at this many times its own long-term p99: one that is always slow has no incident."""

NORMAL_FACTOR = 0.25
SATURATION_FACTOR = 5.0
"""Five times the threshold fills a tenth of a 10 s mean to the threshold in 2 s: detected within 3."""


def _not_refaulted(view: registry.View) -> float:
    share = view.refault_share()
    return 1.0 if share is None else 1.0 - share


def _beside_latency(view: registry.View) -> float | None:
    share = view.latency_share()
    if share is None:
        return None
    return min(max(share, 0.0), 1.0) * _not_refaulted(view)


def _bytes_per_sec(group: sample.Cgroup) -> float | None:
    if group.read_bytes_per_sec is None and group.write_bytes_per_sec is None:
        return None
    return (group.read_bytes_per_sec or 0.0) + (group.write_bytes_per_sec or 0.0)


def _node_bytes_per_sec(taken: sample.Sample) -> float | None:
    rates = [
        rate
        for device in taken.block.devices.values()
        for rate in (device.read_bytes_per_sec, device.write_bytes_per_sec)
        if rate is not None
    ]
    return sum(rates) if rates else None


def _by_device(signal: str) -> rules.SignalRule:
    return rules.SignalRule(
        signal=signal,
        normal=CLOUD_USEC * NORMAL_FACTOR,
        threshold=CLOUD_USEC,
        saturation=CLOUD_USEC * SATURATION_FACTOR,
        scale="device",
        condition="not-refaulted",
        reason="by the disk's kind: NVMe 2 ms, SSD 10 ms, cloud disk 30 ms, spinning 150 ms, or 4 × its own long-term "
        "p99 if that is larger; normal is a quarter of it, saturation five times it",
    )


def _psi_io(signal: str, normal: float, threshold: float) -> rules.SignalRule:
    return rules.SignalRule(
        signal=signal,
        normal=normal,
        threshold=threshold,
        saturation=1.0,
        condition="beside-latency",
        reason="says how much work waits; counts only beside latency, since waiting alone is what reading looks like",
    )


DETECTOR = registry.register(
    registry.Detector(
        name="ioCongestion",
        title="I/O congestion",
        doc=__doc__,
        presets={
            "default": rules.DetectionRule(
                weight=0.3,
                signals=(_by_device("online.block_p99_usec"), _psi_io("online.psi.io_some_ratio", 0.05, 0.2)),
                fallback_signals=(_by_device("block.p99_usec"), _psi_io("psi.io_some_ratio", 0.1, 0.2)),
            ),
            "mco": rules.DetectionRule(
                weight=0.3,
                signals=(
                    rules.SignalRule("block.p95_usec", 2_000, 10_000, 50_000, reason="block I/O latency P95"),
                    rules.SignalRule("block.p99_usec", 5_000, 20_000, 100_000, reason="block I/O latency P99"),
                    rules.SignalRule("psi.io_some_ratio", 0.1, 0.3, 0.6, reason="saturates at MCO's hard limit"),
                ),
            ),
        },
        conditions={
            "not-refaulted": registry.Condition(
                text="less the share of reads that were refaults",
                needs=("memory.refault_per_sec",),
                factor=_not_refaulted,
            ),
            "beside-latency": registry.Condition(
                text="only beside latency: from normal (not) to the threshold (in full), less the share of refaults",
                needs=("memory.refault_per_sec",),
                factor=_beside_latency,
            ),
        },
        uses=(registry.Measure("block I/O", "B/s", _bytes_per_sec, least=MIB, total=_node_bytes_per_sec),),
        stalls=(
            registry.Measure("I/O stall", "ratio", lambda group: group.psi.io_some_ratio, least=0.05),
            registry.Measure("block p99", "usec", lambda group: group.block_p99_usec, least=5_000),
        ),
    )
)
