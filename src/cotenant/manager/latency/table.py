"""What is known of the services' latency: by service, over all nodes or some. Belongs to the event loop."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from cotenant.api import timestamp
from cotenant.latency import window
from cotenant.latency.watching import PrometheusReading, Reading, ScrapeReading
from cotenant.manager.latency.targets import Target
from cotenant.model.latency import ServiceLatency
from cotenant.units.clock import Clock


@dataclasses.dataclass(slots=True)
class Source:
    """One source and how the last read of it went."""

    reading: Reading
    seen_wall: float | None = None
    error: str = ""


class Table:
    """Implements :class:`cotenant.model.latency.Latencies`; empty until somebody measures."""

    def __init__(self) -> None:
        self._clock: Clock | None = None
        self.pods: dict[Target, Source] = {}
        self.queries: dict[str, Source] = {}
        """Services that a query, or a fixed address, tells of."""
        self.problems: dict[str, str] = {}
        """Annotations and entries that cannot be used, by the object that has them."""

    def start(self, clock: Clock) -> None:
        """Begin to measure."""
        self._clock = clock

    def services(self) -> Sequence[ServiceLatency]:
        return self._all(None)

    def over(self, nodes: Collection[str]) -> Sequence[ServiceLatency]:
        return self._all(nodes if isinstance(nodes, frozenset | set) else frozenset(nodes))

    def _all(self, nodes: Collection[str] | None) -> list[ServiceLatency]:
        if self._clock is None:
            return []
        scraped: dict[str, dict[Target, Source]] = {}
        for target, source in self.pods.items():
            scraped.setdefault(target.service, {})[target] = source
        found = [self._of_pods(name, sources, nodes) for name, sources in scraped.items() if name not in self.queries]
        found += [self._of_query(name, source, nodes) for name, source in self.queries.items()]
        return sorted(found, key=lambda one: one.service)

    def _of_pods(self, service: str, sources: Mapping[Target, Source], nodes: Collection[str] | None) -> ServiceLatency:
        assert self._clock is not None
        chosen = [source for target, source in sources.items() if nodes is None or target.node in nodes]
        increases = [one.reading.increases for one in chosen if isinstance(one.reading, ScrapeReading)]
        quantiles, rate = window.quantiles_of(increases, self._clock.monotonic())
        failing = [source.error for source in chosen if source.error]
        return ServiceLatency(
            service=service,
            source="scrape",
            observed_at=_newest(chosen),
            requests_per_sec=rate,
            quantiles=quantiles,
            error=f"{len(failing)} of {len(chosen)} pods: {failing[0]}" if failing else "",
        )

    def _of_query(self, service: str, source: Source, nodes: Collection[str] | None) -> ServiceLatency:
        assert self._clock is not None
        now, reading = self._clock.monotonic(), source.reading
        if isinstance(reading, PrometheusReading):
            quantiles, rate = reading.measured(now, nodes)
        elif nodes is None:
            quantiles, rate = reading.measured(now)
        else:
            quantiles, rate = window.unknown("unsupported"), None
        return ServiceLatency(
            service=service,
            source="prometheus" if isinstance(reading, PrometheusReading) else "scrape",
            observed_at=_newest([source]),
            requests_per_sec=rate,
            quantiles=quantiles,
            error=source.error,
        )


def _newest(sources: Sequence[Source]) -> str | None:
    seen = [source.seen_wall for source in sources if source.seen_wall is not None]
    return timestamp.render(max(seen)) if seen else None
