"""How many nodes may be kept from new pods, so that a wrong rule, or a storm, never closes a cluster. Pure.

Of each pool at most a share is excluded, at least one node, never all; over the whole cluster new exclusions come
slowly, the worst first. What is excluded already stays while it should: no node takes another one's place.
"""

import collections
import dataclasses
import math
from collections.abc import Iterable

WINDOW_SECONDS = 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """One node: whether it should be excluded, how bad it is (larger is worse), and whether it is excluded now."""

    name: str
    pool: str
    wanted: bool
    severity: tuple[float, ...] = ()
    excluded: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Exclusions:
    """The nodes to exclude, and why others that should be are not (``pool`` or ``rate``)."""

    excluded: frozenset[str]
    waiting: dict[str, str]


def pool_limit(size: int, fraction: float) -> int:
    """Return how many nodes of a pool may be excluded: its share, at least one, never all."""
    return max(0, min(max(1, math.floor(fraction * size)), size - 1)) if fraction > 0 else 0


class Caps:
    """Remembers when exclusions were new. ``now`` is monotonic seconds."""

    def __init__(self, max_excluded_fraction: float = 0.05, rate_fraction: float = 0.01) -> None:
        self.max_excluded_fraction = max_excluded_fraction
        self._rate_fraction = rate_fraction
        self._new: collections.deque[float] = collections.deque()
        self._started = False

    def plan(self, candidates: Iterable[Candidate], now: float) -> Exclusions:
        """Return what to exclude now; calling it again with the result in place changes nothing."""
        nodes = list(candidates)
        left = self._left(nodes, now)
        room = {
            pool: pool_limit(size, self.max_excluded_fraction)
            for pool, size in collections.Counter(node.pool for node in nodes).items()
        }
        worst = sorted((node for node in nodes if node.wanted), key=lambda node: node.name)
        worst.sort(key=lambda node: (node.excluded, node.severity), reverse=True)
        excluded, waiting = set(), {}
        for node in worst:
            if room[node.pool] <= 0:
                waiting[node.name] = "pool"
            elif not node.excluded and left <= 0:
                waiting[node.name] = "rate"
            else:
                room[node.pool] -= 1
                excluded.add(node.name)
                left -= not node.excluded
        return Exclusions(frozenset(excluded), waiting)

    def note_new(self, now: float) -> None:
        """Count an exclusion that was made now."""
        self._new.append(now)

    def _left(self, nodes: list[Candidate], now: float) -> int:
        per_minute = max(1, math.floor(self._rate_fraction * len(nodes)))
        if not self._started:
            # An earlier leader may have made these just now; nobody knows, so they count as new.
            self._started = True
            self._new.extend([now] * min(per_minute, sum(node.excluded for node in nodes)))
        while self._new and now - self._new[0] >= WINDOW_SECONDS:
            self._new.popleft()
        return per_minute - len(self._new)
