"""Which CPUs belong to whom: share pools, CPUs that are somebody's own, and the ones that offline work may take."""

from collections.abc import Iterable, Sequence

from cotenant.act import cgroup
from cotenant.model.node import Cpu, Pool
from cotenant.model.pod import Pod
from cotenant.model.snapshot import ContainerGroup, Snapshot
from cotenant.units import cpulist

Cpus = frozenset[int]
NONE: Cpus = frozenset()


def held(snapshot: Snapshot, *classes: str) -> Cpus:
    """Return the CPUs that the scheduler gave to unfinished pods of some classes."""
    return NONE.union(*(own(pod) for pod in snapshot.pods if pod.active and pod.qos in classes))


def own(pod: Pod) -> Cpus:
    """Return the CPUs that the scheduler gave to a pod; none when the annotation is absent or malformed."""
    try:
        return cpulist.parse(pod.resource_status.cpuset)
    except cpulist.BadCpuList:
        return NONE


def kubelet_pinned(snapshot: Snapshot) -> Cpus:
    """Return the CPUs that the kubelet's static policy gave to containers.

    Published ones and, since publishers forget some, the CPU lists of Guaranteed containers with whole CPUs.
    """
    if snapshot.topology.kubelet_policy != "static":
        return NONE
    return snapshot.topology.kubelet_pinned.union(*pinned_pods(snapshot).values())


def pinned_pods(snapshot: Snapshot) -> dict[str, Cpus]:
    """Return the CPUs of each pod that the kubelet's static policy gave any, by uid.

    As its own state says and, where that is not known, the CPU lists of Guaranteed containers with whole CPUs.
    """
    if snapshot.topology.kubelet_policy != "static":
        return {}
    found = dict(snapshot.topology.kubelet_pods)
    for group in snapshot.groups:
        if group.pod is None or group.pod.kube_qos != "Guaranteed" or group.pod.best_effort or own(group.pod):
            continue
        listed = NONE.union(*(_exclusive(snapshot, child) for child in group.containers))
        if listed:
            found[group.pod.uid] = found.get(group.pod.uid, NONE) | listed
    return found


def _exclusive(snapshot: Snapshot, child: ContainerGroup) -> Cpus:
    """Return a container's CPUs where they are as many as it asks for, and whole ones; else none."""
    millicores = child.container.request_millicores() if child.container is not None else 0
    listed = cgroup.cpus(snapshot, child.path) if millicores and millicores % 1000 == 0 else None
    return listed if listed and len(listed) == millicores // 1000 else NONE


def untouchable(snapshot: Snapshot) -> Cpus:
    """Return the CPUs that offline work never gets: reserved, exclusive to the system, or somebody's own for good."""
    node = snapshot.node
    system = node.system_cpus if node.system_cpus_exclusive else NONE
    return (
        node.reserved_cpus
        | snapshot.topology.kubelet_reserved
        | system
        | held(snapshot, "LSE")
        | kubelet_pinned(snapshot)
    )


def offline_pool(snapshot: Snapshot) -> Cpus:
    """Return the CPUs that offline work may have at most."""
    return snapshot.topology.ids - untouchable(snapshot)


def share_pools(snapshot: Snapshot) -> tuple[Pool, ...]:
    """Return the pools of online containers without CPUs of their own: as published, else worked out."""
    if snapshot.topology.share_pools is not None:
        return snapshot.topology.share_pools
    node = snapshot.node
    system = node.system_cpus if node.system_cpus_exclusive else NONE
    taken = NONE.union(*(own(pod) for pod in snapshot.pods if pod.active))
    reserved = node.reserved_cpus | snapshot.topology.kubelet_reserved
    return _by_node(snapshot, snapshot.topology.ids - taken - kubelet_pinned(snapshot) - reserved - system)


def offline_pools(snapshot: Snapshot) -> tuple[Pool, ...]:
    """Return the pools of offline containers by NUMA node: as published, else worked out."""
    return snapshot.topology.be_share_pools or _by_node(snapshot, offline_pool(snapshot))


def union(pools: Iterable[Pool], nodes: Sequence[int] | None = None) -> Cpus:
    """Return the CPUs of the pools, of some NUMA nodes only if they are given."""
    return NONE.union(*(cpulist.parse(pool.cpuset) for pool in pools if nodes is None or pool.node in nodes))


def _by_node(snapshot: Snapshot, cpus: Cpus) -> tuple[Pool, ...]:
    nodes = sorted({cpu.node for cpu in snapshot.topology.cpus})
    return tuple(
        Pool(node, cpulist.render(cpu.id for cpu in snapshot.topology.cpus if cpu.node == node and cpu.id in cpus))
        for node in nodes
    )


def pick(cpus: Sequence[Cpu], count: int) -> list[int]:
    """Return up to ``count`` CPUs, spread over NUMA nodes and sockets, whole cores first.

    CPUs are taken in turn from each (node, socket), the fullest first: two siblings at a time while two or more are
    wanted, then single ones. When fewer than wanted are there, all are returned.
    """
    places: dict[tuple[int, int], list[Cpu]] = {}
    for cpu in sorted(cpus, key=lambda cpu: (cpu.node, cpu.socket, cpu.core, cpu.id)):
        places.setdefault((cpu.node, cpu.socket), []).append(cpu)
    queues = sorted(places.values(), key=lambda queue: (-len(queue), queue[0].id))
    picked: list[int] = []
    _take_siblings(queues, count, picked)
    while len(picked) < count and any(queues):
        for queue in queues:
            if queue and len(picked) < count:
                picked.append(queue.pop(0).id)
    return picked


def _take_siblings(queues: list[list[Cpu]], count: int, picked: list[int]) -> None:
    """Move whole pairs of siblings from the queues, each queue in turn, while two or more are wanted."""
    while True:
        taken = False
        for queue in queues:
            pair = next((i for i in range(len(queue) - 1) if queue[i].core == queue[i + 1].core), None)
            if pair is not None and count - len(picked) >= 2:
                picked.extend(cpu.id for cpu in queue[pair : pair + 2])
                del queue[pair : pair + 2]
                taken = True
        if not taken:
            return
