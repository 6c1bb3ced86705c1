"""One node's publication over time: what to write on it next, and why. Pure but for the clock that it is given."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

from cotenant.kube.budget import Budget
from cotenant.manager.overcommit import balance, names, publication
from cotenant.manager.overcommit.consumption import Consumption
from cotenant.manager.overcommit.nodes import NodeFacts
from cotenant.manager.overcommit.pods import PodFacts
from cotenant.manager.overcommit.strategy import Strategy
from cotenant.units.clock import Clock

State = Literal["off", "waiting", "current", "degraded"]
"""Co-location is off; a new leader has not heard of the node yet; its use is known; it is not known any more."""
STATES: tuple[State, ...] = ("off", "waiting", "current", "degraded")

START_SECONDS = 60.0
"""How long a new leader waits for the first word of a node before it takes it for lost."""
RISE_SECONDS = 60.0
RISES_AT_ONCE = 3
"""A node's values go down whenever they must; up three times at once and then once a minute, so that a node whose use
swings settles at what is there in its worst moments instead of being written at every swing."""
WRITE_SECONDS = 15.0
WRITES_AT_ONCE = 8
"""A bound on all writes of a node, which only somebody who writes the same resources makes us reach."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is to be done with a node now."""

    state: State
    body: dict[str, Any] | None = None
    """The merge patch of the Node's status; None: nothing to write."""
    urgency: float = 0.0
    """The largest share by which a value goes down: promises that cannot be kept are taken back first."""
    is_rise: bool = False
    """More of something is offered than we last offered."""
    values: publication.Values = dataclasses.field(default_factory=dict)
    """What is offered once the patch is written."""
    terms: balance.Balance | None = None
    """How the values came about; None unless they are current."""


@dataclasses.dataclass(frozen=True, slots=True)
class Heard:
    """The newest that is known of a node's use, and how old it is."""

    use: Consumption
    age_seconds: float


class Account:
    """What is remembered of one node between two decisions."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._opened_at = self._synced_at = clock.monotonic()
        self._promised: publication.Values = {}
        """What we last wrote: to write it again is a repair, not a rise."""
        self._anchor: publication.Values | None = None
        """What was offered before it was taken back: so much may be offered again to pods that were under way."""
        self._rises = Budget(clock, 1 / RISE_SECONDS, RISES_AT_ONCE)
        self._writes = Budget(clock, 1 / WRITE_SECONDS, WRITES_AT_ONCE)
        self.state: State = "waiting"

    @property
    def is_contested(self) -> bool:
        """Whether writes are held off because somebody undoes them again and again."""
        return self._writes.available() < 1

    def decide(self, node: NodeFacts, pods: Sequence[PodFacts], heard: Heard | None, strategy: Strategy) -> Decision:
        """Return what to write on the node now; call again at any change and from time to time."""
        if not strategy.enable:
            decision = self._drain(node, pods, "off")
        elif heard is not None and heard.age_seconds <= strategy.degrade_seconds:
            decision = self._keep(node, pods, heard.use, strategy)
        elif self._clock.monotonic() - self._opened_at < START_SECONDS:
            decision = Decision(state="waiting")
        else:
            decision = self._drain(node, pods, "degraded")
        self.state = decision.state
        if decision.body is not None and self.is_contested:
            return dataclasses.replace(decision, body=None)
        return decision

    def wrote(self, decision: Decision) -> None:
        """Note that a decision's patch was written."""
        self._synced_at = self._clock.monotonic()
        self._writes.spend(1)
        if decision.is_rise and self._promised:
            self._rises.spend(1)
        self._promised = decision.values

    def _keep(self, node: NodeFacts, pods: Sequence[PodFacts], use: Consumption, strategy: Strategy) -> Decision:
        self._anchor = None
        terms = balance.of(node, pods, use, strategy, self._clock.wall())
        # What cannot be told now stays as it is: 0 would say that nothing is left.
        new = {**node.published, **terms.values}
        now = self._clock.monotonic()
        unchanged = Decision(state="current", terms=terms)
        if not node.torn and not publication.is_due(node.published, new, now - self._synced_at, strategy):
            return unchanged
        known = self._promised or node.published
        is_rise = any(value > known.get(name, -1) for name, value in new.items())
        if is_rise and known and self._rises.available() < 1:
            # What goes down goes down all the same, and takes nothing up with it.
            new = {name: min(value, known.get(name, value)) for name, value in new.items()}
            is_rise = False
            if not node.torn and not publication.is_due(node.published, new, 0.0, strategy):
                return unchanged
        shared = {name: min(value, new[name] + node.third_party.get(name, 0)) for name, value in terms.origin.items()}
        body = publication.patch(node.published, new, node.torn, shared, node.origin)
        if body is None:
            self._synced_at = now
        urgency = publication.falls(node.published, new)
        return dataclasses.replace(unchanged, body=body, urgency=urgency, is_rise=is_rise, values=new)

    def _drain(self, node: NodeFacts, pods: Sequence[PodFacts], state: State) -> Decision:
        if self._anchor is None:
            self._anchor = dict(node.published)
        left = publication.drained(self._anchor, pods)
        shared = {name: left.get(name, 0) + node.third_party.get(name, 0) for name in names.BATCH.values()}
        body = publication.patch(node.published, left, node.torn, shared if any(shared.values()) else None, node.origin)
        return Decision(state=state, body=body, urgency=publication.falls(node.published, left), values=left)
