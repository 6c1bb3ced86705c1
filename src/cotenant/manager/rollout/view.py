"""What a rollout sees: each node with its labels, what the rollout left on it and what its report says, and what the
change needs beside the nodes.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from cotenant.api.marks import MODE_LABEL
from cotenant.api.report import AgentCounts, NodeFacts
from cotenant.api.rollout import SLO_REVISION
from cotenant.manager.rollout.holding import Hold
from cotenant.model.latency import ServiceLatency


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """What is known of one node now. ``facts`` and ``level`` are None without a report that still holds."""

    name: str
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    hold: Hold | None = None
    damaged: bool = False
    """It carries the annotation, which nobody can read."""
    interface: str | None = None
    facts: NodeFacts | None = None
    heard: bool = False
    """Its samples arrive."""
    level: float | None = None

    @property
    def overridden(self) -> bool:
        """Whether somebody else has changed what the rollout set."""
        return self.hold is not None and any(self.labels.get(key) != value for key, value in self.hold.set.items())

    @property
    def confirmed(self) -> bool | None:
        """Whether the agent has taken what was set; None where it does not say."""
        if self.hold is None or self.facts is None:
            return None
        said = {MODE_LABEL: self.facts.mode, SLO_REVISION: self.facts.slo_revision}
        asked = {key: value for key, value in self.hold.set.items() if key in said}
        if any(said[key] is None for key in asked):
            return None
        return all(said[key] == value for key, value in asked.items())

    @property
    def healthy(self) -> bool | None:
        """Whether the agent sends samples, has taken the change and has no problem; None where that is not known."""
        if self.facts is None:
            return None
        if not self.heard or self.facts.problems or (self.facts.check is not None and self.facts.check.conflicts):
            return False
        return True if self.confirmed else None

    def counted(self) -> AgentCounts | None:
        """Return what the agent has counted since the change, or None where that is not known.

        After a restart its counts began anew; what it had counted between the change and the restart is lost.
        """
        now = self.facts.counts if self.facts is not None else None
        before = self.hold.counts if self.hold is not None else None
        if now is None or before is None or now.started_at != before.started_at:
            return now
        return AgentCounts(
            started_at=now.started_at,
            evictions=max(0, now.evictions - before.evictions),
            restore_failures=max(0, now.restore_failures - before.restore_failures),
            irreversible_writes=max(0, now.irreversible_writes - before.irreversible_writes),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TargetState:
    """What the change needs beside the nodes: a revision that is there (``ready``), at the end made everybody's
    (``promoted``) or taken away again (``discarded``). ``problem``: it cannot be had."""

    ready: bool = True
    promoted: bool = True
    discarded: bool = True
    message: str = ""
    problem: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What is seen beside the nodes. ``latencies`` are over the nodes of the stage under way; ``settled``: what was
    last written to nodes is seen in them; ``others``: the rollouts that are under way, by uid."""

    wall: float
    latencies: Sequence[ServiceLatency] = ()
    target: TargetState = TargetState()
    others: frozenset[str] = frozenset()
    settled: bool = True
