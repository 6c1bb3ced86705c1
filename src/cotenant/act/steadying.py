"""What keeps the quota of offline work from following every breath of the node: a mean of usage, and a dead band.

Suppression looks at one moment. In a loop that would be a write each second, and giving back, a second after the fast
path took it, what it took.
"""

import collections
from collections.abc import Collection, Iterable, Sequence

from cotenant.model.node import Usage, Use
from cotenant.units import ordering
from cotenant.units.limit import Limit
from cotenant.units.plan import PlanItem

MEAN_SAMPLES = 5
"""Usage is the mean of as many samples: a burst of one second is the fast path's business."""
DEADBAND_RATIO = 0.05
"""Of the node's CPUs: a change of one quota by less is not written."""
HOLD_SECONDS = 5.0
"""After the fast path has tightened, no quota is raised for so long."""


class Steadying:
    """State of one node from one round to the next."""

    def __init__(self) -> None:
        self._recent: collections.deque[Usage] = collections.deque(maxlen=MEAN_SAMPLES)

    def usage(self, newest: Usage) -> Usage:
        """Take one usage in and return the mean of the recent ones; what is unknown in the newest stays unknown."""
        self._recent.append(newest)
        return Usage(
            node=_mean(newest.node, (u.node for u in self._recent)),
            system=_mean(newest.system, (u.system for u in self._recent)),
            pods={
                name: _mean(use, (u.pods[name] for u in self._recent if name in u.pods))
                for name, use in newest.pods.items()
            },
            host_applications=newest.host_applications,
        )


def _mean(newest: Use, recent: Iterable[Use]) -> Use:
    known = [use.cpu_millicores for use in recent if use.cpu_millicores is not None]
    cpu = sum(known) / len(known) if known and newest.cpu_millicores is not None else None
    return Use(cpu_millicores=cpu, memory_bytes=newest.memory_bytes, throttled_ratio=newest.throttled_ratio)


def calm(items: Sequence[PlanItem], cpus: int, tightened_s_ago: float | None) -> tuple[PlanItem, ...]:
    """Return a plan without quotas of suppression that hardly change, and without raises just after a tightening.

    What is to be written inside a group goes with that group's own quota: v1 takes none above the one around it.
    """
    holding = tightened_s_ago is not None and tightened_s_ago < HOLD_SECONDS
    changes: dict[str, tuple[str | None, str | None]] = {}
    for item in filter(_is_suppression, items):
        first, _ = changes.get(_group(item), (item.old, None))
        changes[_group(item)] = first, item.new
    waiting = {group for group, (old, new) in changes.items() if _waits(old, new, cpus, holding)}
    return tuple(
        item for item in items if not _is_suppression(item) or _outermost(_group(item), changes) not in waiting
    )


def _group(item: PlanItem) -> str:
    return (item.path or "").rpartition("/")[0]


def _outermost(group: str, changes: Collection[str]) -> str:
    """Return the outermost changed group around one, or itself."""
    found = above = group
    while above := above.rpartition("/")[0]:
        found = above if above in changes else found
    return found


def _is_suppression(item: PlanItem) -> bool:
    name = (item.path or "").rpartition("/")[2]
    return item.op == "write" and item.strategy == "cpu_suppress" and name in ordering.QUOTA_FILES


def _waits(before: str | None, after: str | None, cpus: int, holding: bool) -> bool:
    old, new = _quota(before), _quota(after)
    if old is None or new is None or old.value is None:
        return False
    if holding and old < new:
        return True
    if new.value is None:
        return False
    period = int((after or "").partition(" ")[2] or 100_000)
    return abs(new.value - old.value) < DEADBAND_RATIO * cpus * period


def _quota(text: str | None) -> Limit | None:
    try:
        return Limit.parse((text or "").partition(" ")[0])
    except ValueError:
        return None
