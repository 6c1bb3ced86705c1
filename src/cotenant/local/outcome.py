"""Whether protection helped those it is for: each service's p99 before, in and after an incident.

Pure: a tick comes in, and what became of the newest incident comes out when that changes.
"""

import collections
import dataclasses
import statistics
from collections.abc import Sequence

from cotenant.model import series
from cotenant.model.enforcement import EnforcementState
from cotenant.model.incident import Action, Incident, LatencyOutcome
from cotenant.model.latency import P99, ServiceLatency

CALM_TICKS = 300
"""How many calm values make what is usual: five minutes of them."""
LEAST_CALM_TICKS = 10
ROSE_RATIO = 1.5
"""From so many times the usual p99 on, a service is called slower."""
BACK_RATIO = 1.25
BACK_TICKS = 3
"""p99 is back when it is below so many times the usual one, in so many ticks in a row."""
FOLLOWED_SECONDS = 180.0
"""How long after an incident's end its services are still looked at."""
WITHHELD_MILLICORES = 50.0
"""A quota that keeps less than this from offline work holds nobody back."""


@dataclasses.dataclass(slots=True)
class _Service:
    """One service in the incident that is followed."""

    before_seconds: float
    peak_seconds: float = 0.0
    at_least: bool = False
    back_ticks: int = 0
    back_at_s: float = 0.0
    recovered_s: float | None = None

    @property
    def rose(self) -> bool:
        return self.peak_seconds > ROSE_RATIO * self.before_seconds

    def take(self, seconds: float, at_least: bool, at_s: float) -> None:
        if seconds > self.peak_seconds:
            self.peak_seconds, self.at_least = seconds, at_least
        if not self.rose or at_least or seconds > BACK_RATIO * self.before_seconds:
            self.back_ticks, self.recovered_s = 0, None
            return
        self.back_at_s = at_s if self.back_ticks == 0 else self.back_at_s
        self.back_ticks += 1
        if self.back_ticks >= BACK_TICKS:
            self.recovered_s = self.back_at_s


class Outcomes:
    """What became of the online services of one host in its newest incident."""

    def __init__(self) -> None:
        self._calm: dict[str, collections.deque[float]] = {}
        self._id: int | None = None
        self._services: dict[str, _Service] = {}
        self._action: tuple[Action, float] | None = None
        self._ended_s: float | None = None
        self._fast_path_total: int | None = None

    def follow(
        self,
        at_s: float,
        incident: Incident | None,
        latencies: Sequence[ServiceLatency],
        enforcement: EnforcementState | None,
    ) -> tuple[int, list[LatencyOutcome]] | None:
        """Take one tick at a time in seconds; ``incident`` is the open one.

        Return the incident that is followed and its outcomes, or None when there is nothing to say.
        """
        if incident is not None and incident.id != self._id:
            self._begin(incident.id)
        acted = self._acted(enforcement, at_s, incident)
        if incident is not None:
            self._ended_s = None
            self._action = self._action or acted
        else:
            self._ended_s = at_s if self._ended_s is None else self._ended_s
            if self._id is None or at_s - self._ended_s > FOLLOWED_SECONDS:
                self._id = None
                self._learn(latencies)
                return None
        for latency in latencies:
            known = latency.at(P99)
            service = self._services.get(latency.service)
            if service is not None and known.seconds is not None:
                service.take(known.seconds, known.at_least, at_s)
        assert self._id is not None
        found = [self._outcome(name, service) for name, service in self._services.items() if service.peak_seconds > 0]
        return (self._id, found) if found else None

    def _begin(self, number: int) -> None:
        self._id, self._action, self._ended_s = number, None, None
        self._services = {
            name: _Service(statistics.median(calm))
            for name, calm in self._calm.items()
            if len(calm) >= LEAST_CALM_TICKS and statistics.median(calm) > 0
        }

    def _learn(self, latencies: Sequence[ServiceLatency]) -> None:
        for latency in latencies:
            known = latency.at(P99)
            if known.seconds is not None and not known.at_least:
                calm = self._calm.setdefault(latency.service, collections.deque(maxlen=CALM_TICKS))
                calm.append(known.seconds)

    def _acted(
        self, state: EnforcementState | None, at_s: float, incident: Incident | None
    ) -> tuple[Action, float] | None:
        """Return what holds offline work back now, and since when."""
        if state is None or state.mode != "enforce":
            return None
        before, self._fast_path_total = self._fast_path_total, state.fast_path_total
        if incident is not None and state.isolation is not None and state.isolation.end is None:
            return "isolation", series.time_ms_of(state.isolation.start) / 1000
        if before is not None and state.fast_path_total > before:
            return "fast path", at_s
        if (state.offline_withheld_millicores or 0.0) >= WITHHELD_MILLICORES:
            return "suppression", at_s
        return None

    def _outcome(self, name: str, service: _Service) -> LatencyOutcome:
        action, since_s = self._action or (None, (self._id or 0) / 1000)
        recovered_s = service.recovered_s
        if action is not None and recovered_s is not None and recovered_s < since_s:
            action, since_s = None, (self._id or 0) / 1000  # it was back before anybody acted
        return LatencyOutcome(
            service=name,
            before_seconds=service.before_seconds,
            peak_seconds=service.peak_seconds,
            at_least=service.at_least,
            rose=service.rose,
            action=action,
            recovery_seconds=None if recovered_s is None else max(recovered_s - since_s, 0.0),
        )
