"""A token bucket: how many writes the API server gets from us."""

from cotenant.units.clock import Clock


class Budget:
    """So many writes a second on average, and at most ``burst`` at once."""

    def __init__(self, clock: Clock, per_second: float = 20.0, burst: float = 20.0) -> None:
        self._clock = clock
        self.per_second = per_second
        self._burst = burst
        self._tokens = burst
        self._at = clock.monotonic()

    def available(self) -> int:
        """Return how many writes may be made now."""
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self.per_second)
        self._at = now
        return int(self._tokens)

    def spend(self, writes: int) -> None:
        """Count writes that were made."""
        self._tokens -= writes
