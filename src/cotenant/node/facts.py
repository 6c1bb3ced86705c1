"""What the agent says of its node and of itself, in each report: by this a rollout decides whether to go on."""

import asyncio
import dataclasses
from collections.abc import Callable

import msgspec

from cotenant.api import timestamp
from cotenant.api.report import AgentCounts, DegradedPod, NodeCheck, NodeFacts
from cotenant.kernel import check, enforcing, kata, paths
from cotenant.model.priority import InterfaceName
from cotenant.node.agent import Agent
from cotenant.node.kubelet import PodSource
from cotenant.node.policy import Policy
from cotenant.units.clock import Clock

LOOK_SECONDS = 2.0
MODE_SECONDS = 10.0
"""How long the first facts may wait for the Node object, which says the mode."""
MODE_LOOKS = 50
CHECK_SECONDS = 60.0
"""How often the node is checked anew: agents come and go, features change with a mount or a sysctl."""
FAILING_ROUNDS = 3
STALE_PODS_SECONDS = 60.0
MAX_PROBLEMS = 8
MAX_DEGRADED = 16
PROBLEM_CHARACTERS = 200


@dataclasses.dataclass(frozen=True, slots=True)
class Parts:
    """Whom the facts are asked of."""

    root: paths.Root
    agent: Agent
    source: PodSource
    policy: Policy
    enforcer: enforcing.Enforcer
    clock: Clock
    kata_root: paths.Root | None = None
    """Where the host's ``/dev`` and ``/etc`` are; None: what Kata needs is not looked at, so unknown."""


class Telling:
    """Works out the facts, and tells them when they have changed."""

    def __init__(self, parts: Parts, interface: InterfaceName | None = None, beside_others: bool = False) -> None:
        self._parts = parts
        self._wanted = interface
        self._beside_others = beside_others
        self._started_at = timestamp.render(parts.clock.wall())
        self._kata = msgspec.to_builtins(kata.read(parts.kata_root)) if parts.kata_root is not None else None
        self._checked_at = float("-inf")
        self._interface = ""
        self._check = NodeCheck()

    async def run(self, tell: Callable[[bytes], None]) -> None:
        """Tell changes until cancelled."""
        for _ in range(MODE_LOOKS):  # a restart must not look like a change of mode
            if self._parts.policy.mode_known:
                break
            await asyncio.sleep(MODE_SECONDS / MODE_LOOKS)
        said = msgspec.json.encode(await asyncio.to_thread(self.current))
        tell(said)
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = msgspec.json.encode(await asyncio.to_thread(self.current))
            if now != said:
                said = now
                tell(said)

    def current(self) -> NodeFacts:
        """Return the facts as they are now; the check may be a minute old."""
        parts = self._parts
        now = parts.clock.monotonic()
        if now - self._checked_at >= CHECK_SECONDS:
            self._checked_at = now
            self._look()
        return NodeFacts(
            mode=parts.policy.mode if parts.policy.mode_known else None,
            slo_revision=parts.policy.slo_revision,
            priority_interface=self._interface,
            kata=self._kata,
            refused_fields=list(parts.policy.refused),
            check=self._check,
            counts=AgentCounts(
                started_at=self._started_at,
                evictions=parts.agent.evicting.counts["accepted"] if parts.agent.evicting is not None else 0,
                restore_failures=parts.agent.releasing.failures,
                irreversible_writes=parts.enforcer.irreversible_writes,
            ),
            degraded_pods=self._degraded(),
            workload_types=list(parts.agent.hosting.types),
            problems=[text[:PROBLEM_CHARACTERS] for text in self._problems()][:MAX_PROBLEMS],
        )

    def _look(self) -> None:
        found = check.report(self._parts.root, self._wanted)
        interface = found.priority_interface
        ignored = "agent" if self._beside_others else None
        self._interface = interface.name
        self._check = NodeCheck(
            missing=[feature.name for feature in found.features if feature.state != "available"],
            conflicts=[conflict.name for conflict in found.conflicts if conflict.kind != ignored],
            irreversible=interface.sticky,
        )

    def _degraded(self) -> list[DegradedPod]:
        cpus = self._parts.agent.cpus
        reasons = cpus.placement.degraded if cpus is not None else {}
        return [DegradedPod(name=name, reason=why) for name, why in sorted(reasons.items())[:MAX_DEGRADED]]

    def _problems(self) -> list[str]:
        """Return what is wrong now, in words that do not change while it stays so."""
        parts = self._parts
        found = [f"{name}: {text}" for name, text in sorted(parts.policy.problems.items())]
        if parts.agent.status.failing_rounds >= FAILING_ROUNDS:
            found.append("rounds of enforcement fail")
        if parts.agent.cpus is not None and parts.agent.cpus.problem:
            found.append(parts.agent.cpus.problem)
        if parts.agent.releasing.problem:
            found.append(parts.agent.releasing.problem)
        age = parts.source.age_seconds
        if parts.source.failures and (age is None or age > STALE_PODS_SECONDS):
            found.append("pods: the kubelet does not answer")
        return found
