"""How rules fare on recorded samples: replayed through the engine, and held against when services were slow."""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from cotenant.detect import engine, rules, truth
from cotenant.model import sample, series

CONFIDENCE = 0.95
DAY_SECONDS = 86_400.0


@dataclasses.dataclass(slots=True)
class Score:
    """Counts of a replay. ``episodes`` None: nobody says when services were slow, so all is taken for calm."""

    known_seconds: float = 0.0
    """Time in which some detection was known."""
    calm_seconds: float = 0.0
    calm_triggered_seconds: float = 0.0
    """Calm time in which some detection was triggered: one that never leaves triggers falsely once only."""
    false_triggers: int = 0
    true_triggers: int = 0
    episodes: int | None = None
    missed: int = 0

    @property
    def false_per_day(self) -> float | None:
        """False triggers in a day of one node; None without calm time."""
        return None if self.calm_seconds <= 0 else self.false_triggers / self.calm_seconds * DAY_SECONDS

    @property
    def false_per_day_at_most(self) -> float | None:
        """The rate that what was seen still allows, at 95 %: none in a short time says little."""
        if self.calm_seconds <= 0:
            return None
        return poisson_upper(self.false_triggers, CONFIDENCE) / self.calm_seconds * DAY_SECONDS

    @property
    def calm_triggered_share(self) -> float | None:
        """Share of calm time that was triggered; None without calm time."""
        return None if self.calm_seconds <= 0 else self.calm_triggered_seconds / self.calm_seconds

    @property
    def missed_share(self) -> float | None:
        """Share of slow episodes in which nothing triggered; None without episodes."""
        return self.missed / self.episodes if self.episodes else None

    def plus(self, other: "Score") -> "Score":
        """Return both together."""
        known = [count for count in (self.episodes, other.episodes) if count is not None]
        return Score(
            self.known_seconds + other.known_seconds,
            self.calm_seconds + other.calm_seconds,
            self.calm_triggered_seconds + other.calm_triggered_seconds,
            self.false_triggers + other.false_triggers,
            self.true_triggers + other.true_triggers,
            sum(known) if known else None,
            self.missed + other.missed,
        )


def poisson_upper(count: int, confidence: float) -> float:
    """Return the largest mean for which so few events, or fewer, still have a chance of 1 - confidence."""

    def chance(mean: float) -> float:
        return math.fsum(math.exp(i * math.log(mean) - mean - math.lgamma(i + 1)) for i in range(count + 1))

    low, high = max(count, 1) * 1e-3, 10.0 * (count + 2)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if chance(middle) > 1 - confidence else (low, middle)
    return high


def replay(
    source: rules.Rules,
    taken: Iterable[sample.Sample],
    known: truth.Truth | None,
    since: Mapping[str, float] | None = None,
) -> Score:
    """Return how the rules fare on samples of any number of nodes, each node's in their order.

    Only what begins at ``since`` of its node or later is counted; what comes before warms the windows up.
    """
    judge = engine.Engine(source)
    nodes: dict[str, _Node] = {}
    for one in bare(taken):
        at = series.time_ms_of(one.time) / 1000
        node = nodes.get(one.node)
        if node is None:
            episodes = () if known is None else known.of(one.node)
            begin = -math.inf if since is None else since.get(one.node, -math.inf)
            place = truth.Place(episodes, source.window_seconds)
            node = nodes[one.node] = _Node(episodes, place, known is not None, begin)
        found = judge.evaluate(one)
        triggered = any(detection.triggered for detection in found.detections.values())
        node.take(at, one.period_s or 1.0, found.interference_level is not None, triggered)
    total = Score(episodes=None if known is None else 0)
    for node in nodes.values():
        total = total.plus(node.score())
    return total


def bare(taken: Iterable[sample.Sample]) -> Iterator[sample.Sample]:
    """Yield samples without their groups: who is blamed does not change what triggers, and costs the most."""
    for one in taken:
        yield msgspec.structs.replace(one, cgroups=[]) if one.cgroups else one


class _Node:
    """One node of a replay."""

    def __init__(self, episodes: Sequence[truth.Episode], place: truth.Place, told: bool, begin: float) -> None:
        self._episodes = episodes
        self._begin = begin
        self._place = place
        self._score = Score(episodes=0 if told else None)
        self._caught: set[int] = set()
        self._seen: tuple[float, float] | None = None
        self._triggered = False

    def take(self, at: float, period_s: float, known: bool, triggered: bool) -> None:
        before, self._triggered = self._triggered, triggered
        if at < self._begin:
            return
        self._seen = (at if self._seen is None else self._seen[0], at)
        near = self._place.near(at)
        if known:
            self._score.known_seconds += period_s
            if near is None:
                self._score.calm_seconds += period_s
                self._score.calm_triggered_seconds += period_s if triggered else 0.0
        if triggered and near is not None:
            self._caught.add(near)
        if triggered and not before:
            if near is None:
                self._score.false_triggers += 1
            else:
                self._score.true_triggers += 1

    def score(self) -> Score:
        """Return the counts; only episodes that begin while samples are there count."""
        if self._score.episodes is not None and self._seen is not None:
            first, last = self._seen
            inside = [i for i, episode in enumerate(self._episodes) if first <= episode.start <= last]
            self._score.episodes = len(inside)
            self._score.missed = sum(i not in self._caught for i in inside)
        return self._score
