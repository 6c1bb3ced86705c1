"""Quantiles of the last seconds: from counters that only grow to what was counted in a window.

A quantile is known when the window holds so many requests that one of them lies beyond it: 100 for p99, 1,000 for p999.
The short window answers first, because it shows a change at once; where it holds too few, the long one does.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from cotenant.api.exposition import Labels
from cotenant.model.latency import QUANTILES, Quantile
from cotenant.model.sample import MissingReason
from cotenant.units import quantile
from cotenant.units.quantile import BadHistogram, Counts

WINDOWS_SECONDS = (10.0, 60.0)
LEAST_REQUESTS = 10
STALE_PERIODS = 3
FRESH_SHARE = 0.8


def least_requests(q: float) -> int:
    """Return how many requests a quantile needs."""
    return max(LEAST_REQUESTS, math.ceil(1 / (1 - q) - 1e-9))


class Increases:
    """What one source counted between looks, for as long as the longest window. Times are of a monotonic clock."""

    def __init__(self, period_seconds: float) -> None:
        self.period_seconds = period_seconds
        self._before: Mapping[Labels, Counts] | None = None
        self._looked_at = -math.inf
        self._kept: tuple[tuple[float, float, tuple[Counts, ...]], ...] = ()
        """Start, end, and the increase of each series. Never changed in place: another thread may read it."""

    def take(self, at: float, series: Mapping[Labels, Counts]) -> None:
        """Take the counters as they are now. A series that was not there before counts from zero."""
        if self._before is not None:
            before = self._before
            grown = [quantile.since(now, before[key]) if key in before else now for key, now in series.items()]
            newest = (self._looked_at, at, tuple(one for one in grown if one.count > 0))
            self._kept = (*(one for one in self._kept if one[1] > at - WINDOWS_SECONDS[-1]), newest)
        self._before, self._looked_at = series, at

    def looked(self, now: float) -> bool:
        """Return whether the newest look is not too long ago."""
        return now - self._looked_at <= STALE_PERIODS * max(self.period_seconds, 1.0)

    def within(self, seconds: float) -> tuple[float, list[Counts]] | None:
        """Return the time covered of the last seconds, and what was counted; None before two looks.

        An increase over a gap that began before the window is left out: when in it the requests came is not known.
        """
        begin = self._looked_at - seconds - self.period_seconds / 2
        inside = [(start, end, grown) for start, end, grown in self._kept if start >= begin]
        if not inside:
            return None
        return sum(end - start for start, end, _ in inside), [one for _, _, grown in inside for one in grown]


def quantiles_of(sources: Sequence[Increases], now: float) -> tuple[tuple[Quantile, ...], float | None]:
    """Return the quantiles over all sources together, and their requests per second; unknown with a reason.

    Where more than a fifth of the sources was not looked at lately, all is unknown: theirs may be the slow requests.
    """
    if not sources:
        return unknown("not_running"), None
    fresh = [source for source in sources if source.looked(now)]
    if len(fresh) < FRESH_SHARE * len(sources):
        return unknown("stale"), None
    found: dict[float, Quantile] = {}
    rate: float | None = None
    for seconds in WINDOWS_SECONDS:
        parts = [part for source in fresh if (part := source.within(seconds)) is not None]
        if not parts:
            continue
        try:
            counts = quantile.total(one for _, grown in parts for one in grown)
        except BadHistogram:
            return unknown("malformed"), None
        rate = (counts.count if counts else 0.0) / max(covered for covered, _ in parts) if rate is None else rate
        for q in QUANTILES:
            if q not in found and counts is not None and counts.count >= least_requests(q):
                found[q] = of_counts(q, counts, max(seconds, round(max(covered for covered, _ in parts))))
        if len(found) == len(QUANTILES):
            break
    if rate is None:
        return unknown("first_sample"), None
    return tuple(found.get(q) or Quantile(quantile=q, missing="too_few") for q in QUANTILES), rate


def of_counts(q: float, counts: Counts, seconds: float) -> Quantile:
    """Return one quantile of what a window holds."""
    estimate = counts.quantile(q)
    if estimate is None:
        return Quantile(quantile=q, missing="malformed")
    return Quantile(quantile=q, seconds=estimate.value, window_seconds=seconds, at_least=estimate.at_least)


def unknown(reason: MissingReason) -> tuple[Quantile, ...]:
    """Return every quantile unknown, for one reason."""
    return tuple(Quantile(quantile=q, missing=reason) for q in QUANTILES)


def of_rates(rates: Iterable[Counts], seconds: float) -> tuple[tuple[Quantile, ...], float | None]:
    """Return the quantiles of histograms that are rates already (``rate(…[1m])``), and their requests per second."""
    try:
        counts = quantile.total(rates)
    except BadHistogram:
        return unknown("malformed"), None
    if counts is None:
        return unknown("not_running"), None
    return tuple(
        of_counts(q, counts, seconds)
        if counts.count * seconds >= least_requests(q) * (1 - 1e-9)
        else Quantile(quantile=q, missing="too_few")
        for q in QUANTILES
    ), counts.count
