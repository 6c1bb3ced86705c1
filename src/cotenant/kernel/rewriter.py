"""Who keeps writing over our values: kubelet each minute and systemd on reload are expected, more is a contest."""

import collections
from collections.abc import Set

from cotenant.model.enforcement import Contest
from cotenant.units.clock import Clock

CONTESTED_REWRITES = 5
CONTESTED_WITHIN_SECONDS = 60.0
"""Five times in a minute is no periodic rewriter: kubelet's period is a minute, systemd writes on reload."""


class Rewrites:
    """Counts values of ours that were replaced by somebody else, per file."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._times: dict[str, collections.deque[float]] = {}
        self._found: dict[str, str] = {}
        self.total = 0
        """Rewrites seen since the start, for a metric."""

    def seen(self, path: str, found: str) -> None:
        """Take note that a file no longer holds what we wrote."""
        times = self._times.setdefault(path, collections.deque(maxlen=CONTESTED_REWRITES))
        times.append(self._clock.monotonic())
        self._found[path] = found
        self.total += 1

    def is_contested(self, path: str) -> bool:
        """Return whether answering at once does not help: protection belongs on another level."""
        times = self._times.get(path)
        return (
            times is not None
            and len(times) == CONTESTED_REWRITES
            and self._clock.monotonic() - times[0] <= CONTESTED_WITHIN_SECONDS
        )

    def contests(self) -> list[Contest]:
        """Return the files that are contested now."""
        return [
            Contest(path=path, rewrites=len(times), found=self._found[path])
            for path, times in self._times.items()
            if self.is_contested(path)
        ]

    def keep(self, paths: Set[str]) -> None:
        """Drop what is known of every other file."""
        for path in self._times.keys() - paths:
            self.forget(path)

    def forget(self, path: str) -> None:
        """Drop what is known of a file that is gone."""
        self._times.pop(path, None)
        self._found.pop(path, None)
