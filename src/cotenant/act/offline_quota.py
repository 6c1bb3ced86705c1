"""Offline work held by quota: how much it gets, which groups share it, and how it is given back.

One quota of the directory holds all that is in it. Offline pods elsewhere have shares of their own; so have those in
it where the directory is somebody else's.
"""

import math
from collections.abc import Sequence

from cotenant.act import cgroup
from cotenant.act.draft import Draft
from cotenant.model.snapshot import PodGroup, Snapshot
from cotenant.units.limit import NONE, Limit

RISE_RATIO = 0.1
"""At most this share of the node's CPUs is given back in one round: usage lags behind."""
DEADBAND_RATIO = 0.01
"""Of the node's CPUs: a smaller change of a quota is not written."""


def floor_cpus(cpu_count: int) -> int:
    """Return how many CPUs offline work always keeps."""
    return min(2, math.ceil(cpu_count / 4))


def quota_usec(cpus: int, target: float, current: Limit, period_usec: int = cgroup.DEFAULT_PERIOD_USEC) -> int | None:
    """Return the quota of all offline work together, or None when it is close enough to the current one."""
    floor = floor_cpus(cpus) * period_usec
    wanted = max(round(target * period_usec / 1000), floor)
    if current.value is None:
        return wanted
    if abs(wanted - current.value) < DEADBAND_RATIO * cpus * period_usec and wanted != floor:
        return None
    return min(wanted, current.value + round(RISE_RATIO * cpus * period_usec))


