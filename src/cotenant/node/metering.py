"""What the node, its pods and its host applications used lately: the figures of a NodeMetric, in bounded memory.

The node's and the system's seconds are kept as they are, so that percentiles are exact; pods and host applications
are kept as sums in slices of the window. What was unknown in a second is left out of it, and never counts as zero.
"""

import array
import collections
import math
from collections.abc import Mapping, Sequence

import msgspec

from cotenant.kernel.numa import TICKS_PER_SECOND, NumaState
from cotenant.model import usage as usages
from cotenant.model.node import Usage, Use
from cotenant.model.sample import Sample
from cotenant.node.presence import Presence

POINTS = 3600
"""Points of the node's past at most: an hour of seconds, or fewer for each point where a longer past is asked for."""
SLICES = 10
"""Parts of the window in which pods are summed up; the oldest goes as a whole."""
NUMA_POINTS = 60
SPAN_RATIO = 0.5
"""An aggregate is told once its values span so much of its duration: before that it would tell of a start."""
COLUMNS = ("node_cpu", "node_memory", "system_cpu", "system_memory")


class Aggregates(msgspec.Struct, frozen=True, kw_only=True):
    """Mean and percentiles of one resource over a duration."""

    avg: float
    p50: float
    p90: float
    p95: float
    p99: float


def aggregates_of(values: Sequence[float]) -> Aggregates:
    """Return mean and nearest-rank percentiles of some values, of which there is at least one."""
    ordered = sorted(values)

    def at(share: float) -> float:
        return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]

    return Aggregates(avg=sum(ordered) / len(ordered), p50=at(0.5), p90=at(0.9), p95=at(0.95), p99=at(0.99))


class Series:
    """Rows of a few columns over time, the newest :data:`POINTS` of them; a row is the mean of ``every_s`` seconds."""

    def __init__(self, points: int = POINTS) -> None:
        self._points = points
        self._times = array.array("d")
        self._columns = [array.array("d") for _ in COLUMNS]
        self._start = 0
        self._pending: list[Sequence[float | None]] = []
        self._pending_s = -math.inf
        self.every_s = 1.0

    def add(self, now: float, row: Sequence[float | None]) -> None:
        """Take one second in; None where a column is not known."""
        if not self._pending:
            self._pending_s = now
        self._pending.append(row)
        if now - self._pending_s < self.every_s - 1.0:
            return
        self._put(now, [_mean([v for v in column if v is not None]) for column in zip(*self._pending, strict=True)])
        self._pending = []

    def _put(self, now: float, row: Sequence[float | None]) -> None:
        values = [math.nan if value is None else value for value in row]
        if len(self._times) < self._points:
            self._times.append(now)
            for column, value in zip(self._columns, values, strict=True):
                column.append(value)
            return
        self._times[self._start] = now
        for column, value in zip(self._columns, values, strict=True):
            column[self._start] = value
        self._start = (self._start + 1) % self._points

    def column(self, index: int, since: float) -> tuple[list[float], float]:
        """Return the known values of a column after a moment, and how many seconds they span."""
        times, column = self._times, self._columns[index]
        known = [i for i, at in enumerate(times) if at > since and not math.isnan(column[i])]
        if not known:
            return [], 0.0
        moments = [times[i] for i in known]
        return [column[i] for i in known], max(moments) - min(moments)


class Averages:
    """Means of many things over one window, by key; a key that is no longer fed fades out with the window."""

    def __init__(self, window_s: float) -> None:
        self._slice_s = window_s / SLICES
        self._slices: collections.deque[tuple[float, dict[str, list[float]]]] = collections.deque(maxlen=SLICES)

    def add(self, now: float, uses: Mapping[str, Use]) -> None:
        """Take one second in."""
        while self._slices and now - self._slices[0][0] > self._slice_s * SLICES:
            self._slices.popleft()
        if not self._slices or now - self._slices[-1][0] >= self._slice_s:
            self._slices.append((now, {}))
        sums = self._slices[-1][1]
        for key, use in uses.items():
            own = sums.get(key)
            if own is None:
                own = sums[key] = [0.0, 0.0, 0.0, 0.0]
            if use.cpu_millicores is not None:
                own[0] += use.cpu_millicores
                own[1] += 1
            if use.memory_bytes is not None:
                own[2] += use.memory_bytes
                own[3] += 1

    def mean(self, key: str) -> Use:
        """Return the mean of one thing; what was never known in the window is None."""
        own = [sums[key] for _, sums in self._slices if key in sums] or [[0.0] * 4]
        cpu, cpu_seconds, memory, memory_seconds = (sum(column) for column in zip(*own, strict=True))
        return Use(
            cpu_millicores=cpu / cpu_seconds if cpu_seconds else None,
            memory_bytes=round(memory / memory_seconds) if memory_seconds else None,
        )


