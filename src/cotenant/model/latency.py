"""Latency of online services, beside interference: how long their slowest requests took, and how that changed.

A quantile that is not known is None with a reason, never 0. Who measures implements :class:`Latencies`; the page, the
metrics, incidents, recommendations and the gates of a rollout read it.
"""

from collections.abc import Collection, Sequence
from typing import Literal, Protocol

import msgspec

from cotenant.model.sample import MissingReason

P50, P99, P999 = 0.5, 0.99, 0.999
QUANTILES = (P50, P99, P999)
Source = Literal["prometheus", "scrape", "log"]


class Quantile(msgspec.Struct, frozen=True, kw_only=True):
    """A quantile over the last ``window_seconds``. ``at_least``: beyond the histogram's last bound, the value."""

    quantile: float
    seconds: float | None = None
    window_seconds: float | None = None
    at_least: bool = False
    missing: MissingReason | None = None
    """Why ``seconds`` is None."""


class ServiceLatency(msgspec.Struct, frozen=True, kw_only=True):
    """One service (``namespace/name`` in a cluster) as it was last seen."""

    service: str
    source: Source
    observed_at: str | None = None
    """RFC 3339, UTC: the end of the windows. None: never seen."""
    requests_per_sec: float | None = None
    quantiles: tuple[Quantile, ...] = ()
    group: str = ""
    """The path of its control group on one host; empty where that is not known."""
    error: str = ""
    """Why it cannot be read now, for a person."""

    def at(self, quantile: float) -> Quantile:
        """Return one of the quantiles; unknown, for want of data, where it is not there."""
        found = next((one for one in self.quantiles if one.quantile == quantile), None)
        return found or Quantile(quantile=quantile, missing="not_running")

    @property
    def p99_seconds(self) -> float | None:
        return self.at(P99).seconds


class Latencies(Protocol):
    """Whoever measures. Methods may be called from any thread and return at once."""

    def services(self) -> Sequence[ServiceLatency]:
        """Return every service, over all of its processes, ordered by name."""
        ...

    def over(self, nodes: Collection[str]) -> Sequence[ServiceLatency]:
        """Return every service over its processes on these nodes alone; what is not known by node is unknown."""
        ...
