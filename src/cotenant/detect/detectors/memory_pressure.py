"""Memory pressure: online work waits for memory, or for pages that it had and lost.

Predicate: over the window, tasks of online groups stall for memory at or past the threshold; or pages are read again
soon after they were evicted, at a rate past the threshold, make up at least half of what the disks read, and somebody
who counts stalls for I/O or memory. Node-wide stalls stand in where no class is known, and where PSI is missing
MemAvailable and the rate of direct reclaim do.
Units: shares of the period; pages per second; share of memory. Source: PSI, /proc/vmstat, /proc/meminfo.
A node whose memory is merely full is not under pressure; a working set larger than its limit shows as I/O stall, and is
named here, not as I/O congestion.
Blind spots: reclaim inside a group's limit is not in the node's scan rates; re-reading one large file in a loop looks
like a lost working set.
A false positive keeps work away from a node and reclaims from an offline job that has what it needs.
"""

from cotenant.detect import registry, rules
from cotenant.model import sample

STALL_FULL_RATIO = 0.2
"""An I/O or memory stall of this share counts in full beside refaults."""

_ONLINE = ("online.psi.io_some_ratio", "online.psi.memory_some_ratio")
_NODE = ("psi.io_some_ratio", "psi.memory_some_ratio")


def _beside_stall(view: registry.View) -> float | None:
    share = view.refault_share()
    if share is None:
        return None
    stalls = [s for name in _ONLINE if (s := view.mean(name)) is not None]
    stalls = stalls or [s for name in _NODE if (s := view.mean(name)) is not None]
    if not stalls:
        return None
    return share * min(max(stalls) / STALL_FULL_RATIO, 1.0)


def _without_psi(view: registry.View) -> float:
    return 1.0 if view.mean("psi.memory_some_ratio") is None else 0.0


def _refaults_per_sec(group: sample.Cgroup) -> float | None:
    if group.refault_per_sec is None and group.major_fault_per_sec is None:
        return None
    return max(group.refault_per_sec or 0.0, group.major_fault_per_sec or 0.0)


def _memory_bytes(group: sample.Cgroup) -> float | None:
    return group.memory_bytes


_SOME = "a tenth of the time waiting for memory is felt by any request path; calm services show under a hundredth"
_FULL = "nobody makes progress: felt at once, so a twentieth is enough"

DETECTOR = registry.register(
    registry.Detector(
        name="memoryPressure",
        title="Memory pressure",
        doc=__doc__,
        presets={
            "default": rules.DetectionRule(
                weight=0.3,
                signals=(
                    rules.SignalRule("online.psi.memory_some_ratio", 0.02, 0.1, 0.5, reason=_SOME),
                    rules.SignalRule("online.psi.memory_full_ratio", 0.01, 0.05, 0.25, reason=_FULL),
                    rules.SignalRule(
                        "memory.refault_per_sec",
                        200,
                        1_000,
                        5_000,
                        condition="beside-stall",
                        supporting=True,
                        reason="4 MB/s of pages read twice; tells a lost working set from a slow disk",
                    ),
                ),
                fallback_signals=(
                    rules.SignalRule("psi.memory_some_ratio", 0.02, 0.1, 0.5, reason=_SOME),
                    rules.SignalRule("psi.memory_full_ratio", 0.01, 0.05, 0.25, reason=_FULL),
                    rules.SignalRule(
                        "memory.available_ratio",
                        0.1,
                        0.05,
                        0.02,
                        condition="without-psi",
                        reason="stands in for PSI: below a twentieth reclaim is near",
                    ),
                    rules.SignalRule(
                        "memory.direct_scan_per_sec",
                        1_000,
                        10_000,
                        50_000,
                        condition="without-psi",
                        reason="stands in for PSI: tasks reclaim for themselves only when memory is short",
                    ),
                ),
            ),
            "mco": rules.DetectionRule(
                weight=0.3,
                signals=(
                    rules.SignalRule("psi.memory_some_ratio", 0.05, 0.1, 0.5, reason="PSI memory"),
                    rules.SignalRule("psi.memory_full_ratio", 0.0, 0.01, 0.1, reason="MCO's hard limit is any at all"),
                ),
                fallback_signals=(
                    rules.SignalRule("memory.available_ratio", 0.2, 0.1, 0.05, reason="MCO's stand-in for PSI"),
                    rules.SignalRule(
                        "memory.page_scan_per_sec", 1_000, 10_000, 100_000, reason="MCO's stand-in for PSI"
                    ),
                ),
            ),
        },
        conditions={
            "beside-stall": registry.Condition(
                text="by the share of reads that are refaults, and only beside a stall for I/O or memory",
                needs=(*_ONLINE, *_NODE),
                factor=_beside_stall,
            ),
            "without-psi": registry.Condition(
                text="only where psi.memory_some_ratio is unknown",
                needs=("psi.memory_some_ratio",),
                factor=_without_psi,
            ),
        },
        uses=(
            registry.Measure("refaults", "pages/s", _refaults_per_sec, least=100),
            registry.Measure("memory growth", "B", _memory_bytes, least=64 * 1024 * 1024, growth=True),
        ),
        stalls=(
            registry.Measure("memory stall", "ratio", lambda group: group.psi.memory_some_ratio, least=0.02),
            registry.Measure("I/O stall", "ratio", lambda group: group.psi.io_some_ratio, least=0.05),
        ),
    )
)
