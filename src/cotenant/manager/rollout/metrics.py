"""What rollouts tell Prometheus. Series are bounded by the number of rollouts under way; ended ones have none."""

from collections.abc import Iterator
from typing import Protocol

from prometheus_client import core, registry

from cotenant.api.rollout import PHASES, TERMINAL, ColocationRollout
from cotenant.manager.rollout.writing import NodeWriter

MAX_ROLLOUTS = 50


class Told(Protocol):
    """Whose numbers these are."""

    rollouts: dict[str, ColocationRollout]
    writer: NodeWriter
    malformed: int
    failures: int
    broken: int


class RolloutCollector(registry.Collector):
    """Reads the controller when asked."""

    def __init__(self, told: Told) -> None:
        self._told = told

    def collect(self) -> Iterator[core.Metric]:
        told, gauge, counter = self._told, core.GaugeMetricFamily, core.CounterMetricFamily
        phases = gauge("cotenant_rollouts", "Rollouts, by phase.", labels=["phase"])
        for phase in PHASES:
            phases.add_metric([phase], sum(one.status.phase == phase for one in told.rollouts.values()))
        yield phases
        under_way = [one for _, one in sorted(told.rollouts.items()) if one.status.phase not in TERMINAL][:MAX_ROLLOUTS]
        nodes = gauge("cotenant_rollout_nodes", "Nodes that a rollout is about.", labels=["rollout"])
        changed = gauge("cotenant_rollout_changed_nodes", "Nodes that it has changed.", labels=["rollout"])
        passing = gauge(
            "cotenant_rollout_gate_passing", "1 passing, 0 failing; absent: unknown.", labels=["rollout", "gate"]
        )
        for one in under_way:
            nodes.add_metric([one.metadata.name], one.status.nodes)
            changed.add_metric([one.metadata.name], one.status.changed)
            for gate in one.status.gates:
                if gate.state in ("passing", "failing"):
                    passing.add_metric([one.metadata.name, gate.name], float(gate.state == "passing"))
        yield from (nodes, changed, passing)
        counts = told.writer.counts
        writes = counter("cotenant_rollout_node_writes", "Writes to nodes, by what for.", labels=["what"])
        for what, value in (("change", counts.changed), ("put_back", counts.released), ("let_go", counts.finished)):
            writes.add_metric([what], value)
        yield writes
        yield counter("cotenant_rollout_node_conflicts", "Repeated: others wrote first.", value=counts.conflicts)
        failures = counts.failures + told.failures
        yield counter("cotenant_rollout_failures", "Requests that failed.", value=failures)
        yield counter("cotenant_rollout_broken_ticks", "Ticks that broke; see the log.", value=told.broken)
        yield counter("cotenant_rollout_malformed", "Rollouts that could not be read.", value=told.malformed)
