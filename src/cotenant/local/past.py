"""What was recorded of a class of nodes: files of samples, the history of one host, or a Prometheus server.

History and Prometheus keep numbers, not samples: a sample is made of each again, and one number that stands for ten or
fifteen seconds becomes as many samples as a window of the rules needs to know it.
"""

import dataclasses
import math
import pathlib
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from cotenant.api import timestamp
from cotenant.detect import errors, recommendation, truth
from cotenant.latency import prometheus
from cotenant.latency.errors import Refused, TooLarge
from cotenant.local import database, history, recording
from cotenant.model import latency, sample, series
from cotenant.units.malformed import MALFORMED
from cotenant.web import sample_metrics

STEP_SECONDS = 15.0
CHUNK_SECONDS, LEAST_CHUNK_SECONDS = 7200.0, 900.0
"""So much is asked of Prometheus at once; less where that is too much."""
BUSY = (429, 502, 503, 504)
"""Statuses of a server, or of what is before it, that may answer a little later."""
WAITS_SECONDS = (1.0, 4.0, 15.0)
LONGEST_WAIT_SECONDS = 60.0
VALUES_IN_WINDOW = 3.3
HISTORY_NODE = "this-host"

Services = dict[tuple[str, str], list[tuple[float, float]]]
"""(time, p99 in seconds) by node and service; the empty node is every node."""


class BadPast(errors.DetectError):
    """What was recorded cannot be read."""


class NothingKept(BadPast):
    """A Prometheus server has nothing of ours."""

    exit_status = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Recorded:
    """Samples, and the latency of services where that was recorded too."""

    samples: recommendation.Samples
    services: Services

    def truth(self, target_seconds: float | None) -> truth.Truth | None:
        """Return when services were slow, or None where nothing is known of them."""
        return truth.of_points(self.services, target_seconds) if any(self.services.values()) else None


def of_files(paths: Sequence[pathlib.Path]) -> Recorded:
    """Return the samples of files as ``cotenant record`` writes them; they are read as often as they are asked for."""

    def samples() -> Iterator[sample.Sample]:
        for path in paths:
            for number, taken in recording.read(path):
                if timestamp.parse(taken.time) is None:
                    raise errors.BadSamples(f"{path}:{number}: time {taken.time!r} is not RFC 3339 with an offset")
                yield taken

    return Recorded(samples, {})


class _Line(msgspec.Struct):
    """One line of a file of latencies."""

    time: str
    p99_seconds: float
    service: str = ""
    node: str = ""


def read_latency(path: pathlib.Path) -> Services:
    """Return the latencies of a file: JSON lines with ``time``, ``p99_seconds``, if need be ``service`` and ``node``.

    :raises BadPast: at the first line that is none.
    """
    found: Services = {}
    decoder = msgspec.json.Decoder(_Line)
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise BadPast(f"{path}: {error.strerror}") from None
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            line = decoder.decode(text)
        except MALFORMED as error:
            raise BadPast(f'{path}:{number}: {error}; write {{"time": "…", "p99_seconds": 0.02}}') from None
        at = timestamp.parse(line.time)
        if at is None or not math.isfinite(line.p99_seconds) or line.p99_seconds < 0:
            raise BadPast(f"{path}:{number}: time must be RFC 3339 with an offset, and p99_seconds a number")
        found.setdefault((line.node, line.service), []).append((at, line.p99_seconds))
    for points in found.values():
        points.sort()
    return found


def of_history(directory: pathlib.Path, window_seconds: float) -> Recorded:
    """Return what ``cotenant up`` keeps of the last six hours: the newest by the second, before that by ten seconds.

    :raises BadPast: if there is no history there.
    """
    path = directory / history.FILE_NAME
    try:
        kept = database.Database(path, read_only=True)
        try:
            fine, coarse = (kept.points(0, 1 << 62, tier) for tier in database.TIERS[:2])
        finally:
            kept.close()
    except sqlite3.Error as error:
        raise BadPast(f"{path}: {error}; give the data directory of `cotenant up` with --data") from None
    begin = fine[0][0] if fine else 1 << 62
    rows = [(time_ms, float(database.TIERS[1].step_s), values) for time_ms, values in coarse if time_ms < begin]
    rows += [(time_ms, 1.0, values) for time_ms, values in fine]
    services: Services = {}
    suffix = "." + series.LATENCY_FIELDS[latency.P99]
    for time_ms, _, values in rows:
        for name, value in values.items():
            if name.startswith(series.LATENCY) and name.endswith(suffix):
                service = name.removeprefix(series.LATENCY).removesuffix(suffix)
                services.setdefault((HISTORY_NODE, service), []).append((time_ms / 1000, value / 1e6))
    points = [(time_ms / 1000, seconds, values) for time_ms, seconds, values in rows]
    return Recorded(lambda: expanded(HISTORY_NODE, points, window_seconds), services)


