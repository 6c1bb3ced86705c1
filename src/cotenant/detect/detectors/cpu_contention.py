"""CPU contention: online work waits for a CPU, or its CPUs are taken by a hypervisor or by soft interrupts.

Predicate: over the window, the p99 of an online group's waits for a CPU, or the share of time in which one of its
tasks waits, is at or past the threshold; or steal or soft interrupts take a share of all CPUs past theirs. Node-wide
waits stand in where no class is known.
Units: microseconds; shares of the period; shares of all CPUs. Source: eBPF or schedstat, PSI, /proc/stat.
How busy the CPUs are is no sign: a node filled by SCHED_IDLE work beside calm online work is a success. Waiting
because the group's own quota is used up is throttling by its own limit, and is taken out.
Blind spots: SMT siblings that share a core without any queue; a hypervisor that does not report steal; one CPU of many
that drowns in soft interrupts.
A false positive keeps work away from a node with CPU to spare and holds offline work back for nothing.
"""

from cotenant.detect import registry, rules

THROTTLED_OUT_RATIO = 0.1
"""From this share of throttled periods on, a group's waiting is its own quota's."""


def _not_throttled(view: registry.View) -> float:
    throttled = view.mean("online.throttled_ratio")
    return 1.0 if throttled is None else max(0.0, 1.0 - throttled / THROTTLED_OUT_RATIO)


def _steal(supporting: bool) -> rules.SignalRule:
    return rules.SignalRule(
        "cpu.steal_ratio",
        0.02,
        0.1,
        0.5,
        supporting=supporting,
        reason="a tenth of all CPU time is gone whoever asked for it; a few hundredths are common on clouds",
    )


def _softirq(supporting: bool) -> rules.SignalRule:
    return rules.SignalRule(
        "cpu.softirq_ratio",
        0.05,
        0.2,
        1.0,
        supporting=supporting,
        reason="a fifth of all CPUs is beyond a busy network service's own share",
    )


DETECTOR = registry.register(
    registry.Detector(
        name="cpuContention",
        title="CPU contention",
        doc=__doc__,
        presets={
            "default": rules.DetectionRule(
                weight=0.2,
                signals=(
                    rules.SignalRule(
                        "online.run_queue_latency_p99_usec",
                        2_000,
                        8_000,
                        40_000,
                        reason="two time slices of a neighbour; who preempts offline work waits well under one",
                    ),
                    rules.SignalRule(
                        "online.psi.cpu_some_ratio",
                        0.05,
                        0.2,
                        1.0,
                        condition="not-throttled",
                        reason="a fifth of the time somebody waits; saturation five times it, to be seen in 3 s",
                    ),
                    _steal(supporting=True),
                    _softirq(supporting=True),
                ),
                fallback_signals=(
                    rules.SignalRule(
                        "cpu.run_queue_latency_p99_usec",
                        5_000,
                        20_000,
                        100_000,
                        reason="looser than the online class's: offline work is meant to wait",
                    ),
                    rules.SignalRule(
                        "psi.cpu_some_ratio",
                        0.3,
                        0.5,
                        1.0,
                        reason="a node in good use has some task waiting a third of the time",
                    ),
                    _steal(supporting=False),
                    _softirq(supporting=False),
                ),
            ),
            "mco": rules.DetectionRule(enabled=False, weight=0.0),
        },
        conditions={
            "not-throttled": registry.Condition(
                text="less what the group's own quota explains",
                needs=("online.throttled_ratio",),
                factor=_not_throttled,
            ),
        },
        uses=(
            registry.Measure(
                "CPU", "ratio", lambda group: group.cpu_used_ratio, least=0.05, total=lambda taken: taken.cpu.used_ratio
            ),
        ),
        stalls=(
            registry.Measure("run-queue p99", "usec", lambda group: group.run_queue_latency_p99_usec, least=2_000),
            registry.Measure("CPU stall", "ratio", lambda group: group.psi.cpu_some_ratio, least=0.05),
        ),
    )
)
