"""How long to wait before trying again."""

import random

OPTIONAL_KIND_SECONDS = (5.0, 300.0)
"""First and longest wait for a kind that the cluster may lack for good: each of thousands of nodes asks."""


class Backoff:
    """Waits that double up to a limit, each drawn from its upper half, so that many clients do not come together."""

    def __init__(self, first_seconds: float = 0.8, limit_seconds: float = 30.0, seed: int | None = None) -> None:
        self._first = first_seconds
        self._limit = limit_seconds
        self._next = first_seconds
        self._random = random.Random(seed)

    def reset(self) -> None:
        """Start over, after a success."""
        self._next = self._first

    def next_seconds(self, at_least_seconds: float | None = None) -> float:
        """Return the next wait; never shorter than the server asked for."""
        wait = self._next * self._random.uniform(0.5, 1.0)
        self._next = min(self._next * 2, self._limit)
        return max(wait, at_least_seconds or 0.0)
