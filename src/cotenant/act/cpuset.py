"""CPUs for online containers: their own, or the share pools."""

from cotenant.act import cgroup, cpu_pool, host_application
from cotenant.act.draft import Draft
from cotenant.act.registry import strategy
from cotenant.model.pod import Container, Pod
from cotenant.model.policy import NodeSlo
from cotenant.model.snapshot import PodGroup, Snapshot
from cotenant.units import cpulist
from cotenant.units.limit import NONE


def container_cpus(
    snapshot: Snapshot, group: PodGroup, container: Container | None
) -> tuple[frozenset[int], str] | None:
    """Return the CPUs of a container and why, or None where they are not ours to say.

    In this order: the CPUs that the scheduler gave the pod; the share pools of the NUMA nodes it gave; the system's
    CPUs; all share pools for LS; nothing for offline pods; nothing under the kubelet's static policy; all share pools.
    Of all these only those that the node has: what was published may be older than a CPU that went off line.
    """
    found = _said(snapshot, group, container)
    return None if found is None else (_present(snapshot, found[0]), found[1])


def _said(snapshot: Snapshot, group: PodGroup, container: Container | None) -> tuple[frozenset[int], str] | None:
    pod = group.pod
    if pod is None:
        return None
    own = _present(snapshot, cpu_pool.own(pod))
    if own:
        return own, "the scheduler gave it these CPUs"
    if pod.resource_status.numa_nodes:
        pools = cpu_pool.offline_pools(snapshot) if pod.best_effort else cpu_pool.share_pools(snapshot)
        return cpu_pool.union(pools, pod.resource_status.numa_nodes), "share pools of its NUMA nodes"
    if pod.qos_label == "SYSTEM" and snapshot.node.system_cpus:
        return snapshot.node.system_cpus, "CPUs of the system class"
    if pod.qos_label == "LS":
        return cpu_pool.union(cpu_pool.share_pools(snapshot)), "share pools, as class LS"
    if group.qos == "BestEffort" or pod.best_effort or snapshot.topology.kubelet_policy == "static":
        return None
    return cpu_pool.union(cpu_pool.share_pools(snapshot)), "share pools, as nobody gave it CPUs"


def _present(snapshot: Snapshot, cpus: frozenset[int]) -> frozenset[int]:
    """Return those of the CPUs that the node has; all of them where its CPUs are not known."""
    return cpus & snapshot.topology.ids if snapshot.topology.cpus else cpus


@strategy("cpuset", fields=("spec.hostApplications",), features=("cpuset.cpus",))
def decide(draft: Draft, slo: NodeSlo) -> None:
    """Give containers the CPUs that the scheduler chose for them, and the share pools to those without any.

    Runs only where CPUs are given out: some pod or the node's topology says so, or containers are still narrowed by
    us. Containers that the kubelet pinned are left alone, and an empty list is never written. A pod with CPUs of its
    own has no quota, which would only throttle it. CPUs that the node does not have are left out, and named.
    """
    snapshot = draft.snapshot
    if not snapshot.topology.cpus:
        draft.skipped.append("the node's CPUs are not known")
        return
    if not _in_use(snapshot):
        draft.skipped.append("nobody gives out CPUs on this node")
        return
    pinned = cpu_pool.kubelet_pinned(snapshot)
    for group in snapshot.groups:
        if group.pod is None or not group.pod.active:
            continue
        own = cpu_pool.own(group.pod)
        if absent := own - _present(snapshot, own):
            given = f"pod {group.pod.key}: the scheduler gave it CPUs {cpulist.render(own)}"
            draft.left_out.append(f"{given}, of which this node does not have {cpulist.render(absent)}")
        for child in group.containers:
            found = container_cpus(snapshot, group, child.container)
            if found is None:
                continue
            present = cgroup.cpus(snapshot, child.path)
            if pinned and present and present <= pinned and group.pod.kube_qos == "Guaranteed":
                continue
            cgroup.keep_cpus(draft, child.path, found[0], f"pod {group.pod.key}: {found[1]}")
        if _present(snapshot, own):
            _lift_quota(draft, group, group.pod)
    _host_applications(draft, slo)


def _in_use(snapshot: Snapshot) -> bool:
    given = any(p.resource_status.cpuset or p.resource_status.numa_nodes for p in snapshot.pods if p.active)
    return given or snapshot.topology.stated or bool(snapshot.node.system_cpus) or _narrowed(snapshot)


def _narrowed(snapshot: Snapshot) -> bool:
    """Return whether an online container still has a CPU list of ours, which nobody else would widen."""
    return any(
        snapshot.path("cpuset", child.path, "cpuset.cpus") in snapshot.journal
        for group in snapshot.groups
        if group.pod is not None and not group.pod.best_effort
        for child in group.containers
    )


def _lift_quota(draft: Draft, group: PodGroup, pod: Pod) -> None:
    """Lift the quota of the pod and of containers with whole CPUs: a sidecar with a small limit keeps it."""
    cgroup.set_quota(draft, group.path, NONE, f"pod {pod.key} has CPUs of its own")
    for child in group.containers:
        limit = child.container.limit_millicores() if child.container else None
        if limit is None or limit % 1000 == 0:
            cgroup.set_quota(draft, child.path, NONE, f"pod {pod.key} has CPUs of its own")


def _host_applications(draft: Draft, slo: NodeSlo) -> None:
    for application in slo.host_applications:
        path = host_application.group_of(draft.snapshot, application)
        if application.qos == "LS" and path is not None:
            pools = _present(draft.snapshot, cpu_pool.union(cpu_pool.share_pools(draft.snapshot)))
            cgroup.keep_cpus(draft, path, pools, f"host application {application.name}: share pools")
