"""What rounds of the agent keep from one to the next, so that only what has changed is asked for again."""

from cotenant.act.planning import Planner
from cotenant.kernel.paths import Root
from cotenant.kernel.snapshot import Earlier
from cotenant.units.clock import Clock

KEEP_SECONDS = 30.0
"""How long a round may rely on what the one before it found of a live node; what a pod or a policy changes shows at
once, a kernel file that comes into a group that is there already shows after this time."""


class Keeping:
    """Begins anew every half minute; of a tree of plain files nothing is kept."""

    def __init__(self, root: Root, clock: Clock) -> None:
        self._root = root
        self._clock = clock
        self._kept: tuple[Planner, Earlier] | None = None
        self._since_seconds = 0.0

    def current(self) -> tuple[Planner, Earlier | None]:
        """Return the planner of this round, and what was found earlier; None where that may not be relied on."""
        if not self._root.is_machine:
            return Planner(), None
        now = self._clock.monotonic()
        if self._kept is None or now - self._since_seconds >= KEEP_SECONDS:
            self._kept, self._since_seconds = (Planner(), Earlier(self._root)), now
        return self._kept
