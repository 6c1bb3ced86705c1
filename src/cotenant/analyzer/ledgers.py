"""What offline work of each namespace asked for, got and lost on all nodes together. Pure."""

import dataclasses

import msgspec

from cotenant.model import ledger
from cotenant.model.ledger import Account, Ledger
from cotenant.units.clock import Clock

SILENT_SECONDS = 60.0
"""A node that was not heard of for so long says nothing of who starves now."""
KEPT_SECONDS = 5.0
"""How long one sum serves everybody who asks: thousands of nodes are added up."""


class Ledgers:
    """The newest ledger of each node. Counts of nodes and agents that are gone stay in the sums."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._nodes: dict[str, _Node] = {}
        self._gone = Ledger(since=clock.wall())
        self._sum: tuple[float, Ledger] | None = None

    def hear(self, node: str, heard: Ledger) -> None:
        """Take a node's ledger: what the first one counted already is not of this process."""
        now, known = self._clock.monotonic(), self._nodes.get(node)
        if known is None:
            self._nodes[node] = _Node(heard, heard.accounts, now)
        elif known.newest.epoch != heard.epoch:
            self._keep(known)  # its agent has lost its books, and counts from zero
            self._nodes[node] = _Node(heard, {}, now)
        else:
            before = known.newest.accounts
            # An agent that was killed goes on from its last save: what it has to count again was counted here.
            grown = {name: one.at_least(before.get(name, one)) for name, one in heard.accounts.items()}
            self._nodes[node] = _Node(msgspec.structs.replace(heard, accounts=grown), known.first, now)

    def wall(self) -> float:
        """Return the time now, in seconds since the epoch."""
        return self._clock.wall()

    def forget(self, node: str) -> None:
        """Take a node that has left the cluster: what was counted there stays counted."""
        known = self._nodes.pop(node, None)
        if known is not None:
            self._keep(known)

    def _keep(self, node: "_Node") -> None:
        old = node.ledger(starving=False)
        self._gone = msgspec.structs.replace(
            self._gone,
            since=min(self._gone.since, old.since),
            accounts=ledger.total([self._gone.accounts, old.accounts]),
            session=ledger.total([self._gone.session, old.session]),
        )

    def total(self) -> Ledger:
        """Return the sums by namespace. ``since`` is the time from which on something was counted."""
        now = self._clock.monotonic()
        if self._sum is not None and now - self._sum[0] < KEPT_SECONDS:
            return self._sum[1]
        parts = [node.ledger(starving=now - node.heard_s <= SILENT_SECONDS) for node in self._nodes.values()]
        parts.append(self._gone)
        found = Ledger(
            since=min(part.since for part in parts),
            accounts=ledger.total(part.accounts for part in parts),
            session=ledger.total(part.session for part in parts),
        )
        self._sum = (now, found)
        return found


@dataclasses.dataclass(frozen=True, slots=True)
class _Node:
    """One node: its newest ledger, what it had counted before we listened, and when it was heard of."""

    newest: Ledger
    first: dict[str, Account]
    heard_s: float

    def ledger(self, *, starving: bool) -> Ledger:
        """Return its ledger with what was counted since we listen; without who starves where that is old."""
        accounts = self.newest.accounts
        if not starving:
            accounts = {name: msgspec.structs.replace(one, starved_since=None) for name, one in accounts.items()}
        session = {name: one.less(self.first[name]) if name in self.first else one for name, one in accounts.items()}
        return msgspec.structs.replace(self.newest, accounts=accounts, session=session)
