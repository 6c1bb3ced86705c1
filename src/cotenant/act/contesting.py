"""Protection is never given up: when somebody keeps writing over a file, it moves to where they do not write.

From the quota of the directory of offline work to each group's own, from there to CPU sets; and from CPU sets, where
the policy suppresses by them, to quotas. A place that is left is not written at all; after ten minutes it is tried
again. Where every place is contested, the policy's own is written each time.
"""

from collections.abc import Iterable, Sequence
from typing import get_args

import msgspec

from cotenant.act.draft import Target
from cotenant.model.enforcement import Contest
from cotenant.model.policy import NodeSlo
from cotenant.model.snapshot import Place, Snapshot
from cotenant.units import ordering

RETRY_SECONDS = 600.0
WRITTEN_AGAIN = "written again each time"
_BY_CPUS, _BY_QUOTA = "offline work is held by CPU sets instead", "offline work is held by quotas instead"
_LAST: tuple[Place, Place] = ("group quotas", "CPU sets")
"""Where both are contested, there is nowhere to go."""
_SUPPRESSING = ("cpu_suppress", "fast_path")


class Contesting:
    """Where protection is now, and until when."""

    def __init__(self) -> None:
        self._until: dict[Place, float] = {}
        self._told: dict[str, Contest] = {}

    def left(self, slo: NodeSlo, now: float) -> frozenset[Place]:
        """Return the places that are left to whoever writes them. ``now`` is a monotonic clock."""
        contested = {place for place in get_args(Place) if now < self._until.get(place, 0.0)}
        if set(_LAST) <= contested:
            contested -= {"directory quota", "group quotas"} if _by_quota(slo) else {"CPU sets"}
        return frozenset(contested)

    def policy(self, slo: NodeSlo, now: float) -> NodeSlo:
        """Return the policy that suppresses where nobody else writes."""
        left, by_quota = self.left(slo, now), _by_quota(slo)
        if not slo.threshold.enable or ("group quotas" if by_quota else "CPU sets") not in left:
            return slo
        other = "cpuset" if by_quota else "cfsQuota"
        threshold = msgspec.structs.replace(slo.threshold, cpu_suppress_policy=other)
        return msgspec.structs.replace(slo, threshold=threshold)

    def applied(self, snapshot: Snapshot, slo: NodeSlo, now: float) -> tuple[Snapshot, NodeSlo]:
        """Return the snapshot with the places that are left, and the policy that suppresses by those that are not."""
        return msgspec.structs.replace(snapshot, left_to_others=self.left(slo, now)), self.policy(slo, now)

    def follow(
        self,
        contested: Iterable[Contest],
        targets: Sequence[Target],
        snapshot: Snapshot,
        slo: NodeSlo,
        now: float,
    ) -> tuple[list[Contest], list[Contest]]:
        """Take in what is contested now, and return all of it, each with what is done about it, and what is new.

        ``targets`` say which strategy wants which file; ``slo`` is the policy as it was given.
        """
        owners = {target.path: target.strategy for target in targets}
        found: dict[str, Contest] = {}
        for one in contested:
            path, told = one.path, self._told.get(one.path)
            answer = told.answer if told is not None else self._answer(path, owners.get(path, ""), snapshot, slo, now)
            found[path] = msgspec.structs.replace(one, answer=answer)
        new = [contest for path, contest in found.items() if path not in self._told]
        self._told = found
        return list(found.values()), new

    def _answer(self, path: str, strategy: str, snapshot: Snapshot, slo: NodeSlo, now: float) -> str:
        place = place_of(path, snapshot) if strategy in _SUPPRESSING else None
        if place is None:
            return WRITTEN_AGAIN
        self._until[place] = now + RETRY_SECONDS
        if all(now < self._until.get(each, 0.0) for each in _LAST):
            return f"{WRITTEN_AGAIN}: somebody else writes quotas and CPU sets"
        if _by_quota(self.policy(slo, now)):
            return "each group has a quota of its own instead" if place == "directory quota" else _BY_QUOTA
        return _BY_CPUS


def place_of(path: str, snapshot: Snapshot) -> Place | None:
    """Return which part of suppression a file belongs to; None for one that holds nothing back."""
    directory, _, name = path.rpartition("/")
    if name in ordering.CPUSET_FILES:
        return "CPU sets"
    if name not in ordering.QUOTA_FILES:
        return None
    shared = snapshot.qos_paths.get("BestEffort")
    cpu = snapshot.hierarchies.get("cpu")
    is_shared = shared is not None and cpu is not None and directory == f"{cpu.path}/{shared}"
    return "directory quota" if is_shared else "group quotas"


def _by_quota(slo: NodeSlo) -> bool:
    return slo.threshold.cpu_suppress_policy == "cfsQuota"
