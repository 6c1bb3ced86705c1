"""Offline work gets what online work leaves of the CPUs, up to a threshold of the node."""

import math
from collections.abc import Iterable, Sequence
from typing import Literal

from cotenant.act import cgroup, cpu_pool, nested
from cotenant.act.draft import Draft, Target
from cotenant.act.registry import strategy
from cotenant.model.node import Use
from cotenant.model.pod import Pod
from cotenant.model.policy import NodeSlo, ThresholdStrategy
from cotenant.model.snapshot import PodGroup, Snapshot
from cotenant.units import cpulist
from cotenant.units.limit import NONE, Limit
from cotenant.units.plan import PlanItem

DEFAULT_THRESHOLD_PERCENT = 65
RISE_RATIO = 0.1
"""At most this share of the node's CPUs is given back in one round: usage lags behind."""
DEADBAND_RATIO = 0.01
"""Of the node's CPUs: a smaller change of a quota is not written."""
DEADBAND_MIN_MILLICORES = 250
"""A CPU is added only when the target passes the present number by as much (or 1 % of the node): no flapping."""
FAST_KEEP_RATIO = 0.7
"""Of what offline work uses: what the fast path leaves it."""
FAST_PATH = "fast_path"
PREFIX = "spec.resourceUsedThresholdWithBE"
_CPUS_UNKNOWN = "CPUs are not known (give --node)"


def floor_cpus(cpu_count: int) -> int:
    """Return how many CPUs offline work always keeps."""
    return min(2, math.ceil(cpu_count / 4))


def target_millicores(snapshot: Snapshot, slo: NodeSlo) -> float | None:
    """Return how much CPU offline work may use, or None when the node's usage or its CPUs are not known.

    threshold · capacity − online pods − online host applications − max(system, reserved), at least the minimum.
    """
    usage = snapshot.usage
    if usage is None or (usage.node.cpu_millicores is None and usage.system.cpu_millicores is None):
        return None
    capacity = snapshot.node.capacity_millicores
    if capacity is None:
        return None
    percent = slo.threshold.cpu_suppress_threshold_percent
    allowed = capacity * (DEFAULT_THRESHOLD_PERCENT if percent is None else percent) / 100
    pods = {pod.key: pod for pod in snapshot.pods}
    online = sum(_cpu(use) for key, use in usage.pods.items() if key not in pods or not _spared(pods[key]))
    offline_applications = {app.name for app in slo.host_applications if app.offline}
    online += sum(_cpu(u) for name, u in usage.host_applications.items() if name not in offline_applications)
    everybody = sum(_cpu(use) for use in (*usage.pods.values(), *usage.host_applications.values()))
    system = usage.system.cpu_millicores
    if system is None:
        system = max(_cpu(usage.node) - everybody, 0)
    target = allowed - online - max(system, snapshot.node.reserved_millicores)
    if slo.threshold.cpu_suppress_min_percent is not None:
        target = max(target, capacity * slo.threshold.cpu_suppress_min_percent / 100)
    return target


def cpu_count(cpus: int, target: float, old: int) -> int:
    """Return how many CPUs offline work gets: the target rounded up, never below the floor, rising slowly."""
    wanted = max(math.ceil(target / 1000), floor_cpus(cpus))
    deadband = max(cpus * 1000 * DEADBAND_RATIO, DEADBAND_MIN_MILLICORES)
    if wanted == old + 1 and wanted > floor_cpus(cpus) and target - old * 1000 < deadband:
        return old
    return min(wanted, old + math.ceil(RISE_RATIO * cpus)) if wanted > old else wanted


def quota_usec(cpus: int, target: float, current: Limit, period_usec: int = cgroup.DEFAULT_PERIOD_USEC) -> int | None:
    """Return the quota of all offline work together, or None when it is close enough to the current one."""
    floor = floor_cpus(cpus) * period_usec
    wanted = max(round(target * period_usec / 1000), floor)
    if current.value is None:
        return wanted
    if abs(wanted - current.value) < DEADBAND_RATIO * cpus * period_usec and wanted != floor:
        return None
    return min(wanted, current.value + round(RISE_RATIO * cpus * period_usec))


@strategy(
    "cpu_suppress",
    fields=(
        f"{PREFIX}.enable",
        f"{PREFIX}.cpuSuppressThresholdPercent",
        f"{PREFIX}.cpuSuppressMinPercent",
        f"{PREFIX}.cpuSuppressPolicy",
    ),
    features=("cpuset.cpus", "cpu.cfs_quota_us|cpu.max"),
    needs_usage=True,
)
def decide(draft: Draft, slo: NodeSlo) -> None:
    """Hold all offline work together to the CPU that online work leaves, by CPU set or by quota.

    Every pod that is offline is held, wherever its cgroup is. CPUs that are reserved, pinned or exclusive are never
    given to offline work. The policy that is not in use is put back to "no limit". Under the kubelet's static CPU
    policy only containers are narrowed, so that new ones can start. Where somebody else keeps writing over the quota of
    the directory, each group has its own; where they write over those, or over CPU sets, it is by the other policy.
    On v1 groups that nobody lists follow those they are in: the kernel narrows no group below one inside it.
    """
    snapshot = draft.snapshot
    if not slo.threshold.enable:
        _release_quota(draft, "CPU suppression is off")
        _release_cpus(draft, "CPU suppression is off")
        return
    target = target_millicores(snapshot, slo)
    if target is None:
        known = snapshot.node.capacity_millicores is not None
        draft.skipped.append(f"the node's {'CPU usage is not known (give --usage)' if known else _CPUS_UNKNOWN}")
        return
    if uses_quota(slo.threshold) or "cpuset" not in snapshot.hierarchies:
        _by_quota(draft, target)
        _release_inside(draft, "the quota of all offline work holds it")
        _widen_cpus(draft, "suppression is by quota")
    else:
        _by_cpus(draft, target)
        _lift_quota(draft, "suppression is by CPU set")


