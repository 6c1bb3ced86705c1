"""What the gates say of the nodes that were changed. Pure.

A gate fails on what is known. It passes only where enough is known: a node that says nothing is neither good nor bad,
and beyond ``stopping.maxUnknownShare`` of such nodes the gate is unknown.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from cotenant.api import timestamp
from cotenant.api.report import AgentCounts
from cotenant.api.rollout import GateName, Gates, GateState, GateStatus, LatencyGate
from cotenant.manager.rollout.view import NodeView
from cotenant.model.latency import P99, ServiceLatency

_EPSILON = 1e-9


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """What one gate says: its value (None: unknown) and a sentence."""

    name: GateName
    state: GateState
    value: float | None
    message: str


MAX_SERVICES = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Latency:
    """P99 of services in seconds on the nodes of the current stage: now, and before it was changed. A service that is
    not there is unknown."""

    now: Mapping[str, float]
    before: Mapping[str, float]
    beyond: frozenset[str] = frozenset()
    """Services whose P99 now is at least what is said, beyond their histogram's last bucket: that can be too slow, and
    never good."""


def measured(gate: LatencyGate, services: Sequence[ServiceLatency]) -> tuple[dict[str, float], frozenset[str]]:
    """Return the P99 in seconds of the services that the gate is about, as far as they are known.

    Second, those of them of which only that is known that it is at least so much.
    """
    known, beyond = {}, set()
    for service in services:
        quantile = service.at(P99)
        if quantile.seconds is not None and (not gate.services or service.service in gate.services):
            known[service.service] = quantile.seconds
            if quantile.at_least:
                beyond.add(service.service)
    return known, frozenset(beyond)


def before_is_known(gate: LatencyGate, before: Mapping[str, float]) -> bool:
    """Return whether enough was measured before the change to hold a later value to it."""
    return all(service in before for service in gate.services) if gate.services else bool(before)


def evaluate(
    gates: Gates, nodes: Sequence[NodeView], latency: Latency, max_unknown_share: float, wall: float
) -> list[Result]:
    """Return what each gate in force says of the changed nodes."""
    judge = _Judge(gates, nodes, latency, max_unknown_share, wall)
    asked: dict[GateName, Callable[[], Result] | None] = {
        "interferenceLevel": judge.level if gates.interference_level is not None else None,
        "onlineLatency": judge.latency if gates.online_latency is not None else None,
        "evictions": judge.evictions if gates.evictions is not None else None,
        "restoreFailures": judge.restore_failures,
        "agentHealth": judge.health,
        "irreversibleWrites": judge.irreversible_writes,
    }
    return [
        ask() if nodes else Result(name, "idle", None, "no node is changed")
        for name, ask in asked.items()
        if ask is not None
    ]


def lasting(results: Sequence[Result], before: Sequence[GateStatus], elapsed_seconds: float) -> list[GateStatus]:
    """Return the gates' new status: one that fails or is unknown as it was ``before`` has been so for longer now."""
    last = {gate.name: gate for gate in before}
    found = []
    for result in results:
        earlier = last.get(result.name)
        lasts = earlier is not None and earlier.state == result.state and result.state in ("failing", "unknown")
        found.append(
            GateStatus(
                name=result.name,
                state=result.state,
                value=None if result.value is None else round(result.value, 4),
                message=result.message,
                for_seconds=earlier.for_seconds + elapsed_seconds if lasts and earlier is not None else 0.0,
            )
        )
    return found


