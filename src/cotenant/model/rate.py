"""Two raw counters become a rate here, and nowhere else: reset, wrap and a gap in time included.

A function gives a number, or the reason for which there is none.
"""

from collections.abc import Mapping

from cotenant.model.sample import MissingReason

Count = int | MissingReason
Value = float | MissingReason

MAX_PERIODS = 10.0
"""Past so many periods (suspended machine, stopped process) the mean says nothing of now: the sample is stale."""
MIN_GAP_SECONDS = 30.0
"""A gap shorter than this is never called one: an overloaded node samples late, and that is when it matters."""


def elapsed(before_s: float | None, now_s: float, period_s: float) -> float | MissingReason:
    """Return the seconds between two reads, or why nothing can be divided by them."""
    if before_s is None:
        return "first_sample"
    seconds = now_s - before_s
    if seconds <= 0:
        return "reset"
    if seconds > max(MAX_PERIODS * period_s, MIN_GAP_SECONDS):
        return "stale"
    return seconds


def difference(before: int | None, after: int, bits: int | None = None) -> Count:
    """Return how much a counter grew.

    A counter of ``bits`` bits that fell from its upper half to its lower half has wrapped; any other fall is a reset.
    """
    if before is None:
        return "first_sample"
    if after >= before:
        return after - before
    if bits is not None and before < 1 << bits:
        wrapped = after - before + (1 << bits)
        if wrapped < 1 << (bits - 1):
            return wrapped
    return "reset"


class Counters:
    """The last value of each counter, and what its next value makes of it. Names that are not fed are forgotten."""

    __slots__ = ("_after", "_before", "_seconds")

    def __init__(self) -> None:
        self._before: Mapping[str, int] = {}
        self._after: dict[str, int] = {}
        self._seconds: float | MissingReason = "first_sample"

    def step(self, seconds: float | MissingReason) -> None:
        """Begin a period of this length; what was fed in the last one is what this one is compared with."""
        self._before, self._after = self._after, {}
        self._seconds = seconds

    def count(self, name: str, value: Count, bits: int | None = None) -> Count:
        """Return the growth of a counter within the period, or why it is unknown."""
        if isinstance(value, str):
            return value
        self._after[name] = value
        if isinstance(self._seconds, str):
            return self._seconds
        return difference(self._before.get(name), value, bits)

    def rate(self, name: str, value: Count, bits: int | None = None) -> Value:
        """Return the growth per second, or why it is unknown."""
        grown = self.count(name, value, bits)
        if isinstance(grown, str) or isinstance(self._seconds, str):
            return grown
        return grown / self._seconds
