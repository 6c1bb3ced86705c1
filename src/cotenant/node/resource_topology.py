"""This node's NodeResourceTopology, as koord-scheduler and our own cpuset strategy read it. No I/O.

What others keep in the same object stays: resources of a zone that are not ours (batch-cpu), annotations, labels.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cotenant.act import cpu_pool
from cotenant.api import unstructured
from cotenant.api.koordinator import topology as api
from cotenant.api.koordinator.names import CPU_BASIC_INFO_ANNOTATION
from cotenant.kernel.cpu_model import CpuModel
from cotenant.kernel.numa import NumaState
from cotenant.model import node as nodes
from cotenant.model.node import Pool
from cotenant.model.snapshot import Snapshot
from cotenant.node.cpus import Assignments
from cotenant.node.kubelet import KubeletConfiguration
from cotenant.units import cpulist, quantity

MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
NUMA_RESERVATION_LABEL = "node.koordinator.sh/enable-numa-reservation"
COPIED_ANNOTATIONS = (nodes.RESERVATION_ANNOTATION, nodes.SYSTEM_QOS_ANNOTATION)
"""From the Node, for a scheduler that looks at one object."""
ANNOTATIONS = (
    nodes.CPU_TOPOLOGY_ANNOTATION,
    nodes.SHARE_POOLS_ANNOTATION,
    nodes.BE_SHARE_POOLS_ANNOTATION,
    nodes.CPU_ALLOCATIONS_ANNOTATION,
    nodes.CPU_MANAGER_ANNOTATION,
    CPU_BASIC_INFO_ANNOTATION,
    *COPIED_ANNOTATIONS,
)
STEADY_PERCENT = 1
RESOURCES = ("cpu", "memory")
"""Of a zone: ours. Whatever else is there was put by somebody else."""
POLICIES = {"single-numa-node": "SingleNUMANode", "restricted": "Restricted", "best-effort": "BestEffort"}
Object = Mapping[str, Any]


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What the object should say. Annotations of ours that are not named should not be there."""

    annotations: Mapping[str, str]
    labels: Mapping[str, str]
    policies: list[str]
    zones: list[api.Zone]


def wanted(
    seen: Snapshot,
    cpus: Assignments,
    numa: Mapping[int, NumaState],
    node: Object | None,
    model: CpuModel | None = None,
) -> Wanted | None:
    """Return what the object should say now, or None while the node's CPUs are not known."""
    if not seen.topology.cpus:
        return None
    metadata = unstructured.metadata(node)
    detail = [api.CpuInfo(id=c.id, core=c.core, socket=c.socket, node=c.node) for c in sorted(seen.topology.cpus)]
    values: dict[str, Any] = {
        nodes.CPU_TOPOLOGY_ANNOTATION: api.CpuTopology(detail=detail),
        nodes.SHARE_POOLS_ANNOTATION: _pools(seen, cpu_pool.share_pools(seen)),
        nodes.BE_SHARE_POOLS_ANNOTATION: _pools(seen, cpu_pool.offline_pools(seen)),
        nodes.CPU_ALLOCATIONS_ANNOTATION: allocations(seen, cpus.placement.given),
    }
    manager = _cpu_manager(seen, cpus)
    if manager is not None:
        values[nodes.CPU_MANAGER_ANNOTATION] = manager
    if model is not None and model.name is not None:
        values[CPU_BASIC_INFO_ANNOTATION] = api.CpuBasicInfo(
            cpu_model=model.name, hyper_thread_enabled=model.hyper_threads, turbo_enabled=model.turbo or False
        )
    told = metadata.get("annotations") or {}
    labels = {name: text for name, text in (metadata.get("labels") or {}).items() if name == NUMA_RESERVATION_LABEL}
    return Wanted(
        annotations={name: msgspec.json.encode(value).decode() for name, value in values.items()}
        | {name: told[name] for name in COPIED_ANNOTATIONS if name in told},
        labels=labels,
        policies=[policy_of(cpus.configuration)],
        zones=_zones(seen, numa),
    )


def _pools(seen: Snapshot, pools: Sequence[Pool]) -> list[api.SharedPool]:
    sockets = {cpu.node: cpu.socket for cpu in reversed(seen.topology.cpus)}
    return [api.SharedPool(socket=sockets[p.node], node=p.node, cpuset=p.cpuset) for p in pools if p.cpuset]


def allocations(seen: Snapshot, given: Mapping[str, frozenset[int]]) -> list[api.CpuAllocation]:
    """Return who has CPUs that no ``resource-status`` tells of: from the kubelet, and from this agent."""
    names = {pod.uid: pod for pod in seen.pods}
    told = [
        (uid, cpus, by_kubelet)
        for owners, by_kubelet in ((cpu_pool.pinned_pods(seen), True), (given, False))
        for uid, cpus in owners.items()
    ]
    return [
        api.CpuAllocation(
            namespace=names[uid].namespace if uid in names else "",
            name=names[uid].name if uid in names else "",
            uid=uid,
            cpuset=cpulist.render(cpus),
            managed_by_kubelet=by_kubelet,
        )
        for uid, cpus, by_kubelet in sorted(told, key=lambda entry: entry[0])
    ]


