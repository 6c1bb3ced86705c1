"""Cache pollution: the last-level cache is flushed by somebody, so that others wait for memory.

Predicate: over the window, the share of cache references that miss, the misses per thousand instructions, or the
time of a pointer chase relative to its own calm baseline is at or past the threshold.
Units: shares; misses per thousand instructions; times the calm latency. Source: resctrl, perf events, or the probe.
Nothing here is per class: the kernel cannot say whose lines were evicted, only who holds how many (resctrl). A miss
ratio counts in full only when the cache is used (10 misses per thousand instructions, where that is known).
Blind spots: most virtual machines have neither PMU nor resctrl; the probe sees the cache of the CPU that it runs on.
A false positive keeps work away from a node whose work merely streams through memory.
"""

from cotenant.detect import registry, rules

USED_MPKI = 10.0


def _cache_used(view: registry.View) -> float:
    mpki = view.mean("llc.mpki")
    return 1.0 if mpki is None else min(mpki / USED_MPKI, 1.0)


DETECTOR = registry.register(
    registry.Detector(
        name="cachePollution",
        title="Cache pollution",
        doc=__doc__,
        presets={
            "default": rules.DetectionRule(
                weight=0.2,
                signals=(
                    rules.SignalRule(
                        "llc.miss_ratio",
                        0.3,
                        0.5,
                        0.9,
                        condition="cache-used",
                        reason="half of what asks the last-level cache goes to memory",
                    ),
                    rules.SignalRule(
                        "llc.mpki", 5, 20, 100, reason="twenty misses cost about as much as the work itself"
                    ),
                    rules.SignalRule(
                        "llc.probe_ratio",
                        1.3,
                        1.7,
                        5.0,
                        reason="a chase takes 1.7 to 5 times its calm time beside a cache hog, 1.0 beside a CPU hog",
                    ),
                ),
            ),
            "mco": rules.DetectionRule(
                weight=0.4,
                signals=(rules.SignalRule("llc.miss_ratio", 0.3, 0.5, 0.9, reason="LLC miss rate"),),
            ),
        },
        conditions={
            "cache-used": registry.Condition(
                text="in full from 10 misses per thousand instructions on, where that is known",
                needs=("llc.mpki",),
                factor=_cache_used,
            ),
        },
        uses=(registry.Measure("LLC occupancy", "B", lambda group: group.llc_occupancy_bytes, least=1024 * 1024),),
        stalls=(),
    )
)