def tightened(snapshot: Snapshot, slo: NodeSlo) -> tuple[PlanItem, ...]:
    """Return the quotas that hold offline work to a part of what it uses now: for when online work suffers at once.

    Only quotas, never CPU sets, and only such as are lower than those in force; never below the floor.
    """
    usage = snapshot.usage
    if usage is None or not slo.threshold.enable:
        return ()
    used = sum(_cpu(usage.pods.get(g.pod.key, Use())) for g in cgroup.offline_groups(snapshot) if g.pod)
    draft = Draft(snapshot, FAST_PATH)
    _by_quota(draft, used * FAST_KEEP_RATIO)
    found = []
    for target in draft.targets:
        old, new = (snapshot.files.read(target.path) or "", target.value)
        if Limit.parse(new.partition(" ")[0]) < Limit.parse(old.partition(" ")[0] or "max"):
            reason = "online work waits for a CPU"
            found.append(PlanItem(op="write", path=target.path, old=old, new=new, strategy=FAST_PATH, reason=reason))
    return tuple(found)


def uses_quota(threshold: ThresholdStrategy) -> bool:
    """Return whether suppression is on and by quota."""
    return bool(threshold.enable) and threshold.cpu_suppress_policy == "cfsQuota"


def in_force(
    snapshot: Snapshot, slo: NodeSlo, targets: Iterable[Target]
) -> tuple[Literal["cpuset", "cfsQuota"], float] | None:
    """Return by which policy offline work is held and to how many CPUs, by what a plan wants; None where it is not."""
    if not slo.threshold.enable:
        return None
    wanted = {target.path: target.value for target in targets if target.strategy == "cpu_suppress"}
    directory = _directory(snapshot)
    apart = [group.path for group in _apart(snapshot)]
    if uses_quota(slo.threshold) or "cpuset" not in snapshot.hierarchies:
        shares = []
        for group in [*([directory] if directory else []), *apart]:
            limit = Limit.parse(wanted.get(cgroup.quota_path(snapshot, group) or "", "max").partition(" ")[0])
            if limit.value is not None:
                shares.append(limit.value / cgroup.period_usec(snapshot, group))
        return ("cfsQuota", sum(shares)) if shares else None
    sets = [wanted.get(cgroup.cpuset_path(snapshot, group) or "") for group, _ in _groups(snapshot)]
    narrowest = min((len(cpulist.parse(text)) for text in sets if text), default=None)
    return None if narrowest is None else ("cpuset", float(narrowest))


def _spared(pod: Pod) -> bool:
    """Return whether a pod's use is not taken from the target: offline by label, or the kubelet's BestEffort."""
    return pod.qos_label == "BE" or pod.kube_qos == "BestEffort"


def _cpu(use: Use) -> float:
    return use.cpu_millicores or 0.0


# --- by CPU set -----------------------------------------------------------------------------------------------------


def _by_cpus(draft: Draft, target: float) -> None:
    snapshot = draft.snapshot
    available = cpu_pool.offline_pool(snapshot)
    if not available:
        draft.left_out.append("every CPU is reserved or exclusive: offline work cannot be given any of its own")
        return
    count = cpu_count(len(snapshot.topology.cpus), target, len(_present(snapshot)))
    wanted = choose(snapshot, min(count, len(available)))
    reason = (
        f"offline work may use {len(wanted)} of {len(available)} CPUs: {max(target, 0):.0f} millicores are left to it"
    )
    static = snapshot.topology.kubelet_policy == "static"
    for group, is_container in _groups(snapshot):
        # The kubelet starts containers with all CPUs: narrower parents would refuse that under its static policy.
        narrow = is_container or not static
        cgroup.set_cpus(
            draft, group, wanted if narrow else available, reason if narrow else "kept wide for the kubelet"
        )
    for group, cpus in _nested(snapshot, wanted).items():
        cgroup.set_cpus(draft, group, cpus, f"inside offline work: {reason}")


