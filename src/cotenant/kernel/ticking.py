"""The sampling thread: one tick a period, on a grid; ticks that are late are skipped, never piled up."""

import contextlib
import logging
import os
import threading
from collections.abc import Callable

from cotenant.units.clock import Clock

log = logging.getLogger(__name__)

NICE = -10
"""Of the threads that sample. They take a hundredth of a CPU; without it, a machine four times oversubscribed leaves
seconds between two ticks just when they are needed."""
LOG_EVERY_SECONDS = 60.0
"""A tick that fails each second is logged this often."""


def go_first() -> None:
    """Have the calling thread run before ordinary ones; without the privilege nothing changes."""
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)


class Grid:
    """The times at which ticks are due."""

    def __init__(self, period_s: float, now: float) -> None:
        self.period_s = period_s
        self.due = now + period_s

    def advance(self, now: float) -> int:
        """Move on to the next time after now; return how many whole periods were missed."""
        missed = max(0, int((now - self.due) // self.period_s)) if now > self.due else 0
        self.due += (missed + 1) * self.period_s
        return missed


class SamplingThread:
    """Calls ``tick`` each period in a thread of its own until stopped."""

    def __init__(self, tick: Callable[[], None], late: Callable[[int], None], period_s: float, clock: Clock) -> None:
        self._tick = tick
        self._late = late
        self._period_s = period_s
        self._clock = clock
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._sampling, name="sampling", daemon=True)
        self.failures = 0
        self._logged_at: float | None = None

    def start(self) -> None:
        """Begin; the first tick comes after one period."""
        self._thread.start()

    def stop(self, timeout_s: float = 3.0) -> None:
        """End after the tick that runs now. One that hangs is left behind: the thread is a daemon."""
        self._stopped.set()
        if self._thread.ident is not None:  # else what came before start() failed, and is what is to be told
            self._thread.join(timeout_s)

    def _sampling(self) -> None:
        go_first()
        grid = Grid(self._period_s, self._clock.monotonic())
        while not self._stopped.wait(max(0.0, grid.due - self._clock.monotonic())):
            try:
                self._tick()
            except Exception as error:  # noqa: BLE001 - the outermost loop: one failed tick must not end the next
                self.failures += 1
                self._report(error)
            missed = grid.advance(self._clock.monotonic())
            if missed:
                self._late(missed)

    def _report(self, error: Exception) -> None:
        now = self._clock.monotonic()
        if self._logged_at is None or now - self._logged_at >= LOG_EVERY_SECONDS:
            self._logged_at = now
            log.error("tick failed (%d so far): %s: %s", self.failures, type(error).__name__, error, exc_info=error)
