"""CPUs of their own for LSE and LSR pods that no scheduler gave any: whole cores, of one NUMA node where they fit.

The result is what koord-scheduler would have written into ``resource-status``; every other strategy goes on from there.
A pod keeps its CPUs for as long as they are possible; when its class or its request changes, or somebody else gets
one of them, it is placed anew. A pod that cannot have CPUs of its own is served as LS, and it is said why.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from cotenant.act import cgroup, cpu_pool
from cotenant.model.node import Cpu
from cotenant.model.pod import Pod, ResourceStatus
from cotenant.model.snapshot import Snapshot
from cotenant.units import cpulist
from cotenant.units.malformed import MALFORMED

RESOURCE_SPEC_ANNOTATION = "scheduling.koordinator.sh/resource-spec"
SPREAD = "SpreadByPCPUs"
CLASSES = ("LSE", "LSR")
Cpus = frozenset[int]
Place = tuple[int, int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Wish:
    """So many CPUs for one pod; ``spread``: one of each physical core, as long as there are enough of them."""

    uid: str
    count: int
    spread: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Placement:
    """CPUs by pod uid, and by ``namespace/name`` why a pod that asks for CPUs of its own has none."""

    given: Mapping[str, Cpus] = dataclasses.field(default_factory=dict)
    degraded: Mapping[str, str] = dataclasses.field(default_factory=dict)


def allocate(cpus: Iterable[Cpu], wishes: Sequence[Wish], held: Mapping[str, Cpus]) -> dict[str, Cpus]:
    """Return the CPUs of each wish that can be met, in the order of the wishes. ``cpus`` are those that may be given.

    What is held already is kept where it still fits. One CPU at least is left over: the share pool lives on it.
    """
    free = {cpu.id: cpu for cpu in cpus}
    given: dict[str, Cpus] = {}
    for wish in wishes:
        own = held.get(wish.uid, cpu_pool.NONE)
        if len(own) == wish.count and own <= free.keys() and len(own) < len(free):
            given[wish.uid] = own
            free = {cpu: place for cpu, place in free.items() if cpu not in own}
    for wish in wishes:
        if wish.uid in given or wish.count >= len(free):
            continue
        taken = _pick(list(free.values()), wish)
        given[wish.uid] = taken
        free = {cpu: place for cpu, place in free.items() if cpu not in taken}
    return given


def _pick(free: list[Cpu], wish: Wish) -> Cpus:
    """Return CPUs for a wish: from the NUMA node that they fill best, else from the emptiest nodes in turn."""
    nodes: dict[int, list[Cpu]] = {}
    for cpu in sorted(free):
        nodes.setdefault(cpu.node, []).append(cpu)
    width = max(map(len, _cores(free)))
    fitting = [own for own in nodes.values() if len(own) >= wish.count and _whole_enough(own, wish, width)]
    fitting = fitting or [own for own in nodes.values() if len(own) >= wish.count]
    if fitting:
        return _from_node(min(fitting, key=lambda own: (len(own), own[0].node)), wish.count, wish.spread)
    taken: Cpus = cpu_pool.NONE
    for own in sorted(nodes.values(), key=lambda own: (-len(own), own[0].node)):
        left = wish.count - len(taken)
        taken |= _from_node(own, min(left, len(own)), wish.spread)
    return taken


def _whole_enough(own: Sequence[Cpu], wish: Wish, width: int) -> bool:
    """Return whether a node can meet the wish without parts of cores, which have ``width`` threads.

    Spread: without two threads of one core.
    """
    cores = _cores(own)
    if wish.spread:
        return len(cores) >= wish.count
    return sum(len(core) for core in cores if len(core) == width) >= wish.count


def _cores(cpus: Iterable[Cpu]) -> list[list[Cpu]]:
    cores: dict[Place, list[Cpu]] = {}
    for cpu in sorted(cpus, key=lambda cpu: (cpu.socket, cpu.core, cpu.id)):
        cores.setdefault((cpu.node, cpu.socket, cpu.core), []).append(cpu)
    return list(cores.values())


def _from_node(own: Sequence[Cpu], count: int, spread: bool) -> Cpus:
    cores = _cores(own)
    if spread:
        rounds = [core[index] for index in range(max(map(len, cores))) for core in cores if index < len(core)]
        return frozenset(cpu.id for cpu in rounds[:count])
    taken: list[int] = []
    for core in sorted(cores, key=lambda core: -len(core)):  # the whole ones first; in their order
        if len(core) <= count - len(taken):
            taken += [cpu.id for cpu in core]
    left = count - len(taken)
    if left:
        # The rest of an odd number: of the narrowest core that has it, so that whole cores stay whole.
        rest = [core for core in cores if core[0].id not in taken]
        narrowest = sorted(rest, key=len)
        taken += [cpu.id for core in narrowest for cpu in core][:left]
    return frozenset(taken)


def place(snapshot: Snapshot, held: Mapping[str, Cpus]) -> Placement:
    """Return who gets which CPUs on a node; ``held`` is what was given before, by pod uid."""
    wanting = _wanting(snapshot)
    wanting.sort(key=lambda pod: (CLASSES.index(pod.qos), -pod.request_millicores(), pod.key))
    degraded: dict[str, str] = {}
    wishes: list[Wish] = []
    for pod in wanting:
        reason = _refusal(snapshot, pod)
        if reason:
            degraded[pod.key] = reason
        else:
            wishes.append(Wish(pod.uid, pod.request_millicores() // 1000, spread(pod)))
    allowed = _allowed(snapshot)
    given = allocate((cpu for cpu in snapshot.topology.cpus if cpu.id in allowed), wishes, held)
    for pod in wanting:
        if pod.key not in degraded and pod.uid not in given:
            count = pod.request_millicores() // 1000
            degraded[pod.key] = f"{count} CPUs of its own are not left, with one for everybody else"
    return Placement(given, degraded)


def switched_off(snapshot: Snapshot) -> Placement:
    """Return who has no CPUs of its own because nobody is to have any from here."""
    reason = "nobody gives out CPUs: no scheduler does, and --no-whole-cores is set"
    return Placement({}, {pod.key: reason for pod in _wanting(snapshot)})


def _wanting(snapshot: Snapshot) -> list[Pod]:
    return [pod for pod in snapshot.pods if pod.active and pod.qos_label in CLASSES and not _has_cpus(snapshot, pod)]


def _has_cpus(snapshot: Snapshot, pod: Pod) -> bool:
    status = pod.resource_status
    return bool(status.cpuset or status.numa_nodes or pod.uid in cpu_pool.pinned_pods(snapshot))


def _refusal(snapshot: Snapshot, pod: Pod) -> str:
    if not snapshot.topology.cpus:
        return "the node's CPUs are not known"
    if snapshot.topology.kubelet_policy == "static":
        return "the kubelet's CPU manager gives out CPUs here, and gave it none"
    millicores = pod.request_millicores()
    if millicores == 0:
        return "it asks for no CPU"
    return f"it asks for {millicores}m: whole CPUs only" if millicores % 1000 else ""


def _allowed(snapshot: Snapshot) -> Cpus:
    """Return the CPUs that are nobody's: not reserved, not the system's, not the kubelet's, not another pod's."""
    taken = cpu_pool.NONE.union(*(cpu_pool.own(pod) for pod in snapshot.pods if pod.active))
    return cpu_pool.offline_pool(snapshot) - taken


def spread(pod: Pod) -> bool:
    """Return whether the pod asks for one thread of each core; an annotation that nobody can read asks for nothing."""
    text = pod.annotations.get(RESOURCE_SPEC_ANNOTATION)
    if text is None:
        return False
    try:
        spec = msgspec.json.decode(text)
    except MALFORMED:
        return False
    if not isinstance(spec, dict):
        return False
    return SPREAD in (spec.get("requiredCPUBindPolicy"), spec.get("preferredCPUBindPolicy"))


def in_force(snapshot: Snapshot) -> dict[str, Cpus]:
    """Return what containers of such pods have now, by pod uid: after a restart of ours they keep it."""
    found: dict[str, Cpus] = {}
    for group in snapshot.groups:
        if group.pod is None or group.pod.qos_label not in CLASSES:
            continue
        listed = [cgroup.cpus(snapshot, child.path) for child in group.containers if child.container is not None]
        known = {cpus for cpus in listed if cpus}
        if len(known) == 1:
            found[group.pod.uid] = known.pop()
    return found


def applied(snapshot: Snapshot, given: Mapping[str, Cpus]) -> Snapshot:
    """Return the snapshot in which these pods have these CPUs as if a scheduler had said so."""
    if not given:
        return snapshot
    pods = {pod.uid: _with(pod, given.get(pod.uid)) for pod in snapshot.pods}
    groups = tuple(
        msgspec.structs.replace(group, pod=pods.get(group.pod.uid, group.pod)) if group.pod else group
        for group in snapshot.groups
    )
    return msgspec.structs.replace(snapshot, pods=tuple(pods[pod.uid] for pod in snapshot.pods), groups=groups)


def _with(pod: Pod, cpus: Cpus | None) -> Pod:
    if cpus is None:
        return pod
    return msgspec.structs.replace(pod, resource_status=ResourceStatus(cpuset=cpulist.render(cpus)))