def choose(snapshot: Snapshot, count: int) -> list[int]:
    """Return the CPUs for offline work: of LSR pods' and of free CPUs in proportion, by whole cores and spread."""
    available = cpu_pool.offline_pool(snapshot)
    lsr = cpu_pool.held(snapshot, "LSR") & available
    free = available - lsr
    from_lsr = count * len(lsr) // (len(lsr) + len(free)) if available else 0
    by_id = {cpu.id: cpu for cpu in snapshot.topology.cpus}
    picked = cpu_pool.pick([by_id[cpu] for cpu in free], count - from_lsr)
    return picked + cpu_pool.pick([by_id[cpu] for cpu in lsr], count - len(picked))


def _present(snapshot: Snapshot) -> frozenset[int]:
    """Return the CPUs that offline work has now: its QoS directory's, or its containers' under the static policy."""
    directory = snapshot.qos_paths.get("BestEffort")
    here = cgroup.cpus(snapshot, directory) if directory else None
    if snapshot.topology.kubelet_policy == "static" or here is None:
        children = [c.path for group in cgroup.offline_groups(snapshot) for c in group.containers]
        lists = [cpus for path in children if (cpus := cgroup.cpus(snapshot, path)) is not None]
        here = frozenset().union(*lists) if lists else here
    return snapshot.topology.ids if here is None else here


def _groups(snapshot: Snapshot) -> list[tuple[str, bool]]:
    """Return every group that holds offline work, parents first, and whether it is a container's."""
    found: list[tuple[str, bool]] = []
    directory = snapshot.qos_paths.get("BestEffort")
    if directory:
        found.append((directory, False))
    for group in snapshot.groups:
        if _is_held(group):
            found.append((group.path, False))
            found += [(container.path, True) for container in group.containers]
    return found


def _nested(snapshot: Snapshot, wanted: Iterable[int]) -> dict[str, frozenset[int]]:
    return nested.narrowed(snapshot, [group for group, _ in _groups(snapshot)], frozenset(wanted))


def _is_held(group: PodGroup) -> bool:
    """Return whether a group is held: its pod is offline, or it sits in the offline directory and holds all it can."""
    if group.pod is not None and group.pod.best_effort:
        return True
    return group.qos == "BestEffort"


def _widen_cpus(draft: Draft, reason: str) -> None:
    snapshot = draft.snapshot
    if "CPU sets" in snapshot.left_to_others:
        return
    available = cpu_pool.offline_pool(snapshot)
    for group, _ in _groups(snapshot):
        cgroup.keep_cpus(draft, group, available, reason)
    for group, cpus in _nested(snapshot, available).items():
        cgroup.set_cpus(draft, group, cpus, f"inside offline work: {reason}")


def _release_cpus(draft: Draft, reason: str) -> None:
    snapshot = draft.snapshot
    if "CPU sets" in snapshot.left_to_others:
        return
    available = cpu_pool.offline_pool(snapshot)
    for group, _ in _groups(snapshot):
        cgroup.release_cpus(draft, group, available, reason)
    for group, cpus in _nested(snapshot, available).items():
        cgroup.release_cpus(draft, group, cpus, reason)


# --- by quota -------------------------------------------------------------------------------------------------------


def _by_quota(draft: Draft, target: float) -> None:
    snapshot = draft.snapshot
    directory = _directory(snapshot)
    apart = _apart(snapshot)
    period = cgroup.period_usec(snapshot, directory) if directory else cgroup.DEFAULT_PERIOD_USEC
    cpus = len(snapshot.topology.cpus)
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


def _directory(snapshot: Snapshot) -> str | None:
    """Return the directory whose quota holds the offline work in it; None where there is none, or it is not ours."""
    return None if "directory quota" in snapshot.left_to_others else snapshot.qos_paths.get("BestEffort")


def _apart(snapshot: Snapshot) -> list[PodGroup]:
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


def _lift_quota(draft: Draft, reason: str) -> None:
    directory = _directory(draft.snapshot)
    if directory and "group quotas" not in draft.snapshot.left_to_others:
        cgroup.set_quota(draft, directory, NONE, reason)
    _release_quota(draft, reason)


def _release_quota(draft: Draft, reason: str) -> None:
    snapshot = draft.snapshot
    if "group quotas" in snapshot.left_to_others:
        return
    directory = _directory(snapshot)
    if directory:
        cgroup.release_quota(draft, directory, NONE, reason)
    _release_groups(draft, [g for g in cgroup.offline_groups(snapshot) if g.qos != "BestEffort"], reason)
    _release_inside(draft, reason)


def _release_inside(draft: Draft, reason: str) -> None:
    """Give back the quotas of groups in the directory, from when that was somebody else's.

    Those of pods with batch resources are another strategy's.
    """
    inside = [g for g in draft.snapshot.groups if g.qos == "BestEffort" and g.pod and not g.pod.has_extended_spec]
    _release_groups(draft, inside, reason)


def _release_groups(draft: Draft, groups: Sequence[PodGroup], reason: str) -> None:
    for group in groups:
        places = [(group.path, group.pod.containers if group.pod else ())]
        places += [(child.path, (child.container,)) for child in group.containers if child.container]
        for path, containers in places:
            own = cgroup.limit_usec(containers, cgroup.period_usec(draft.snapshot, path))
            cgroup.release_quota(draft, path, Limit(own), reason)
