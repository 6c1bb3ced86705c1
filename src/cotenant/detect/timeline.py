"""Where a sample stands in its node's time: by the monotonic clock, and by the wall clock where that says nothing."""

import datetime

from cotenant.detect import errors
from cotenant.model import sample
from cotenant.units import grain


class Timeline:
    """One node's time in seconds, from its samples in the order in which they come.

    ``uptime_s`` counts. Where a sample has none, or the same as the sample before beside another ``time`` (which no
    running clock gives: the file was made by hand), the step is that of ``time``.
    """

    __slots__ = ("_monotonic", "_shift_s", "_time", "_uptime_s", "at")

    def __init__(self) -> None:
        self.at = 0.0
        self._time = ""
        self._uptime_s: float | None = None
        self._monotonic: bool | None = None
        """Which clock the sample before went by; None before the first."""
        self._shift_s = 0.0

    def advance(self, taken: sample.Sample) -> float | None:
        """Go to the end of a sample, and return the seconds since the one before; None when time went back.

        :raises BadSamples: if the sample has neither ``uptime_s`` nor a ``time`` that can be read.
        """
        uptime_s = taken.uptime_s
        stands = uptime_s is not None and uptime_s == self._uptime_s and taken.time != self._time
        monotonic = uptime_s is not None and not (stands and _readable(taken.time) and _readable(self._time))
        now = uptime_s if uptime_s is not None and monotonic else _seconds_of(taken.node, taken.time)
        if self._monotonic is None:
            step_s: float | None = 0.0
        elif self._monotonic == monotonic:
            step_s = now + self._shift_s - self.at
        else:
            step_s = _wall_step_s(taken, self._time)
        if step_s is not None and step_s < -grain.SECONDS:
            step_s = None
        if step_s is None:
            self._shift_s = 0.0
        elif self._monotonic != monotonic:
            self._shift_s = self.at + step_s - now if self._monotonic is not None else 0.0
        self.at = now + self._shift_s
        self._time, self._uptime_s, self._monotonic = taken.time, uptime_s, monotonic
        return None if step_s is None else max(step_s, 0.0)

    def rebooted(self, taken: sample.Sample) -> bool:
        """Return whether the monotonic clock of a sample is behind the one of the sample before."""
        return taken.uptime_s is not None and self._uptime_s is not None and taken.uptime_s < self._uptime_s


def _wall_step_s(taken: sample.Sample, before: str) -> float | None:
    if not (_readable(taken.time) and _readable(before)):
        return None
    return _seconds_of(taken.node, taken.time) - _seconds_of(taken.node, before)


def _readable(time: str) -> bool:
    try:
        _seconds_of("", time)
    except errors.BadSamples:
        return False
    return True


def _seconds_of(node: str, time: str) -> float:
    try:
        moment = datetime.datetime.fromisoformat(time.replace("Z", "+00:00"))
        return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise errors.BadSamples(
            f"node {node}: no uptime_s, and time {time!r} is not RFC 3339; one of them is needed"
        ) from error
