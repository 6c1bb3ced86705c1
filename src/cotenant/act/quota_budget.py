"""How long a container may be above its CPU limit: ``cfsQuotaBurstPeriodSeconds``, as a budget that is used and filled.

A full budget is the period at the most that the quota may be enlarged to; at less it lasts longer. It is used while the
container runs above its limit, filled while it runs below six tenths of it, and stays as it is in between.
"""

import dataclasses

import msgspec

from cotenant.act import cgroup, cpu_burst
from cotenant.model.policy import NodeSlo
from cotenant.model.snapshot import Snapshot

RESTING_PERCENT = 60
"""Of its limit: a container that uses less rests, and its budget fills by what it leaves of the limit."""
RESUME_RATIO = 0.25
"""Once used up, a budget counts again when so much of it is back: else the quota would rise and fall by the second."""
FORGOTTEN_SECONDS = 60.0
"""A container that was not seen for twice its period, and at least for so long, begins anew."""


@dataclasses.dataclass(slots=True)
class Budget:
    """What one container may still use. Amounts are percent of its limit, times seconds."""

    period_s: float
    percent: int
    left: float
    spent: bool = False

    @classmethod
    def full(cls, period_s: float, percent: int) -> "Budget":
        size = period_s * (percent - 100)
        return cls(period_s, percent, size, spent=size <= 0)

    @property
    def size(self) -> float:
        return self.period_s * (self.percent - 100)

    def resized(self, period_s: float, percent: int) -> "Budget":
        """Return the budget by another policy, as full as it was."""
        if (period_s, percent) == (self.period_s, self.percent):
            return self
        new = Budget.full(period_s, percent)
        if self.size > 0 and new.size > 0:
            new.left, new.spent = new.size * self.left / self.size, self.spent
        return new

    def take(self, used_percent: float, seconds: float) -> None:
        """Count that so much of the limit was used for so long."""
        if used_percent >= 100 or used_percent < RESTING_PERCENT:
            self.left += (100 - used_percent) * seconds
        self.left = min(max(self.left, -self.size), self.size)
        if self.left <= 0:
            self.spent = True
        elif self.left >= self.size * RESUME_RATIO:
            self.spent = False


@dataclasses.dataclass(slots=True)
class _Known:
    at_s: float
    base_usec: int
    is_rebased: bool = False
    cpu_usec: int | None = None
    budget: Budget | None = None


class Budgets:
    """The budgets of a node's containers, and the limits that their quotas were set by."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def applied(self, snapshot: Snapshot, slo: NodeSlo, now: float) -> Snapshot:
        """Count what was used since the last look, and return the snapshot with who has nothing left.

        ``now`` is a monotonic clock. A container that is new has a full budget; one whose CPU time cannot be read keeps
        what it has.
        """
        spent, rebased = set(), set()
        for candidate in cpu_burst.candidates(snapshot, slo):
            path = candidate.group.path
            known = self._known.setdefault(path, _Known(now, candidate.base_usec))
            _follow_limit(known, candidate)
            if candidate.period_seconds is None:
                known.budget, known.cpu_usec = None, None
            else:
                _count(known, candidate, cgroup.cpu_time_usec(snapshot, path), now)
            known.at_s = now
            if known.budget is not None and known.budget.spent:
                spent.add(path)
            if known.is_rebased:
                rebased.add(path)
        self._known = {path: known for path, known in self._known.items() if now - known.at_s <= _kept_s(known)}
        return msgspec.structs.replace(snapshot, burst_spent=frozenset(spent), burst_rebased=frozenset(rebased))


def _follow_limit(known: _Known, candidate: cpu_burst.Candidate) -> None:
    """Notice another limit, until the quota has begun from it."""
    if candidate.base_usec != known.base_usec:
        known.is_rebased = True
    known.base_usec = candidate.base_usec
    if candidate.current.value in (None, candidate.base_usec):
        known.is_rebased = False


def _count(known: _Known, candidate: cpu_burst.Candidate, cpu_usec: int | None, now: float) -> None:
    period_s, percent = float(candidate.period_seconds or 0), candidate.percent
    budget = Budget.full(period_s, percent) if known.budget is None else known.budget.resized(period_s, percent)
    seconds, before = now - known.at_s, known.cpu_usec
    if cpu_usec is not None and before is not None and cpu_usec >= before and seconds > 0:
        used = (cpu_usec - before) / (seconds * 1e6)
        budget.take(100 * used * candidate.period_usec / candidate.base_usec, seconds)
    known.budget, known.cpu_usec = budget, cpu_usec


def _kept_s(known: _Known) -> float:
    return max(FORGOTTEN_SECONDS, 2 * known.budget.period_s if known.budget is not None else 0.0)
