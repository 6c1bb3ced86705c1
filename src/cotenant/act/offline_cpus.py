"""Offline work held by CPU sets: which CPUs it gets, in which groups they are stated, and how they are given back."""

import math
from collections.abc import Iterable

from cotenant.act import cgroup, cpu_pool, nested, offline_quota
from cotenant.act.draft import Draft
from cotenant.model.snapshot import PodGroup, Snapshot

DEADBAND_MIN_MILLICORES = 250
"""A CPU is added only when the target passes the present number by as much (or 1 % of the node): no flapping."""


def cpu_count(cpus: int, target: float, old: int) -> int:
    """Return how many CPUs offline work gets: the target rounded up, never below the floor, rising slowly."""
    wanted = max(math.ceil(target / 1000), offline_quota.floor_cpus(cpus))
    deadband = max(cpus * 1000 * offline_quota.DEADBAND_RATIO, DEADBAND_MIN_MILLICORES)
    if wanted == old + 1 and wanted > offline_quota.floor_cpus(cpus) and target - old * 1000 < deadband:
        return old
    return min(wanted, old + math.ceil(offline_quota.RISE_RATIO * cpus)) if wanted > old else wanted


def hold(draft: Draft, target: float) -> None:
    """Hold offline work to a target in thousandths of a CPU, by whole CPUs for all its groups."""
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
    bound = _bound(snapshot)
    for group, is_container in groups(snapshot):
        # The kubelet starts containers with all CPUs: narrower parents would refuse that under its static policy.
        narrow = is_container or not static
        cpus = _within(frozenset(wanted), bound.get(group)) if narrow else available
        cgroup.set_cpus(draft, group, cpus, reason if narrow else "kept wide for the kubelet")
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


def groups(snapshot: Snapshot) -> list[tuple[str, bool]]:
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


def unbound(snapshot: Snapshot) -> list[str]:
    """Return the groups that show how many CPUs offline work has: all but containers bound to some of the nodes."""
    bound = _bound(snapshot)
    return [group for group, _ in groups(snapshot) if group not in bound]


def _bound(snapshot: Snapshot) -> dict[str, frozenset[int]]:
    """Return the CPUs that offline work may have on the NUMA nodes which the scheduler gave a pod, by container."""
    found: dict[str, frozenset[int]] = {}
    for group in cgroup.offline_groups(snapshot):
        nodes = group.pod.resource_status.numa_nodes if group.pod else ()
        if nodes:
            own = cpu_pool.union(cpu_pool.offline_pools(snapshot), nodes)
            found.update((child.path, own) for child in group.containers)
    return found


def _within(cpus: frozenset[int], bound: frozenset[int] | None) -> frozenset[int]:
    """Return the CPUs that a container is bound to, of these; all of these where it is not, or to none of them."""
    return cpus if bound is None else cpus & bound or cpus


def _nested(snapshot: Snapshot, wanted: Iterable[int]) -> dict[str, frozenset[int]]:
    cpus = frozenset(wanted)
    found = nested.narrowed(snapshot, [group for group, _ in groups(snapshot)], cpus)
    for container, own in _bound(snapshot).items():
        found |= nested.narrowed(snapshot, [container], _within(cpus, own))
    return found


def _is_held(group: PodGroup) -> bool:
    """Return whether a group is held: its pod is offline, or it sits in the offline directory and holds all it can."""
    if group.pod is not None and group.pod.best_effort:
        return True
    return group.qos == "BestEffort"


def widen(draft: Draft, reason: str) -> None:
    """Let offline work run on every CPU that is not reserved or exclusive."""
    snapshot = draft.snapshot
    if "CPU sets" in snapshot.left_to_others:
        return
    available, bound = cpu_pool.offline_pool(snapshot), _bound(snapshot)
    for group, _ in groups(snapshot):
        cgroup.keep_cpus(draft, group, _within(available, bound.get(group)), reason)
    for group, cpus in _nested(snapshot, available).items():
        cgroup.set_cpus(draft, group, cpus, f"inside offline work: {reason}")


def release(draft: Draft, reason: str) -> None:
    """Give back the CPUs that were there before us, where we still hold them."""
    snapshot = draft.snapshot
    if "CPU sets" in snapshot.left_to_others:
        return
    available = cpu_pool.offline_pool(snapshot)
    for group, _ in groups(snapshot):
        cgroup.release_cpus(draft, group, available, reason)
    for group, cpus in _nested(snapshot, available).items():
        cgroup.release_cpus(draft, group, cpus, reason)
