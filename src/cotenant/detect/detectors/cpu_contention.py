"""CPU contention: online work waits for a CPU, or its CPUs are taken by a hypervisor or by soft interrupts.

Predicate: over the window, the p99 of an online group's waits for a CPU, or the share of time in which one of its
tasks waits, is at or past the threshold; or steal or soft interrupts take a share of all CPUs past theirs. Node-wide
waits stand in where no class is known.
Units: microseconds; shares of the period; shares of all CPUs. Source: eBPF or schedstat, PSI, /proc/stat.
How busy the CPUs are is no sign: a node filled by SCHED_IDLE work beside calm online work is a success. Waiting
because the group's own quota is used up is throttling by its own limit, and is taken out; so is waiting while online
work is nearly all that runs, since then it waits for itself.
Blind spots: SMT siblings that share a core without any queue; a hypervisor that does not report steal; one CPU of many
that drowns in soft interrupts.
A false positive keeps work away from a node with CPU to spare and holds offline work back for nothing.
"""

from cotenant.detect import registry, rules

THROTTLED_OUT_RATIO = 0.1
"""From this share of throttled periods on, a group's waiting is its own quota's."""
OTHERS_RATIO = (0.2, 0.4)
"""Online work waits for itself while less than the first of all CPU time taken is others', for others from the second
on; what a hypervisor steals is others'."""


def _not_its_own(view: registry.View) -> float:
    throttled = view.mean("online.throttled_ratio")
    factor = 1.0 if throttled is None else max(0.0, 1.0 - throttled / THROTTLED_OUT_RATIO)
    used, own = view.mean("cpu.used_ratio"), view.mean("online.cpu_used_ratio")
    if used is None or own is None:
        return factor
    taken = max(used, own) + (view.mean("cpu.steal_ratio") or 0.0)
    if taken <= 0:
        return factor
    least, whole = OTHERS_RATIO
    return factor * min(max((1.0 - own / taken - least) / (whole - least), 0.0), 1.0)


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
        0.15,
        0.75,
        supporting=supporting,
        reason="a seventh of all CPUs is beyond a busy network service's own share; who floods takes as much to send, "
        "so that three quarters are as far as it goes",
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
                        0.18,
                        0.9,
                        condition="not-its-own",
                        reason="nearly a fifth of the time somebody waits; saturation is five times it, to be seen in "
                        "3 s, and a tenth below what no kernel shows, since who waits always also runs a little",
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
            "not-its-own": registry.Condition(
                text="less what the group's own quota explains, and only where others take at least a fifth of the CPU "
                "time that is taken (in full from two fifths on)",
                needs=("online.throttled_ratio", "online.cpu_used_ratio", "cpu.used_ratio", "cpu.steal_ratio"),
                factor=_not_its_own,
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