def hold(draft: Draft, target: float) -> None:
    """Hold offline work to a target in thousandths of a CPU, by the directory's quota and the shares of pods apart."""
    snapshot = draft.snapshot
    directory = directory_of(snapshot)
    apart = groups_apart(snapshot)
    period = cgroup.period_usec(snapshot, directory) if directory else cgroup.DEFAULT_PERIOD_USEC
    cpus = snapshot.cpu_count
    current = _current_total(snapshot, directory, apart, period)
    total = quota_usec(cpus, target, current, period)
    if total is None:
        total = current.value or 0
    reason = f"offline work may use {total * 1000 // period} millicores together"
    inside = [g for g in snapshot.groups if g.qos == "BestEffort" and g.pod is not None]
    shares = split(
        total,
        [*([sum(map(_weight, inside))] if directory else []), *map(_weight, apart)],
        [
            *([None] if directory else []),
            *(_most(snapshot, group, period) for group in apart),
        ],
    )
    if directory:
        cgroup.set_quota(draft, directory, Limit(shares.pop(0)), reason)
    for group, share in zip(apart, shares, strict=True):
        own_period = cgroup.period_usec(snapshot, group.path)
        limit = Limit(max(share * own_period // period, cgroup.MIN_QUOTA_USEC))
        cgroup.set_quota(draft, group.path, limit, reason)
        for child in group.containers:
            own = cgroup.limit_usec([child.container], own_period) if child.container else None
            # v1 refuses a child that may use more than its parent.
            fits = own is not None and Limit(own) < limit
            cgroup.set_quota(draft, child.path, Limit(own) if fits else NONE, "held by its pod's share of the target")


def split(total: int, weights: Sequence[float], caps: Sequence[int | None]) -> list[int]:
    """Return shares of a quota in proportion to weights, none above its cap or below what the kernel accepts.

    They sum to the total, unless every share is at its cap or the total is less than the smallest shares together.
    """
    shares = [cgroup.MIN_QUOTA_USEC] * len(weights)
    open_ = [i for i, cap in enumerate(caps) if cap is None or cap > cgroup.MIN_QUOTA_USEC]
    while open_ and (spare := total - sum(shares)) > 0:
        sum_of_weights = sum(weights[i] for i in open_)
        for i in open_:
            part = weights[i] / sum_of_weights if sum_of_weights else 1 / len(open_)
            shares[i] += min(int(spare * part), _room(shares[i], caps[i], spare))
        left = total - sum(shares)
        if left < len(weights):  # what rounding left over
            for i in [*open_, *range(len(weights))]:
                more = min(_room(shares[i], caps[i], left), left)
                shares[i] += more
                left -= more
            break
        open_ = [i for i in open_ if _room(shares[i], caps[i], 1) and (weights[i] or not sum_of_weights)] or [
            i for i in range(len(weights)) if _room(shares[i], caps[i], 1)
        ]
    return shares


def _room(share: int, cap: int | None, spare: int) -> int:
    return spare if cap is None else max(cap - share, 0)


def _most(snapshot: Snapshot, group: PodGroup, period: int) -> int | None:
    """Return the largest quota of a group: its own limit, and what somebody else gave the directory that it is in.

    v1 refuses more than the latter.
    """
    found = [cgroup.limit_usec(group.pod.containers, period) if group.pod else None]
    directory = snapshot.qos_paths.get("BestEffort") if group.qos == "BestEffort" else None
    above = cgroup.quota(snapshot, directory) if directory else None
    if directory and above is not None and above.value is not None:
        found.append(above.value * period // cgroup.period_usec(snapshot, directory))
    return min((usec for usec in found if usec is not None), default=None)


def directory_of(snapshot: Snapshot) -> str | None:
    """Return the directory whose quota holds the offline work in it; None where there is none, or it is not ours."""
    return None if "directory quota" in snapshot.left_to_others else snapshot.qos_paths.get("BestEffort")


def groups_apart(snapshot: Snapshot) -> list[PodGroup]:
    """Return the groups of offline pods that are held each by itself: outside the directory, or all of them."""
    everywhere = "directory quota" in snapshot.left_to_others
    return [g for g in cgroup.offline_groups(snapshot) if everywhere or g.qos != "BestEffort"]


def _weight(group: PodGroup) -> float:
    """Return a pod's share: its request, or one CPU where it asks for nothing."""
    pod = group.pod
    return (pod.batch_request_millicores() or pod.request_millicores() or 1000) if pod and pod.active else 0


def _current_total(snapshot: Snapshot, directory: str | None, apart: Sequence[PodGroup], period: int) -> Limit:
    """Return what all offline work may use now; no limit when some of it has none."""
    total = 0
    for group in [*filter(None, [directory]), *(g.path for g in apart)]:
        limit = cgroup.quota(snapshot, group)
        if limit is None or limit.value is None:
            return NONE
        total += limit.value * period // cgroup.period_usec(snapshot, group)
    return Limit(total) if directory or apart else NONE


def lift(draft: Draft, reason: str) -> None:
    """Let offline work have what it wants: no quota of the directory, each group's own limit again."""
    directory = directory_of(draft.snapshot)
    if directory and "group quotas" not in draft.snapshot.left_to_others:
        cgroup.set_quota(draft, directory, NONE, reason)
    release(draft, reason)


def release(draft: Draft, reason: str) -> None:
    """Give back what was there before us, where we still hold it."""
    snapshot = draft.snapshot
    if "group quotas" in snapshot.left_to_others:
        return
    directory = directory_of(snapshot)
    if directory:
        cgroup.release_quota(draft, directory, NONE, reason)
    _release_groups(draft, [g for g in cgroup.offline_groups(snapshot) if g.qos != "BestEffort"], reason)
    release_inside(draft, reason)


def release_inside(draft: Draft, reason: str) -> None:
    """Give back the quotas of groups in the directory, from when that was somebody else's, or was less than theirs.

    Those of pods with batch resources are another strategy's. What is less now is looked after by ``nested``.
    """
    snapshot = draft.snapshot
    for group in snapshot.groups:
        if group.qos != "BestEffort" or group.pod is None or group.pod.has_extended_spec:
            continue
        for path in (group.path, *(child.path for child in group.containers)):
            file = cgroup.quota_path(snapshot, path)
            before = snapshot.journal.get(file or "")
            if before is not None:
                draft.release(file, before, reason)


def _release_groups(draft: Draft, groups: Sequence[PodGroup], reason: str) -> None:
    for group in groups:
        places = [(group.path, group.pod.containers if group.pod else ())]
        places += [(child.path, (child.container,)) for child in group.containers if child.container]
        for path, containers in places:
            own = cgroup.limit_usec(containers, cgroup.period_usec(draft.snapshot, path))
            cgroup.release_quota(draft, path, Limit(own), reason)
