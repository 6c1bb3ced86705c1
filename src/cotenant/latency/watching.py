"""The services of one host under watch: a thread for each reads its source, and nobody waits for it.

Implements :class:`cotenant.model.latency.Latencies`. What a source says last stays until it is stale, never longer.
"""

import logging
import pathlib
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from cotenant.api import exposition, timestamp
from cotenant.api.errors import ApiError
from cotenant.latency import configuration, fetching, log, prometheus, window
from cotenant.latency.errors import NothingFound, Unreadable
from cotenant.model.latency import P99, P999, QUANTILES, Quantile, ServiceLatency, Source
from cotenant.units.clock import Clock

_log = logging.getLogger(__name__)

LOG_SECONDS, SCRAPE_SECONDS, PROMETHEUS_SECONDS = 1.0, 5.0, 10.0
"""How often each kind of source is read."""
TOLD_EVERY_SECONDS = 60.0

Measured = tuple[tuple[Quantile, ...], float | None]
"""Quantiles and requests per second."""


class Reading(Protocol):
    """One source. :meth:`read` takes as long as it takes; both methods belong to one thread."""

    period_seconds: float

    def read(self, now: float) -> None:
        """Ask the source once.

        :raises Unreadable: if it does not answer, or not with what was asked for.
        """
        ...

    def measured(self, now: float) -> Measured:
        """Return what is known from all that was read."""
        ...


class LogReading:
    """An access log."""

    period_seconds = LOG_SECONDS

    def __init__(self, source: configuration.Log) -> None:
        self._tail = log.Tail(pathlib.Path(source.path), log.Pattern.parse(source.pattern))
        self.increases = window.Increases(LOG_SECONDS)

    def read(self, now: float) -> None:
        self.increases.take(now, {(): self._tail.read()})

    def measured(self, now: float) -> Measured:
        return window.quantiles_of([self.increases], now)


class ScrapeReading:
    """A page of metrics of one process."""

    def __init__(
        self,
        url: str,
        metric: exposition.Selector,
        trust: fetching.Trust = fetching.NO_TRUST,
        period_seconds: float = SCRAPE_SECONDS,
    ) -> None:
        self._url = url
        self._metric = metric
        self._trust = trust
        self.period_seconds = period_seconds
        self.increases = window.Increases(period_seconds)

    def read(self, now: float) -> None:
        body, content_type = fetching.get(self._url, {"Accept": exposition.ACCEPT}, self._trust)
        try:
            self.increases.take(now, exposition.read(body, content_type, self._metric))
        except ApiError as error:
            raise Unreadable(f"{self._url}: {error}") from None

    def measured(self, now: float) -> Measured:
        return window.quantiles_of([self.increases], now)


class PrometheusReading:
    """A query to a Prometheus server; where it gives histograms by ``node``, nodes can be told apart."""

    period_seconds = PROMETHEUS_SECONDS

    def __init__(self, source: configuration.Prometheus) -> None:
        self._source = source
        self._server = prometheus.Server(source.url, configuration.trust_of(source))
        self._at = -1e9
        self._found = True
        self._histograms: exposition.Series = {}
        self._numbers: Mapping[float, float | None] = {}

    def read(self, now: float) -> None:
        try:
            self._ask()
        except NothingFound:
            self._at, self._found = now, False
            raise
        self._at, self._found = now, True

    def _ask(self) -> None:
        source = self._source
        if source.query:
            self._histograms = prometheus.histograms(self._server.instant(source.query))
            return
        asked = {P99: source.p99, P999: source.p999}
        self._numbers = {q: prometheus.number_of(self._server.instant(text)) for q, text in asked.items() if text}

    def measured(self, now: float, nodes: Collection[str] | None = None) -> Measured:
        """Return what is known; ``nodes`` None: over all."""
        if now - self._at > window.STALE_PERIODS * self.period_seconds:
            return window.unknown("first_sample" if self._at < 0 else "stale"), None
        if not self._found:
            return window.unknown("not_running"), None
        seconds = self._source.window_seconds
        if self._source.query:
            if nodes is None:
                return window.of_rates(self._histograms.values(), seconds)
            by_node = [(dict(labels).get("node"), counts) for labels, counts in self._histograms.items()]
            if by_node and all(node is None for node, _ in by_node):
                return window.unknown("unsupported"), None
            return window.of_rates((counts for node, counts in by_node if node in nodes), seconds)
        if nodes is not None:
            return window.unknown("unsupported"), None
        return tuple(self._number(q, seconds) for q in QUANTILES), None

    def _number(self, q: float, seconds: float) -> Quantile:
        value = self._numbers.get(q)
        if value is None:
            return Quantile(quantile=q, missing="too_few" if q in self._numbers else "not_enabled")
        return Quantile(quantile=q, seconds=value, window_seconds=seconds)


