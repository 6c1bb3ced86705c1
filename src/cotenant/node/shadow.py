"""Beside a running koordlet: write nothing, and say where its values agree with ours, and where they do not and why.

A difference counts once it has lasted: both agents work second by second, and one is always a little earlier.
"""

import dataclasses
import logging

from cotenant.act import comparison
from cotenant.act.draft import Plan
from cotenant.model.snapshot import Snapshot
from cotenant.units.clock import Clock

_log = logging.getLogger(__name__)

LASTING_SECONDS = 15.0
"""koordlet goes over a pod's files every ten seconds; what still differs after that it does not mean to change."""
TELL_EVERY_SECONDS = 60.0
SHOWN = 500
"""At most so many differences are kept; the number of all of them is kept too."""


@dataclasses.dataclass(frozen=True, slots=True)
class Lasting:
    """A difference as it is now, and since when (monotonic seconds) there has been one in this file."""

    difference: comparison.Difference
    since_s: float


class Shadow:
    """Remembers how long each difference has lasted, and tells of it in the log."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[tuple[str, str], Lasting] = {}
        self._told: set[tuple[str, str]] = set()
        self._told_at_s: float | None = None
        self.agreed = 0
        self.differing = 0
        self.rounds = 0
        self.steps: tuple[str, ...] = ()

    @property
    def lasting(self) -> tuple[comparison.Difference, ...]:
        """The differences that have lasted, those that could not be undone first."""
        before = self._clock.monotonic() - LASTING_SECONDS
        return tuple(one.difference for one in self._seen.values() if one.since_s <= before)

    def take(self, seen: Snapshot, plan: Plan) -> None:
        """Compare what is there with what a plan wants."""
        now = self._clock.monotonic()
        found = comparison.compare(seen, plan)
        known, self._seen = self._seen, {}
        for difference in found.differences[:SHOWN]:
            # The values of a moving target change all the time: that it differs is what lasts.
            key = (difference.path, difference.strategy)
            before = known.get(key)
            self._seen[key] = Lasting(difference, before.since_s if before is not None else now)
        self.agreed, self.differing, self.steps = found.agreed, len(found.differences), found.steps
        self.rounds += 1
        self._tell(now)

    def _tell(self, now: float) -> None:
        lasting = self.lasting
        for one in lasting:
            key = (one.path, one.strategy)
            if key not in self._told:
                self._told.add(key)
                _log.info("shadow: %s", text_of(one))
        self._told &= self._seen.keys()
        if self._told_at_s is None or now - self._told_at_s >= TELL_EVERY_SECONDS:
            self._told_at_s = now
            _log.info("shadow: %s", self.summary())

    def summary(self) -> str:
        """Return the state in one sentence."""
        lasting = self.lasting
        unexplained = sum(not one.explanation for one in lasting)
        irreversible = sum(one.irreversible for one in lasting)
        return (
            f"{self.agreed} values agree, {self.differing} differ, {len(lasting)} of them for {LASTING_SECONDS:.0f} s"
            f" or more; of those {unexplained} unexplained, {irreversible} could not be undone once written"
        )


def text_of(one: comparison.Difference) -> str:
    """Return one difference as a line."""
    undone = ", cannot be undone" if one.irreversible else ""
    found = "unreadable" if one.found is None else one.found
    why = one.explanation or "unexplained: please report it with the pod and the NodeSLO"
    return f"{one.path}: there {found}, here {one.wanted} ({one.strategy}: {one.reason}{undone}); {why}"