class _Judge:
    def __init__(
        self, gates: Gates, nodes: Sequence[NodeView], latency: Latency, max_unknown_share: float, wall: float
    ) -> None:
        self._gates = gates
        self._nodes = nodes
        self._latency = latency
        self._max_unknown_share = max_unknown_share
        self._wall = wall

    def _result(
        self, name: GateName, unknown: int, value: float | None, failure: str, good: str, asked: int | None = None
    ) -> Result:
        """Return the gate's state; ``unknown`` of the nodes that were ``asked`` (all by default) do not tell."""
        if failure:
            return Result(name, "failing", value, failure)
        count = len(self._nodes) if asked is None else asked
        if unknown == count or unknown / count > self._max_unknown_share + _EPSILON:
            return Result(name, "unknown", value, f"{unknown} of {count} nodes do not tell")
        return Result(name, "passing", value, good)

    def level(self) -> Result:
        gate = self._gates.interference_level
        assert gate is not None
        known = [node for node in self._nodes if node.level is not None]
        unknown = len(self._nodes) - len(known)
        mean = sum(node.level or 0.0 for node in known) / len(known) if known else None
        failure = ""
        if gate.max is not None:
            above = sorted(
                (node for node in known if (node.level or 0.0) > gate.max), key=lambda node: -(node.level or 0.0)
            )
            if len(above) / len(self._nodes) > gate.max_share + _EPSILON:
                worst = ", ".join(f"{node.name} {node.level:.2f}" for node in above[:3])
                failure = f"{len(above)} of {len(self._nodes)} nodes above {gate.max:g}: {worst}"
        if gate.max_increase is not None:
            rises = [
                node.level - node.hold.level
                for node in known
                if node.level is not None and node.hold is not None and node.hold.level is not None
            ]
            unknown = max(unknown, len(self._nodes) - len(rises))
            rise = sum(rises) / len(rises) if rises else None
            if not failure and rise is not None and rise > gate.max_increase + _EPSILON:
                failure = f"the mean level rose by {rise:.2f}, more than {gate.max_increase:g}"
        return self._result("interferenceLevel", unknown, mean, failure, "" if mean is None else f"mean {mean:.2f}")

    def latency(self) -> Result:
        gate = self._gates.online_latency
        assert gate is not None
        now, before = self._latency.now, self._latency.before
        worst = max(now.values(), default=None)
        if gate.max_seconds is not None:
            slow = {service: seconds for service, seconds in now.items() if seconds > gate.max_seconds}
            if slow:
                service, seconds = max(slow.items(), key=lambda one: one[1])
                text = f"{service}: P99 {seconds * 1000:.3g} ms, more than {gate.max_seconds * 1000:g} ms"
                return Result("onlineLatency", "failing", worst, text)
        wanted = set(gate.services or now)
        if gate.max_increase_ratio is not None:
            wanted |= set(before)
            ratios = {service: now[service] / before[service] for service in now if before.get(service, 0.0) > 0}
            service, ratio = max(ratios.items(), key=lambda one: one[1], default=("", 0.0))
            if ratio > 1 + gate.max_increase_ratio + _EPSILON:
                text = (
                    f"{service}: P99 {now[service] * 1000:.3g} ms, {before[service] * 1000:.3g} ms before the change:"
                    f" {ratio - 1:.0%} up, more than {gate.max_increase_ratio:.0%}"
                )
                return Result("onlineLatency", "failing", worst, text)
            if not before_is_known(gate, before):
                return Result("onlineLatency", "unknown", worst, "not known from before the change")
        unknown = sorted(wanted - (set(now) - self._latency.beyond))
        if unknown or not wanted:
            return Result("onlineLatency", "unknown", worst, _unknown(unknown))
        return Result("onlineLatency", "passing", worst, f"P99 of {len(wanted)} services, at most {worst:.3g} s")

    def evictions(self) -> Result:
        gate = self._gates.evictions
        assert gate is not None
        total, unknown = self._total(lambda counts: counts.evictions)
        hours = max(1.0, sum(self._hours(node) for node in self._nodes if node.counted() is not None))
        rate = None if unknown == len(self._nodes) else total / hours
        failure = ""
        if rate is not None and rate > gate.max_per_node_hour + _EPSILON:
            failure = f"{total} evictions in {hours:.1f} node-hours, more than {gate.max_per_node_hour:g} in one"
        return self._result("evictions", unknown, rate, failure, f"{total} evictions in {hours:.1f} node-hours")

    def _hours(self, node: NodeView) -> float:
        at = timestamp.parse(node.hold.at) if node.hold is not None else None
        return 0.0 if at is None else max(0.0, self._wall - at) / 3600

    def restore_failures(self) -> Result:
        gate = self._gates.restore_failures
        total, unknown = self._total(lambda counts: counts.restore_failures)
        failure = f"{total} values could not be put back, more than {gate.max}" if total > gate.max else ""
        value = None if unknown == len(self._nodes) else float(total)
        return self._result("restoreFailures", unknown, value, failure, f"{total} values could not be put back")

    def irreversible_writes(self) -> Result:
        gate = self._gates.irreversible_writes
        held_to = [
            node for node in self._nodes if not irreversible_allowed(gate.allowed, gate.allowed_interfaces, node)
        ]
        if not held_to:
            return Result("irreversibleWrites", "passing", None, "allowed")
        writes = {node.name: node.counted() for node in held_to}
        guilty = [name for name, counts in writes.items() if counts is not None and counts.irreversible_writes]
        total = float(sum(counts.irreversible_writes for counts in writes.values() if counts is not None))
        unknown = sum(counts is None for counts in writes.values())
        failure = f"written where it is not allowed: {', '.join(sorted(guilty)[:3])}" if guilty else ""
        value = None if unknown == len(held_to) else total
        good = "none where it is not allowed"
        return self._result("irreversibleWrites", unknown, value, failure, good, len(held_to))

    def health(self) -> Result:
        least = self._gates.agent_health.min_share
        states = {node.name: node.healthy for node in self._nodes}
        good = sum(state is True for state in states.values())
        bad = sorted(name for name, state in states.items() if state is False)
        count = len(states)
        share = good / count
        message = f"{good} of {count} agents are well"
        if (count - len(bad)) / count < least - _EPSILON:
            return Result("agentHealth", "failing", share, f"{message}; not so {', '.join(bad[:3])}")
        return self._result("agentHealth", count - good - len(bad), share, "", message)

    def _total(self, of: Callable[[AgentCounts], int]) -> tuple[int, int]:
        """Return the sum over the nodes that count, and how many do not."""
        counted = [node.counted() for node in self._nodes]
        return sum(of(counts) for counts in counted if counts is not None), sum(counts is None for counts in counted)


def _unknown(services: Sequence[str]) -> str:
    return f"no P99 of {', '.join(services[:3])}" if services else "no service has a known P99"


def irreversible_allowed(everywhere: bool, interfaces: Sequence[str], node: NodeView) -> bool:
    """Return whether writes that the kernel does not take back are allowed on a node."""
    return everywhere or (node.interface is not None and node.interface in interfaces)
