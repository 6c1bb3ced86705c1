"""Time comes in from outside, so that tests own it."""

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds, from two clocks."""

    def monotonic(self) -> float:
        """Return seconds since boot, suspended time included (CLOCK_BOOTTIME); intervals and deadlines use this."""
        ...

    def wall(self) -> float:
        """Return seconds since the epoch; for display and for objects that leave this machine, never for intervals."""
        ...


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall(self) -> float:
        return time.time()


class ManualClock:
    """A clock that a test moves. ``advance`` moves both; ``wall`` can be set apart to jump."""

    def __init__(self, monotonic: float = 1000.0, wall: float = 1_800_000_000.0) -> None:
        self._monotonic = monotonic
        self._wall = wall

    def monotonic(self) -> float:
        return self._monotonic

    def wall(self) -> float:
        return self._wall

    def advance(self, seconds: float) -> None:
        self._monotonic += seconds
        self._wall += seconds

    def jump_wall(self, seconds: float) -> None:
        self._wall += seconds