class Collection(msgspec.Struct, frozen=True, kw_only=True):
    """How the node is measured, resolved: seconds, and whether page cache counts."""

    aggregate_s: float = 300.0
    durations_s: tuple[float, ...] = (300.0, 600.0, 1800.0)
    page_cache: bool = False


class Meter:
    """The node's recent past, by one :class:`Collection`; another one starts it anew."""

    def __init__(self, collection: Collection | None = None) -> None:
        self.collection = collection or Collection()
        self._series = Series()
        self._series.every_s = max(max(self.collection.durations_s, default=0.0) / POINTS, 1.0)
        self._pods = Averages(self.collection.aggregate_s)
        self._applications = Averages(self.collection.aggregate_s)
        self.taken_at = -math.inf
        """When the newest sample came."""
        self._numa: collections.deque[tuple[float, Mapping[int, NumaState]]] = collections.deque(maxlen=NUMA_POINTS)

    def take(self, now: float, sample: Sample, present: Presence) -> Usage:
        """Take one sample in and return its usage, pods by the path of their group.

        A pod whose group is gone uses nothing any more; one whose group is there and cannot be read makes the system's
        share of this second unknown.
        """
        self.taken_at = now
        there = {group.path for group in sample.cgroups}
        pods = {path: path for path in present.pods if path in there}
        applications = {path: name for path, name in present.applications.items() if path in there}
        page_cache = self.collection.page_cache
        used = usages.of_sample(sample, pods, present.memory_bytes, applications, page_cache=page_cache)
        self._series.add(
            now,
            (used.node.cpu_millicores, used.node.memory_bytes, used.system.cpu_millicores, used.system.memory_bytes),
        )
        self._pods.add(now, used.pods)
        self._applications.add(now, used.host_applications)
        return used

    def wants_numa(self, now: float) -> bool:
        """Return whether it is time to look at the NUMA nodes again."""
        return not self._numa or now - self._numa[-1][0] >= self.collection.aggregate_s / NUMA_POINTS

    def take_numa(self, now: float, states: Mapping[int, NumaState]) -> None:
        """Take the NUMA nodes in."""
        self._numa.append((now, states))

    def node(self, now: float) -> Use:
        """Return the node's mean over the window, as far back as it goes."""
        return self._means(0, now)

    def system(self, now: float) -> Use:
        """Return the mean of what neither pods nor host applications use."""
        return self._means(2, now)

    def _means(self, first: int, now: float) -> Use:
        since = now - self.collection.aggregate_s
        cpu, memory = (_mean(self._series.column(index, since)[0]) for index in (first, first + 1))
        return Use(cpu_millicores=cpu, memory_bytes=None if memory is None else round(memory))

    def aggregates(self, column: str, duration_s: float, now: float) -> Aggregates | None:
        """Return what one of :data:`COLUMNS` was over a duration, or None while its values span too little of it."""
        values, span_s = self._series.column(COLUMNS.index(column), now - duration_s)
        return aggregates_of(values) if values and span_s >= SPAN_RATIO * duration_s else None

    def pod(self, path: str) -> Use:
        """Return the mean of the pod whose group this is."""
        return self._pods.mean(path)

    def application(self, name: str) -> Use:
        """Return the mean of a host application."""
        return self._applications.mean(name)

    def numa(self, now: float) -> dict[int, Use]:
        """Return what each NUMA node used over the window."""
        points = [(at, states) for at, states in self._numa if at > now - self.collection.aggregate_s]
        if not points:
            return {}
        return {node: self._numa_use(node, points) for node in points[-1][1]}

    def _numa_use(self, node: int, points: Sequence[tuple[float, Mapping[int, NumaState]]]) -> Use:
        known = [(at, states[node]) for at, states in points if node in states]
        ticks = [(at, state.busy_ticks) for at, state in known if state.busy_ticks is not None]
        cpu = None
        if len(ticks) > 1 and ticks[-1][1] >= ticks[0][1]:
            cpu = (ticks[-1][1] - ticks[0][1]) / TICKS_PER_SECOND / (ticks[-1][0] - ticks[0][0]) * 1000
        amounts = [s.memory_not_free_bytes if self.collection.page_cache else s.memory_used_bytes for _, s in known]
        memory = _mean([amount for amount in amounts if amount is not None])
        return Use(cpu_millicores=cpu, memory_bytes=None if memory is None else round(memory))


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
