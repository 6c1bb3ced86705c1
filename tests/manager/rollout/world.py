"""Nodes and agents that are not there, for trying the state machine: labels, reports, and a clock that a test moves."""

import copy
import dataclasses
from typing import Any

import msgspec

from cotenant.api.marks import MODE_LABEL
from cotenant.api.report import AgentCounts, NodeCheck, NodeFacts
from cotenant.api.rollout import ColocationRollout, Meta, Spec
from cotenant.manager.rollout import machine, view
from cotenant.manager.rollout.holding import hold_of, holding_patch, release_patch
from cotenant.manager.rollout.view import NodeView
from cotenant.model.latency import P99, Quantile, ServiceLatency

UID = "uid-1"


@dataclasses.dataclass
class Agent:
    """What one node's agent says of itself; None of ``mode``: no report."""

    mode: str | None = "observe"
    interface: str = "mainline-idle"
    level: float | None = 0.05
    heard: bool = True
    check: NodeCheck | None = dataclasses.field(default_factory=lambda: NodeCheck(irreversible=False))
    counts: AgentCounts | None = dataclasses.field(default_factory=lambda: AgentCounts(started_at="s1"))
    problems: list[str] = dataclasses.field(default_factory=list)
    obeys: bool = True


class World:
    """A cluster with one rollout. ``nodes`` are Node objects as the API server holds them."""

    def __init__(self, spec: dict[str, Any], names: list[str], labels: dict[str, dict[str, str]] | None = None) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self.agents: dict[str, Agent] = {}
        self.version = 0
        self.wall = 1_800_000_000.0
        self.latencies: dict[str, float | None] = {}
        self.beyond: frozenset[str] = frozenset()
        """Services whose latency is at least what :attr:`latencies` says."""
        self.target = view.TargetState()
        self.others: frozenset[str] = frozenset()
        self.events: list[machine.Event] = []
        for name in names:
            self.add(name, (labels or {}).get(name))
        self.rollout = ColocationRollout(
            metadata=Meta(name="r", uid=UID, generation=1), spec=msgspec.convert(spec, Spec)
        )

    def add(self, name: str, labels: dict[str, str] | None = None) -> None:
        self.nodes[name] = {"metadata": {"name": name, "labels": dict(labels or {}), "annotations": {}}}
        self.agents[name] = Agent()
        self._written(name)

    def _written(self, name: str) -> None:
        self.version += 1
        self.nodes[name]["metadata"]["resourceVersion"] = str(self.version)

    def label(self, name: str, key: str, value: str | None) -> None:
        """Change a label as a person would."""
        labels = self.nodes[name]["metadata"]["labels"]
        if value is None:
            labels.pop(key, None)
        else:
            labels[key] = value
        self._written(name)

    def edit(self, **changes: Any) -> None:
        """Change fields of the spec, by their names in Python."""
        self.rollout = msgspec.structs.replace(self.rollout, spec=msgspec.structs.replace(self.rollout.spec, **changes))

    def views(self) -> list[NodeView]:
        return [self.view(name) for name in self.nodes]

    def view(self, name: str) -> NodeView:
        metadata, agent = self.nodes[name]["metadata"], self.agents[name]
        try:
            hold, damaged = hold_of(metadata["annotations"]), False
        except ValueError:
            hold, damaged = None, True
        facts = None
        if agent.mode is not None:
            facts = NodeFacts(
                mode=agent.mode,  # type: ignore[arg-type]
                priority_interface=agent.interface,
                check=agent.check,
                counts=agent.counts,
                problems=agent.problems,
            )
        return NodeView(
            name=name,
            labels=dict(metadata["labels"]),
            hold=hold,
            damaged=damaged,
            interface=agent.interface if facts is not None else None,
            facts=facts,
            heard=agent.heard,
            level=agent.level if facts is not None else None,
        )

    def decide(self, elapsed: float) -> machine.Step:
        observed = view.Observed(
            wall=self.wall,
            latencies=[
                ServiceLatency(
                    service=name,
                    source="prometheus",
                    quantiles=(Quantile(quantile=P99, seconds=seconds, at_least=name in self.beyond),),
                )
                for name, seconds in self.latencies.items()
            ],
            target=self.target,
            others=self.others,
        )
        return machine.step(self.rollout, self.views(), observed, elapsed)

    def keep(self, step: machine.Step) -> None:
        """Write the status, by the way of JSON, as an API server would keep it."""
        status = msgspec.json.decode(msgspec.json.encode(step.status), type=type(step.status))
        self.rollout = msgspec.structs.replace(self.rollout, status=status)
        self.events += step.events

    def act(self, step: machine.Step, at_most: int = 10_000) -> list[str]:
        """Do what a step asks for, or only so much of it, and return the nodes that were changed."""
        done: list[str] = []
        for name, hold in step.hold[:at_most]:
            if self._merge(name, holding_patch(self.nodes[name], hold)):
                done.append(name)
        for name in step.release[:at_most]:
            self._merge(name, release_patch(self.nodes[name], UID))
        for name in step.finish[:at_most]:
            self._merge(name, release_patch(self.nodes[name], UID, keep=frozenset({MODE_LABEL})))
        return done

    def _merge(self, name: str, patch: dict[str, Any] | None) -> bool:
        if patch is None:
            return False
        metadata = self.nodes[name]["metadata"]
        assert patch["metadata"]["resourceVersion"] == metadata["resourceVersion"]
        for part in ("labels", "annotations"):
            for key, value in patch["metadata"].get(part, {}).items():
                if value is None:
                    metadata[part].pop(key, None)
                else:
                    metadata[part][key] = value
        self._written(name)
        return True

    def obey(self) -> None:
        """Have each agent that obeys take the mode of its node's label."""
        for name, agent in self.agents.items():
            if agent.obeys and agent.mode is not None:
                agent.mode = self.nodes[name]["metadata"]["labels"].get(MODE_LABEL, "observe")

    def tick(self, seconds: float = 10.0) -> machine.Step:
        """Let time pass: agents obey, one step is decided, kept and done."""
        self.wall += seconds
        self.obey()
        step = self.decide(seconds)
        self.keep(step)
        self.act(step)
        return step

    def run(self, ticks: int, seconds: float = 10.0) -> None:
        for _ in range(ticks):
            self.tick(seconds)

    @property
    def phase(self) -> str:
        return self.rollout.status.phase

    def changed(self) -> set[str]:
        return {view.name for view in self.views() if view.hold is not None}

    def labels(self) -> dict[str, dict[str, str]]:
        return copy.deepcopy({name: node["metadata"]["labels"] for name, node in self.nodes.items()})

    def reasons(self) -> list[str]:
        return [event.reason for event in self.events]