def reading_of(service: configuration.Service) -> tuple[Source, Reading]:
    """Return what reads a service's source."""
    if service.log is not None:
        return "log", LogReading(service.log)
    if service.scrape is not None:
        asked = service.scrape
        return "scrape", ScrapeReading(
            asked.url, exposition.Selector.parse(asked.metric), configuration.trust_of(asked)
        )
    assert service.prometheus is not None
    return "prometheus", PrometheusReading(service.prometheus)


class Watched:
    """One service: read again and again, and what is known of it."""

    def __init__(self, service: configuration.Service, clock: Clock) -> None:
        self.service = service
        source, self.reading = reading_of(service)
        self._newest = ServiceLatency(
            service=service.name, source=source, group=service.group, quantiles=window.unknown("first_sample")
        )
        self._read_at = clock.monotonic()
        self._clock = clock
        self._seen_wall: float | None = None
        self._told_at = -1e9
        self.failures = 0

    def read(self) -> None:
        """Read once, and work out what is known; a source that cannot be read is noted."""
        now = self._clock.monotonic()
        error = ""
        try:
            self.reading.read(now)
        except Unreadable as unreadable:
            error = str(unreadable)
            self.failures += 1
            if now - self._told_at >= TOLD_EVERY_SECONDS:
                self._told_at = now
                _log.warning("latency of %s: %s", self.service.name, error)
        else:
            self._seen_wall = self._clock.wall()
        quantiles, rate = self.reading.measured(self._clock.monotonic())
        self._newest = msgspec.structs.replace(
            self._newest,
            observed_at=None if self._seen_wall is None else timestamp.render(self._seen_wall),
            requests_per_sec=rate,
            quantiles=quantiles,
            error=error,
        )
        self._read_at = now

    def latency(self) -> ServiceLatency:
        """Return the service as it was known after the newest read; unknown when that is too long ago."""
        age = self._clock.monotonic() - self._read_at
        if age <= window.STALE_PERIODS * self.reading.period_seconds + fetching.TIMEOUT_SECONDS:
            return self._newest
        return msgspec.structs.replace(self._newest, quantiles=window.unknown("stale"), requests_per_sec=None)


class Watch:
    """All services of one host."""

    def __init__(self, services: Sequence[configuration.Service], clock: Clock) -> None:
        self._watched = [Watched(service, clock) for service in sorted(services, key=lambda one: one.name)]
        self._stopping = threading.Event()

    def start(self) -> None:
        for watched in self._watched:
            threading.Thread(target=self._reading, args=(watched,), name="latency", daemon=True).start()

    def stop(self) -> None:
        """Have every thread end after the read that is under way; they are daemons and hold up nothing."""
        self._stopping.set()

    def _reading(self, watched: Watched) -> None:
        while True:
            try:
                watched.read()
            except Exception:  # noqa: BLE001 - the outermost loop: a defect here must not end watching
                watched.failures += 1
                _log.exception("latency of %s", watched.service.name)
            if self._stopping.wait(watched.reading.period_seconds):
                return

    def services(self) -> Sequence[ServiceLatency]:
        return [watched.latency() for watched in self._watched]

    def over(self, nodes: Collection[str]) -> Sequence[ServiceLatency]:
        """Return the same: there is one node."""
        return self.services()