def _cpu_manager(seen: Snapshot, cpus: Assignments) -> api.CpuManagerPolicy | None:
    """Return what the kubelet does; None while nobody has said: a guess would let a scheduler give CPUs twice."""
    policy = cpus.policy
    if policy is None:
        return None
    options = cpus.configuration.cpu_manager_policy_options if cpus.configuration is not None else None
    reserved = cpulist.render(seen.topology.kubelet_reserved)
    return api.CpuManagerPolicy(policy=policy, options=options or None, reserved_cpus=reserved)


def policy_of(configuration: KubeletConfiguration | None) -> str:
    """Return the topology manager's policy in the object's words."""
    base = POLICIES.get(configuration.topology_manager_policy) if configuration is not None else None
    if base is None or configuration is None:
        return "None"
    return f"{base}{'PodLevel' if configuration.topology_manager_scope == 'pod' else 'ContainerLevel'}"


def _zones(seen: Snapshot, numa: Mapping[int, NumaState]) -> list[api.Zone]:
    numbers = sorted({cpu.node for cpu in seen.topology.cpus})
    zones = []
    for number in numbers:
        amounts = {"cpu": str(sum(cpu.node == number for cpu in seen.topology.cpus))}
        memory = numa[number].memory_total_bytes if number in numa else None
        if memory is None and len(numbers) == 1:
            memory = seen.node.capacity_memory_bytes
        if memory is not None:
            amounts["memory"] = str(memory)
        resources = [
            api.ZoneResource(name=name, capacity=amount, allocatable=amount, available=amount)
            for name, amount in amounts.items()
        ]
        zones.append(api.Zone(name=api.zone_name(number), type=api.ZONE_TYPE, resources=resources))
    return zones


def merged(found: Object | None, name: str, uid: str, want: Wanted) -> dict[str, Any] | None:
    """Return the whole object to write, or None where it says all of this already.

    ``found`` is the object as it was read, undecoded; None where there is none. ``uid`` is the Node's: it owns it.
    """
    before = found or {"metadata": {"name": name}}
    metadata = dict(before["metadata"])
    annotations = {k: v for k, v in (metadata.get("annotations") or {}).items() if k not in ANNOTATIONS}
    zones = _merged_zones(before.get("zones") or [], want.zones)
    same = (
        found is not None
        and _same_annotations(metadata.get("annotations") or {}, want.annotations)
        and want.labels.items() <= (metadata.get("labels") or {}).items()
        and before.get("topologyPolicies") == want.policies
        and before.get("zones") == zones
    )
    if same:
        return None
    labels = {MANAGED_BY_LABEL: "cotenant"} | (metadata.get("labels") or {}) | dict(want.labels)
    metadata |= {"annotations": annotations | dict(want.annotations), "labels": labels}
    if found is None and uid:
        metadata["ownerReferences"] = [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}]
    metadata.pop("managedFields", None)
    return {
        **before,
        "apiVersion": api.API_VERSION,
        "kind": api.KIND,
        "metadata": metadata,
        "topologyPolicies": want.policies,
        "zones": zones,
    }


def _same_annotations(found: Mapping[str, str], want: Mapping[str, str]) -> bool:
    """Return whether ours say the same, by value: who wrote them may have ordered the keys otherwise."""
    own = {name: text for name, text in found.items() if name in ANNOTATIONS}
    return own.keys() == want.keys() and all(own[n] == t or _value(own[n]) == _value(t) for n, t in want.items())


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _merged_zones(found: Sequence[Any], want: Sequence[api.Zone]) -> list[dict[str, Any]]:
    """Return our zones with what others keep in zones of the same name; a zone that is no NUMA node here goes."""
    before = {zone["name"]: zone for zone in found if isinstance(zone, dict) and "name" in zone}
    zones = []
    for zone in want:
        old = before.get(zone.name) or {}
        listed = {str(r["name"]): r for r in old.get("resources") or [] if isinstance(r, dict) and "name" in r}
        own = msgspec.to_builtins(zone)
        resources = listed | {r["name"]: _steady(listed.get(r["name"]), r) for r in own["resources"]}
        resources = {name: r for name, r in resources.items() if name not in RESOURCES or _has(zone, name)}
        zones.append(old | own | {"resources": [resources[name] for name in sorted(resources)]})
    return zones


def _has(zone: api.Zone, name: str) -> bool:
    return any(resource.name == name for resource in zone.resources or ())


def _steady(old: Mapping[str, Any] | None, new: dict[str, Any]) -> Mapping[str, Any]:
    """Return the old entry where it says nearly the same: a virtual machine's memory breathes."""
    if old is None or old.keys() != new.keys():
        return new
    try:
        before, now = (quantity.parse(entry["capacity"]) for entry in (old, new))
        same = {quantity.parse(old[key]) for key in ("allocatable", "available")} == {before}
    except quantity.BadQuantity:
        return new
    return old if same and abs(before - now) * 100 <= STEADY_PERCENT * now else new