@dataclasses.dataclass(frozen=True, slots=True)
class Archive:
    """A Prometheus server that scrapes ``cotenant up`` or ``cotenant node``, asked with patience.

    ``matchers`` chooses series, as between the braces of a query: ``job="up", node=~"a-.*"``.
    """

    server: prometheus.Server
    matchers: str = ""
    wait: Callable[[float], None] = time.sleep

    def read(self, signals: Iterable[str], until: float, seconds: float, window_seconds: float) -> Recorded:
        """Return what it kept of the nodes: each is a label ``node``, or an ``instance`` that has none.

        Latency counts where it comes with a node's own series; a manager's cannot be told apart by nodes.

        :raises NothingKept: if it has no series of ours.
        :raises Unreadable: if it does not answer, or not in time.
        """
        by_node: dict[str, dict[float, dict[str, float]]] = {}
        for name in dict.fromkeys([*signals, "block.completions"]):
            group, _, field = name.rpartition(".")
            metric, _, scale = sample_metrics.metric_of(f"cotenant_{group.replace('.', '_')}", field, 1.0)
            for stretch in self._stretches(metric, "", until, seconds):
                node = by_node.setdefault(_node_of(stretch), {})
                for at, value in stretch.points:
                    node.setdefault(at, {})[name] = value / scale
        if not any(by_node.values()):
            where = f"{self.server.url} has no signals of cotenant of the last {seconds / 3600:g} h"
            raise NothingKept(f"{where}{f' with {{{self.matchers}}}' if self.matchers else ''}: does it scrape nodes?")
        services: Services = {}
        for stretch in self._stretches("cotenant_service_latency_seconds", 'quantile="0.99"', until, seconds):
            if _node_of(stretch) in by_node:
                key = (_node_of(stretch), stretch.labels.get("service", ""))
                services.setdefault(key, []).extend(stretch.points)
        rows = {
            node: [(at, STEP_SECONDS, values) for at, values in sorted(points.items())]
            for node, points in by_node.items()
        }

        def samples() -> Iterator[sample.Sample]:
            for node in sorted(rows):
                yield from expanded(node, rows[node], window_seconds)

        return Recorded(samples, services)

    def _stretches(self, metric: str, matcher: str, until: float, seconds: float) -> Iterator[prometheus.Stretch]:
        chosen = ", ".join(filter(None, (matcher, self.matchers)))
        expression = f"{metric}{{{chosen}}}" if chosen else metric
        begin, chunk = until - seconds, CHUNK_SECONDS
        while begin < until:
            end = min(begin + chunk, until)
            try:
                found = self._asked(expression, begin, end - STEP_SECONDS / 2)
            except TooLarge as error:
                if chunk <= LEAST_CHUNK_SECONDS:
                    raise TooLarge(f"{error}; ask for fewer nodes at once with --matchers") from None
                chunk /= 2
                continue
            yield from found
            begin = end

    def _asked(self, expression: str, begin: float, end: float) -> list[prometheus.Stretch]:
        """Return what is kept of a stretch of time; a server that is busy is asked again, a few times."""
        for pause in WAITS_SECONDS:
            try:
                return self.server.range(expression, begin, end, STEP_SECONDS)
            except Refused as error:
                if error.status not in BUSY or (error.wait_seconds or 0) > LONGEST_WAIT_SECONDS:
                    raise
                self.wait(max(pause, error.wait_seconds or 0))
        return self.server.range(expression, begin, end, STEP_SECONDS)


def _node_of(stretch: prometheus.Stretch) -> str:
    return stretch.labels.get("node") or stretch.labels.get("instance", "")


def expanded(
    node: str, rows: Iterable[tuple[float, float, Mapping[str, float]]], window_seconds: float
) -> Iterator[sample.Sample]:
    """Yield samples of rows (end of the time that it stands for, its length, numbers), close enough for a window."""
    for end, seconds, values in rows:
        count = max(math.ceil(seconds * VALUES_IN_WINDOW / window_seconds), 1) if seconds > 1 else 1
        period = seconds / count
        for step in range(count):
            yield series.sample_of(values, node, end - (count - 1 - step) * period, period)
