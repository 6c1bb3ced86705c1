"""The ready table: what is known of every node, so that an answer is a few look-ups."""

import dataclasses
import math
from collections.abc import Iterable, Mapping

from cotenant.api.objects import Node, RuntimeClass
from cotenant.api.reading import Row


@dataclasses.dataclass(frozen=True, slots=True)
class Freshness:
    """How many reports are held, by what they are good for."""

    fresh: int
    unknown: int
    expired: int


class Table:
    """Rows by node, the Node objects and the RuntimeClasses. ``runtime_classes`` None: nobody told us which exist."""

    def __init__(
        self,
        rows: Iterable[Row] = (),
        nodes: Mapping[str, Node] | None = None,
        runtime_classes: Mapping[str, RuntimeClass] | None = None,
    ) -> None:
        self.rows: dict[str, Row] = {}
        self.limited: dict[str, Row] = {}
        self.scored: dict[str, Row] = {}
        """The rows that know a level."""
        self.suspended = False
        """While set, every report counts as expired, whatever it says: its writer is gone."""
        self._next_expiry = math.inf
        self.nodes: dict[str, Node] = dict(nodes or {})
        self.runtime_classes = None if runtime_classes is None else dict(runtime_classes)
        for row in rows:
            self.put(row)

    def put(self, row: Row) -> None:
        """Hold this row for its node, in place of an older one."""
        self.rows[row.node] = row
        if row.hard:
            self.limited[row.node] = row
        else:
            self.limited.pop(row.node, None)
        if row.level is not None:
            self.scored[row.node] = row
            self._next_expiry = min(self._next_expiry, row.expires_at)
        else:
            self.scored.pop(row.node, None)

    def remove(self, node: str) -> None:
        """Forget a node's report."""
        self.rows.pop(node, None)
        self.limited.pop(node, None)
        self.scored.pop(node, None)

    def levels(self, names: Iterable[str], now: float) -> list[Row | None]:
        """Return each node's row, None where its level is unknown or its report does not hold."""
        if self.suspended:
            return [None for _ in names]
        if self._next_expiry <= now:
            for row in [row for row in self.scored.values() if row.expires_at <= now]:
                del self.scored[row.node]
            self._next_expiry = min((row.expires_at for row in self.scored.values()), default=math.inf)
        return list(map(self.scored.get, names))

    def known(self, node: str, now: float) -> Row | None:
        """Return the node's row while it holds, or None where there is none or it has expired."""
        row = self.rows.get(node)
        return row if row is not None and row.expires_at > now and not self.suspended else None

    def limits_in_force(self, now: float) -> dict[str, Row]:
        """Return the rows, by node, that hold and name a hard limit."""
        if self.suspended:
            return {}
        return {node: row for node, row in self.limited.items() if row.expires_at > now}

    def freshness(self, now: float) -> Freshness:
        """Count the reports that hold and know a level, those that hold without one, and those that do not hold."""
        fresh = unknown = expired = 0
        for row in self.rows.values():
            if row.expires_at <= now or self.suspended:
                expired += 1
            elif row.level is None:
                unknown += 1
            else:
                fresh += 1
        return Freshness(fresh=fresh, unknown=unknown, expired=expired)
