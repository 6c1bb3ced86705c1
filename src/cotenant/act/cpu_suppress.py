"""Offline work gets what online work leaves of the CPUs, up to a threshold of the node."""

import dataclasses
from collections.abc import Iterable
from typing import Literal

from cotenant.act import cgroup, nested, offline_cpus, offline_quota, sequence
from cotenant.act.draft import Draft, Target, step
from cotenant.act.registry import strategy
from cotenant.model.node import Use
from cotenant.model.pod import Pod
from cotenant.model.policy import NodeSlo, ThresholdStrategy
from cotenant.model.snapshot import Snapshot
from cotenant.units import cpulist
from cotenant.units.limit import Limit
from cotenant.units.plan import PlanItem

DEFAULT_THRESHOLD_PERCENT = 65
FAST_KEEP_RATIO = 0.7
"""Of what offline work uses: what the fast path leaves it."""
FAST_PATH = "fast_path"
PREFIX = "spec.resourceUsedThresholdWithBE"
_CPUS_UNKNOWN = "CPUs are not known (give --node)"


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
    given to offline work, and containers stay on the NUMA nodes that the scheduler gave their pod. The policy that is
    not in use is put back to "no limit". Under the kubelet's static CPU policy only containers are narrowed, so that
    new ones can start. Where somebody else keeps writing over the quota of the directory, each group has its own; where
    they write over those, or over CPU sets, it is by the other policy.
    On v1 groups that nobody lists follow those they are in: the kernel narrows no group below one inside it. One with a
    larger quota of its own loses that for as long as it does not fit.
    """
    snapshot = draft.snapshot
    if not slo.threshold.enable:
        offline_quota.release(draft, "CPU suppression is off")
        offline_cpus.release(draft, "CPU suppression is off")
        return
    target = target_millicores(snapshot, slo)
    if target is None:
        known = snapshot.node.capacity_millicores is not None
        draft.skipped.append(f"the node's {'CPU usage is not known (give --usage)' if known else _CPUS_UNKNOWN}")
        return
    if _by_quota(snapshot, slo):
        if not uses_quota(slo.threshold):
            draft.notices.append("offline work is held by quota: this node shows no CPU sets, or not which CPUs it has")
        offline_quota.hold(draft, target)
        offline_quota.release_inside(draft, "the quota of all offline work holds it")
        offline_cpus.widen(draft, "suppression is by quota")
    else:
        offline_cpus.hold(draft, target)
        offline_quota.lift(draft, "suppression is by CPU set")


def tightened(snapshot: Snapshot, slo: NodeSlo) -> tuple[PlanItem, ...]:
    """Return the quotas that hold offline work to a part of what it uses now: for when online work suffers at once.

    Only quotas, never CPU sets, and only such as are lower than those in force, with what makes room for them inside;
    never below the floor.
    """
    usage = snapshot.usage
    if usage is None or not slo.threshold.enable:
        return ()
    used = sum(_cpu(usage.pods.get(g.pod.key, Use())) for g in cgroup.offline_groups(snapshot) if g.pod)
    draft = Draft(snapshot, FAST_PATH)
    offline_quota.hold(draft, used * FAST_KEEP_RATIO)
    wanted = {target.path: target for target in draft.targets}
    wanted |= {target.path: target for target in nested.quotas(snapshot, draft.targets)}
    lower = tuple(path.rpartition("/")[0] for path, target in wanted.items() if _is_lower(snapshot, target))
    reason = "online work waits for a CPU"
    # With what is inside a group that becomes narrower: on v1 the kernel wants it to fit first.
    chosen = (t for t in wanted.values() if f"{t.path.rpartition('/')[0]}/".startswith(tuple(f"{d}/" for d in lower)))
    items = (step(snapshot, dataclasses.replace(target, reason=reason)) for target in chosen)
    return sequence.ordered(snapshot, [item for item in items if item is not None])


def _is_lower(snapshot: Snapshot, target: Target) -> bool:
    old = snapshot.files.read(target.path) or "max"
    return Limit.parse(target.value.partition(" ")[0]) < Limit.parse(old.partition(" ")[0])


def uses_quota(threshold: ThresholdStrategy) -> bool:
    """Return whether suppression is on and by quota."""
    return bool(threshold.enable) and threshold.cpu_suppress_policy == "cfsQuota"


def _by_quota(snapshot: Snapshot, slo: NodeSlo) -> bool:
    """Return whether offline work is held by quota: as asked for, or since CPU sets cannot be told."""
    return uses_quota(slo.threshold) or "cpuset" not in snapshot.hierarchies or not snapshot.topology.cpus


def in_force(
    snapshot: Snapshot, slo: NodeSlo, targets: Iterable[Target]
) -> tuple[Literal["cpuset", "cfsQuota"], float] | None:
    """Return by which policy offline work is held and to how many CPUs, by what a plan wants; None where it is not."""
    if not slo.threshold.enable:
        return None
    wanted = {target.path: target.value for target in targets if target.strategy == "cpu_suppress"}
    directory = offline_quota.directory_of(snapshot)
    apart = [group.path for group in offline_quota.groups_apart(snapshot)]
    if _by_quota(snapshot, slo):
        shares = []
        for group in [*([directory] if directory else []), *apart]:
            limit = Limit.parse(wanted.get(cgroup.quota_path(snapshot, group) or "", "max").partition(" ")[0])
            if limit.value is not None:
                shares.append(limit.value / cgroup.period_usec(snapshot, group))
        return ("cfsQuota", sum(shares)) if shares else None
    sets = [wanted.get(cgroup.cpuset_path(snapshot, group) or "") for group in offline_cpus.unbound(snapshot)]
    narrowest = min((len(cpulist.parse(text)) for text in sets if text), default=None)
    return None if narrowest is None else ("cpuset", float(narrowest))


def _spared(pod: Pod) -> bool:
    """Return whether a pod's use is not taken from the target: offline by label, or the kubelet's BestEffort."""
    return pod.qos_label == "BE" or pod.kube_qos == "BestEffort"


def _cpu(use: Use) -> float:
    return use.cpu_millicores or 0.0
