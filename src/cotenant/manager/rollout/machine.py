"""The state machine of a rollout: what it is now, what is seen, how long that was watched → what to do, and what it is
then. Pure: no clock, no API server, no memory of its own. All that it must remember is in the object's status and on
the nodes, so that a manager that starts anew goes on where the last one was.

Invariants (tests/manager/rollout/test_machine.py): no node is changed while a gate fails or is unknown, while the
rollout is paused, or before every earlier stage has soaked; time that nobody watched does not count; a node is changed
at most once; a rollback touches only labels that still have the value that was set.
"""

import dataclasses
from collections.abc import Sequence
from typing import Literal

import msgspec

from cotenant.api import timestamp
from cotenant.api.report import Condition
from cotenant.api.rollout import (
    ColocationRollout,
    OnStop,
    Phase,
    ServiceBefore,
    StageStatus,
    Status,
    Stop,
    labels_of,
)
from cotenant.manager.rollout import conditions, counting, entry, gates, membership
from cotenant.manager.rollout.holding import Hold
from cotenant.manager.rollout.view import NodeView, Observed

Target = Literal["prepare", "promote", "discard"]


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """Something to tell people, once."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """What to do now. ``hold`` changes nodes, ``release`` puts them back, ``finish`` leaves them as they are."""

    status: Status
    hold: tuple[tuple[str, Hold], ...] = ()
    release: tuple[str, ...] = ()
    finish: tuple[str, ...] = ()
    target: Target | None = None
    events: tuple[Event, ...] = ()


def step(rollout: ColocationRollout, nodes: Sequence[NodeView], observed: Observed, elapsed_seconds: float) -> Step:
    """Return what comes next. ``elapsed_seconds``: how long the rollout was watched since the last step; 0 at first."""
    return _Machine(rollout, nodes, observed, elapsed_seconds).step()


def under_way(rollout: ColocationRollout, nodes: Sequence[NodeView]) -> list[str]:
    """Return the nodes of the stage that is under way; empty when none is."""
    passed = {stage.name for stage in rollout.status.stages if stage.passed}
    names = [stage.name for stage in rollout.spec.stages]
    index = next((index for index, name in enumerate(names) if name not in passed), None)
    selected = [node for node in nodes if membership.matches(rollout.spec.node_selector, node.labels)]
    stages = membership.assign(rollout.spec.stages, selected, rollout.metadata.uid)
    return sorted(name for name, stage in stages.items() if stage == index)


class _Machine:
    def __init__(
        self, rollout: ColocationRollout, nodes: Sequence[NodeView], observed: Observed, elapsed_seconds: float
    ) -> None:
        self._name, self._uid = rollout.metadata.name, rollout.metadata.uid
        self._spec = spec = rollout.spec
        self._old = rollout.status
        self._generation = rollout.metadata.generation
        self._observed = observed
        self._elapsed = elapsed_seconds
        self._nodes = [
            node for node in nodes if membership.matches(spec.node_selector, node.labels) or self._held(node)
        ]
        self._stage_of = membership.assign(spec.stages, self._nodes, self._uid)
        self._changed = [node for node in self._nodes if self._held(node) and not node.overridden]
        self._entries = {
            node.name: entry.judge(rollout, node, observed.others)
            for node in self._nodes
            if node.name in self._stage_of and not self._held(node)
        }
        self._stages = counting.stages(rollout, self._nodes, self._stage_of, self._entries)
        self._gates = self._old.gates
        self._events: list[Event] = []

    def _held(self, node: NodeView) -> bool:
        return node.hold is not None and node.hold.uid == self._uid

    def step(self) -> Step:
        old, spec = self._old, self._spec
        if old.phase == "Completed" or (old.phase == "RolledBack" and (spec.abort or spec.attempt <= old.attempt)):
            return Step(old)
        if old.phase == "Finishing":
            return self._finishing()
        if old.phase == "RollingBack":
            return self._rolling_back(old.stopped or Stop(attempt=old.attempt, reason="Aborted"))
        if spec.abort:
            return self._stop("rollback", "Aborted", "spec.abort is set")
        if spec.attempt > old.attempt:
            self._resume()
        elif old.stopped is not None:
            return self._resting("Paused", old.stopped.message, old.stopped)
        wanted = labels_of(spec.change, self._name)
        if any(node.hold.set != wanted for node in self._nodes if node.hold is not None and self._held(node)):
            return self._stop("pause", "ChangeEdited", "nodes were changed to something else; put spec.change back")
        if self._observed.target.problem:
            return self._stop(spec.stopping.on_failure, "ChangeFailed", self._observed.target.problem)
        self._judge()
        if spec.paused:
            return self._resting("Paused", "spec.paused is set")
        return self._progressing()

    def _resume(self) -> None:
        """A new attempt: what has passed stays passed, unless all was taken back."""
        old = self._old
        afresh = old.phase == "RolledBack"
        stages = [
            msgspec.structs.replace(
                stage,
                passed=stage.passed and not afresh,
                soaked_seconds=0.0,
                stuck_seconds=0.0,
                latency_before=[] if afresh else stage.latency_before,
            )
            for stage in self._stages
        ]
        self._stages = stages
        self._old = msgspec.structs.replace(
            old, phase="Pending" if afresh else "Progressing", attempt=self._spec.attempt, stopped=None, gates=[]
        )
        self._gates = []
        self._tell("Normal", "Resumed", f"attempt {self._spec.attempt}")

    def _judge(self) -> None:
        """Ask the gates, and add up for how long each is failing or unknown."""
        now, beyond = self._latency_now()
        latency = gates.Latency(now, self._latency_before(), beyond)
        results = gates.evaluate(
            self._spec.gates,
            self._changed,
            latency,
            self._spec.stopping.max_unknown_share,
            self._observed.wall,
        )
        self._gates = gates.lasting(results, self._old.gates, self._elapsed)

    def _latency_now(self) -> tuple[dict[str, float], frozenset[str]]:
        gate = self._spec.gates.online_latency
        return gates.measured(gate, self._observed.latencies) if gate is not None else ({}, frozenset())

    def _latency_before(self) -> dict[str, float]:
        index = self._index()
        return {} if index is None else {one.service: one.seconds for one in self._stages[index].latency_before}

    def _index(self) -> int | None:
        """Return the stage that is under way, or None when all have passed."""
        return next((index for index, stage in enumerate(self._stages) if not stage.passed), None)

    def _progressing(self) -> Step:
        stopping = self._spec.stopping
        for state, seconds, action in (
            ("failing", stopping.fail_seconds, stopping.on_failure),
            ("unknown", stopping.unknown_seconds, stopping.on_unknown),
        ):
            over = [gate for gate in self._gates if gate.state == state and gate.for_seconds >= seconds]
            if over:
                reason = "GateFailed" if state == "failing" else "GateUnknown"
                text = "; ".join(f"{gate.name} {state} for {gate.for_seconds:.0f} s: {gate.message}" for gate in over)
                return self._stop(action, reason, text)
        if not self._observed.target.ready:
            return self._resting("Pending", self._observed.target.message, target="prepare")
        index = self._index()
        if index is None:
            return self._finishing()
        clear = all(gate.state in ("passing", "idle") for gate in self._gates)
        return self._in_stage(index, clear)

    def _in_stage(self, index: int, clear: bool) -> Step:
        stage, spec = self._stages[index], self._spec.stages[index]
        gate = self._spec.gates.online_latency
        if gate is not None and gate.max_increase_ratio is not None and not stage.latency_before and not stage.changed:
            now, beyond = self._latency_now()
            before = {service: seconds for service, seconds in now.items() if service not in beyond}
            if not gates.before_is_known(gate, before):
                return self._stuck(index, "waiting for the latency from before the change")
            kept = [ServiceBefore(service=name, seconds=before[name]) for name in sorted(before)[: gates.MAX_SERVICES]]
            stage = self._put(index, latency_before=kept)
        hold = self._next(index) if clear and self._observed.settled else ()
        if stage.nodes == 0:
            if any(membership.selects(spec, node) for node in self._nodes):
                return self._passed(index, "its nodes are in earlier stages")
            if spec.optional:
                return self._passed(index, "it has no node")
            return self._stuck(index, "it has no node", hold)
        if hold or not self._observed.settled or self._ready(index):
            return self._moving(index, hold, clear)
        missing = stage.nodes - stage.confirmed
        if missing > self._spec.entry.max_left_out_share * stage.nodes + 1e-9:
            left_out = stage.waiting + stage.refused + stage.overridden
            unconfirmed = stage.changed - stage.confirmed
            text = f"{left_out} of its {stage.nodes} nodes are left out, {unconfirmed} have not confirmed the change"
            return self._stuck(index, text)
        return self._soaking(index, clear)

    def _next(self, index: int) -> tuple[tuple[str, Hold], ...]:
        """Return the nodes to change now: of this stage and of earlier ones, no more than may be unconfirmed."""
        unconfirmed = sum(node.confirmed is not True for node in self._changed)
        room = self._spec.entry.max_unconfirmed - unconfirmed
        if room <= 0:
            return ()
        views = {node.name: node for node in self._nodes}
        return tuple((name, self._hold(views[name])) for name in self._ready(index)[:room])

    def _ready(self, index: int) -> list[str]:
        """Return the nodes of this stage and of earlier ones that are to be changed, in order."""
        return sorted(
            (name for name, verdict in self._entries.items() if verdict.ready and self._stage_of[name] <= index),
            key=lambda name: (self._stage_of[name], membership.position(name), name),
        )

    def _hold(self, node: NodeView) -> Hold:
        wanted = dict(labels_of(self._spec.change, self._name))
        return Hold(
            rollout=self._name,
            uid=self._uid,
            stage=self._spec.stages[self._stage_of[node.name]].name,
            at=timestamp.render(self._observed.wall),
            set=wanted,
            was={key: node.labels.get(key) for key in wanted},
            level=node.level,
            counts=node.facts.counts if node.facts is not None else None,
        )

    def _moving(self, index: int, hold: tuple[tuple[str, Hold], ...], clear: bool) -> Step:
        """Nodes are being changed; where nothing moves although the gates pass, the stage is stuck."""
        stage = self._stages[index]
        before = next((one for one in self._old.stages if one.name == stage.name), None)
        if not hold and clear and before is not None and before.confirmed == stage.confirmed:
            return self._stuck(index, f"{stage.changed - stage.confirmed} nodes have not confirmed the change")
        stage = self._put(index, stuck_seconds=0.0)
        waits = "" if clear else "; waits for its gates"
        text = f"{stage.changed} of {stage.nodes} nodes changed, {stage.confirmed} confirmed{waits}"
        return self._result("Progressing", index, text, hold=hold)

    def _soaking(self, index: int, clear: bool) -> Step:
        stage, wanted = self._stages[index], self._spec.stages[index].soak_seconds
        if any(gate.state == "failing" for gate in self._gates):
            soaked = 0.0
        elif clear and self._old.phase == "Soaking":
            soaked = stage.soaked_seconds + self._elapsed
        else:
            soaked = stage.soaked_seconds
        self._put(index, soaked_seconds=soaked, stuck_seconds=0.0)
        if clear and soaked >= wanted:
            return self._passed(index, f"{stage.changed} nodes changed, soaked for {soaked:.0f} s")
        waits = "" if clear else "; waits for its gates"
        return self._result("Soaking", index, f"soaked for {soaked:.0f} of {wanted} s{waits}")

    def _passed(self, index: int, why: str) -> Step:
        stage = self._put(index, passed=True)
        self._tell("Normal", "StagePassed", f"stage {stage.name}: {why}")
        following = self._index()
        if following is None:
            return self._result("Finishing", None, "all stages have passed", target="promote")
        return self._result("Progressing", following, f"stage {stage.name} has passed")

    def _stuck(self, index: int, why: str, hold: tuple[tuple[str, Hold], ...] = ()) -> Step:
        stopping = self._spec.stopping
        stage = self._put(index, stuck_seconds=self._stages[index].stuck_seconds + self._elapsed)
        if stage.stuck_seconds >= stopping.unknown_seconds:
            text = f"stage {stage.name}: {why} for {stage.stuck_seconds:.0f} s"
            return self._stop(stopping.on_unknown, "StageStuck", text)
        return self._result("Progressing", index, f"stage {stage.name}: {why}", hold=hold)

    def _stop(self, action: OnStop, reason: str, text: str) -> Step:
        attempt = self._spec.attempt
        stopped = Stop(attempt=attempt, reason=reason, message=text, at=timestamp.render(self._observed.wall))
        if action == "rollback":
            self._tell("Warning", "RollingBack", f"{reason}: {text}")
            return self._rolling_back(stopped)
        self._tell("Warning", "Stopped", f"{reason}: {text}")
        return self._resting("Paused", text, stopped)

    def _rolling_back(self, stopped: Stop) -> Step:
        held = [node for node in self._nodes if self._held(node)]
        if held or not self._observed.settled:
            text = f"{len(held)} nodes to put back: {stopped.message}"
            return self._result("RollingBack", None, text, stopped=stopped, release=tuple(node.name for node in held))
        if not self._observed.target.discarded:
            return self._result("RollingBack", None, stopped.message, stopped=stopped, target="discard")
        self._tell("Normal", "RolledBack", f"every node is as it was: {stopped.reason}")
        self._stages = [
            StageStatus(name=stage.name, nodes=stage.nodes, waiting=stage.waiting, refused=stage.refused)
            for stage in self._stages
        ]
        return self._result("RolledBack", None, stopped.message, stopped=stopped)

    def _finishing(self) -> Step:
        """Make the change everybody's where it is a revision, then let the nodes go; their mode stays."""
        if not self._observed.target.promoted:
            return self._result("Finishing", None, self._observed.target.message, target="promote")
        held = [node.name for node in self._nodes if self._held(node)]
        if held or not self._observed.settled:
            return self._result("Finishing", None, f"{len(held)} nodes to let go", finish=tuple(held))
        if not self._observed.target.discarded:
            return self._result("Finishing", None, "cleaning up", target="discard")
        self._tell("Normal", "Completed", f"{self._old.changed} nodes changed")
        text = "all stages have passed"
        kept = msgspec.structs.replace(
            self._old,
            phase="Completed",
            stage=None,
            message=text,
            gates=[],
            left_out=[],
            conditions=self._conditions("Completed", text, None),
        )
        return Step(kept, events=tuple(self._events))

    def _conditions(self, phase: Phase, text: str, stopped: Stop | None) -> list[Condition]:
        return conditions.of(phase, text, stopped, self._old.conditions, self._observed.wall, self._generation)

    def _resting(self, phase: Phase, text: str, stopped: Stop | None = None, target: Target | None = None) -> Step:
        return self._result(phase, self._index(), text, stopped=stopped, target=target)

    def _tell(self, kind: Literal["Normal", "Warning"], reason: str, text: str) -> None:
        self._events.append(Event(kind, reason, text[:1000]))

    def _put(self, index: int, **changes: object) -> StageStatus:
        self._stages[index] = changed = msgspec.structs.replace(self._stages[index], **changes)
        return changed

    def _result(
        self,
        phase: Phase,
        index: int | None,
        text: str,
        *,
        stopped: Stop | None = None,
        hold: tuple[tuple[str, Hold], ...] = (),
        release: tuple[str, ...] = (),
        finish: tuple[str, ...] = (),
        target: Target | None = None,
    ) -> Step:
        nodes, changed = sum(stage.nodes for stage in self._stages), len(self._changed)
        if self._old.phase != phase and phase in ("Progressing", "Soaking", "Paused") and stopped is None:
            where = f"stage {self._stages[index].name}: " if index is not None else ""
            self._tell("Normal", phase, f"{where}{text}")
        status = Status(
            observed_generation=self._generation or None,
            phase=phase,
            stage=self._stages[index].name if index is not None else None,
            message=text[:1000],
            attempt=self._old.attempt,
            nodes=nodes,
            changed=changed,
            summary=f"{changed}/{nodes}",
            stages=self._stages,
            gates=self._gates,
            left_out=counting.left_out(self._uid, self._nodes, self._entries),
            stopped=stopped,
            conditions=self._conditions(phase, text, stopped),
        )
        return Step(status, hold, release, finish, target, tuple(self._events))
