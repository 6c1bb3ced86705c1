"""When online services were slow: what thresholds are held against. Pure; times are seconds since the epoch."""

import bisect
import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence

SLOW_RATIO = 2.0
"""Without a target, a service is slow from so many times its own median p99 on."""
GAP_SECONDS = 30.0
"""Slow stretches that are closer together are one episode."""
LEAST_POINTS = 2
"""One slow value alone is no episode."""
EARLY_SECONDS = 15.0
LATE_SECONDS = 15.0
"""How long before and after an episode, beside the rules' window, a trigger belongs to it: p99 looks back itself."""

Points = Sequence[tuple[float, float]]
"""(time, p99 in seconds) of one service, ascending."""


@dataclasses.dataclass(frozen=True, slots=True)
class Episode:
    """A stretch in which some service was slow."""

    start: float
    end: float


@dataclasses.dataclass(frozen=True, slots=True)
class Truth:
    """Episodes by node, ascending and apart; the empty name is for every node that has none of its own."""

    episodes: Mapping[str, tuple[Episode, ...]]

    def of(self, node: str) -> tuple[Episode, ...]:
        """Return the episodes of one node."""
        return self.episodes.get(node, self.episodes.get("", ()))

    @property
    def count(self) -> int:
        return sum(len(episodes) for episodes in self.episodes.values())


def of_points(services: Mapping[tuple[str, str], Points], target_seconds: float | None) -> Truth:
    """Return when some service of each node was slow; ``services`` by node and name.

    Slow is past the target, or without one past twice the service's own median.
    """
    slow: dict[str, list[Episode]] = {}
    for (node, _), points in services.items():
        if not points:
            continue
        limit = SLOW_RATIO * statistics.median(p99 for _, p99 in points) if target_seconds is None else target_seconds
        slow.setdefault(node, []).extend(_stretches(points, limit))
    return Truth({node: _merged(episodes) for node, episodes in slow.items()})


def _stretches(points: Points, limit: float) -> Iterable[Episode]:
    times: list[float] = []
    for at, p99 in points:
        if p99 > limit and (not times or at - times[-1] <= GAP_SECONDS):
            times.append(at)
        elif p99 > limit or (times and at - times[-1] > GAP_SECONDS):
            if len(times) >= LEAST_POINTS:
                yield Episode(times[0], times[-1])
            times = [at] if p99 > limit else []
    if len(times) >= LEAST_POINTS:
        yield Episode(times[0], times[-1])


def _merged(episodes: Iterable[Episode]) -> tuple[Episode, ...]:
    found: list[Episode] = []
    for one in sorted(episodes, key=lambda episode: episode.start):
        if found and one.start - found[-1].end <= GAP_SECONDS:
            found[-1] = Episode(found[-1].start, max(found[-1].end, one.end))
        else:
            found.append(one)
    return tuple(found)


class Place:
    """Where times lie among the episodes of one node, for rules that look back so many seconds."""

    def __init__(self, episodes: Sequence[Episode], window_seconds: float) -> None:
        self._episodes = episodes
        self._late_s = LATE_SECONDS + window_seconds
        self._starts = [episode.start - EARLY_SECONDS for episode in episodes]

    def near(self, at: float) -> int | None:
        """Return the number of the episode that a time belongs to, or None in calm."""
        index = bisect.bisect_right(self._starts, at) - 1
        return index if index >= 0 and at <= self._episodes[index].end + self._late_s else None
