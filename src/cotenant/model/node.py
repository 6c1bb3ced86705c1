"""The node as strategies see it: capacity, reservations, CPU topology, and what everybody uses."""

import contextlib
import decimal
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal

import msgspec

from cotenant.units import cpulist, errors, plain, quantity
from cotenant.units.malformed import MALFORMED, problem

RESERVATION_ANNOTATION = "node.koordinator.sh/reservation"
SYSTEM_QOS_ANNOTATION = "node.koordinator.sh/system-qos-resource"
CPU_TOPOLOGY_ANNOTATION = "node.koordinator.sh/cpu-topology"
SHARE_POOLS_ANNOTATION = "node.koordinator.sh/cpu-shared-pools"
BE_SHARE_POOLS_ANNOTATION = "node.koordinator.sh/be-cpu-shared-pools"
CPU_ALLOCATIONS_ANNOTATION = "node.koordinator.sh/pod-cpu-allocs"
CPU_MANAGER_ANNOTATION = "kubelet.koordinator.sh/cpu-manager-policy"
RAW_ALLOCATABLE_ANNOTATION = "node.koordinator.sh/raw-allocatable"
CPU_NORMALIZATION_ANNOTATION = "node.koordinator.sh/cpu-normalization-ratio"
CPU_NORMALIZATION_RANGE = (1.0, 5.0)
"""By Koordinator's own check of ``cpu-normalization-config``."""


class BadNode(errors.CotenantError):
    """A Node, a NodeResourceTopology or a usage file cannot be read."""


class Cpu(msgspec.Struct, frozen=True, order=True):
    """One logical CPU and where it is. Two CPUs of one (socket, node, core) are hyper-thread siblings."""

    id: int
    core: int = 0
    socket: int = 0
    node: int = 0


class Pool(msgspec.Struct, frozen=True):
    """The CPUs of one NUMA node that containers without CPUs of their own share."""

    node: int
    cpuset: str


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """CPUs, and what the kubelet and the scheduler have said about them."""

    cpus: tuple[Cpu, ...]
    kubelet_policy: Literal["none", "static"] = "none"
    kubelet_reserved: frozenset[int] = frozenset()
    share_pools: tuple[Pool, ...] | None = None
    """None: nobody publishes them; they are worked out from the pods."""
    be_share_pools: tuple[Pool, ...] | None = None
    kubelet_pinned: frozenset[int] = frozenset()
    """CPUs that the kubelet's static policy has given to containers."""
    kubelet_pods: Mapping[str, frozenset[int]] = {}
    """The same by pod uid, where the kubelet's own state says so."""
    stated: bool = False
    """Whether somebody vouches for the kubelet's policy and the pools; otherwise nobody is known to give out CPUs."""

    @property
    def ids(self) -> frozenset[int]:
        return frozenset(cpu.id for cpu in self.cpus)


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """Capacity and what is held back of it. None is not known: no Node object says it, and no file of the node."""

    name: str = ""
    capacity_millicores: int | None
    capacity_memory_bytes: int | None
    allocatable_millicores: int | None = None
    allocatable_memory_bytes: int | None = None
    extended_allocatable: Mapping[str, int] = {}
    """Whole numbers by resource name (``kubernetes.io/batch-cpu``); only those that the node has."""
    annotation_reserved_millicores: int = 0
    annotation_reserved_bytes: int = 0
    reserved_cpus: frozenset[int] = frozenset()
    system_cpus: frozenset[int] = frozenset()
    system_cpus_exclusive: bool = True
    cpu_normalization_ratio: Fraction = Fraction(1)
    """How many of the fleet's reference CPUs one CPU of this node counts for."""
    problems: tuple[str, ...] = ()
    """What the Node says and cannot be used; it counts as not said."""

    @property
    def reserved_millicores(self) -> int:
        """The larger of what the kubelet keeps (capacity less allocatable) and what the annotation reserves."""
        known = self.allocatable_millicores is not None and self.capacity_millicores is not None
        kept = (self.capacity_millicores or 0) - (self.allocatable_millicores or 0) if known else 0
        return max(kept, self.annotation_reserved_millicores, 0)


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """What one thing uses. None is unknown."""

    cpu_millicores: Annotated[float, msgspec.Meta(ge=0)] | None = None
    memory_bytes: Annotated[int, msgspec.Meta(ge=0)] | None = None
    throttled_ratio: Annotated[float, msgspec.Meta(ge=0)] | None = None


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What the node and everything on it uses."""

    node: Use = Use()
    system: Use = Use()
    pods: Mapping[str, Use] = {}
    host_applications: Mapping[str, Use] = {}


def decode_usage(text: bytes | str, place: str) -> Usage:
    """Return the usage in a JSON file of the shape that ``docs/enforce.md`` shows; null is the same as absent.

    :raises BadNode: if it is not of that shape.
    """
    known: Any = None
    try:
        known = plain.without_nulls(msgspec.json.decode(text))
        return msgspec.convert(known, Usage, strict=False)
    except MALFORMED as error:
        told = problem(error, known, Usage, strict=False)
        raise BadNode(f"{place}: {told}; give numbers by name, and leave out what is unknown") from None


def decode_node(value: Any, place: str, fallback: Node) -> Node:
    """Return the node of a v1 Node object; what the object does not say is the fallback's.

    :raises BadNode: if it is not a Node, or an annotation or a quantity in it cannot be read.
    """
    metadata, status = _mapping(value, "metadata", place), _mapping(value, "status", place)
    annotations = _mapping(metadata, "annotations", place)
    # What an amplified node says it can allocate is more than it has; the annotation keeps what it was.
    raw = _annotation(annotations, RAW_ALLOCATABLE_ANNOTATION, place)
    native = {name: raw[name] for name in ("cpu", "memory") if name in raw}
    capacity, allocatable = _mapping(status, "capacity", place), {**_mapping(status, "allocatable", place), **native}
    reservation = _annotation(annotations, RESERVATION_ANNOTATION, place)
    system = _annotation(annotations, SYSTEM_QOS_ANNOTATION, place)
    ratio, problem = cpu_normalization(annotations.get(CPU_NORMALIZATION_ANNOTATION))
    try:
        reserved = _mapping(reservation, "resources", place)
        reserved_cpus = cpulist.parse(str(reservation.get("reservedCPUs") or ""))
        return Node(
            name=str(metadata.get("name", fallback.name)),
            capacity_millicores=_millicores(capacity, fallback.capacity_millicores),
            capacity_memory_bytes=_bytes(capacity, fallback.capacity_memory_bytes),
            allocatable_millicores=_millicores(allocatable, None),
            allocatable_memory_bytes=_bytes(allocatable, None),
            extended_allocatable={k: quantity.whole(v) for k, v in allocatable.items() if "/" in k},
            annotation_reserved_millicores=len(reserved_cpus) * 1000 or _millicores(reserved, 0),
            annotation_reserved_bytes=_bytes(reserved, 0),
            reserved_cpus=reserved_cpus,
            system_cpus=cpulist.parse(str(system.get("cpuset") or "")),
            system_cpus_exclusive=system.get("cpusetExclusive") is not False,
            cpu_normalization_ratio=ratio,
            problems=(f"{place}: {problem}",) if problem else (),
        )
    except errors.CotenantError as error:
        raise BadNode(f"{place}: {error}") from None


def cpu_normalization(text: str | None) -> tuple[Fraction, str]:
    """Return a node's CPU normalization ratio by its annotation, and what is wrong with the annotation.

    The ratio is as written (1.15 is 23/20); 1 where nothing is said, and for what is no number within the range.
    """
    if text is None:
        return Fraction(1), ""
    low, high = CPU_NORMALIZATION_RANGE
    with contextlib.suppress(decimal.InvalidOperation):  # no number, or none that compares
        number = decimal.Decimal(str(text))
        if low <= number <= high:
            return Fraction(number), ""
    wanted = f"write a number within {low:g}..{high:g}"
    return Fraction(1), f"annotation {CPU_NORMALIZATION_ANNOTATION} is {text!r}: {wanted}; taken as 1"


def decode_topology(value: Any, place: str, fallback: Topology) -> Topology:
    """Return the topology of a NodeResourceTopology object; what the object does not say is the fallback's.

    :raises BadNode: if it is not one, or an annotation in it cannot be read.
    """
    annotations = _mapping(_mapping(value, "metadata", place), "annotations", place)
    manager = _annotation(annotations, CPU_MANAGER_ANNOTATION, place)
    detail = _annotation(annotations, CPU_TOPOLOGY_ANNOTATION, place).get("detail")
    try:
        return Topology(
            cpus=tuple(sorted(msgspec.convert(detail, list[Cpu]))) if detail else fallback.cpus,
            kubelet_policy="static" if manager.get("policy") == "static" else "none",
            kubelet_reserved=cpulist.parse(str(manager.get("reservedCPUs") or "")),
            share_pools=_pools(annotations, SHARE_POOLS_ANNOTATION, place),
            be_share_pools=_pools(annotations, BE_SHARE_POOLS_ANNOTATION, place),
            kubelet_pinned=_pinned(annotations, place),
            stated=True,
        )
    except (errors.CotenantError, msgspec.ValidationError) as error:
        raise BadNode(f"{place}: {error}") from None


def with_topology_annotations(node: Node, value: Any, place: str) -> Node:
    """Return the node with the system's CPUs where the NodeResourceTopology, not the Node, names them.

    :raises BadNode: if an annotation cannot be read.
    """
    annotations = _mapping(_mapping(value, "metadata", place), "annotations", place)
    system = _annotation(annotations, SYSTEM_QOS_ANNOTATION, place)
    if not system or node.system_cpus:
        return node
    try:
        cpus = cpulist.parse(str(system.get("cpuset") or ""))
    except cpulist.BadCpuList as error:
        raise BadNode(f"{place}: {error}") from None
    exclusive = system.get("cpusetExclusive") is not False
    return msgspec.structs.replace(node, system_cpus=cpus, system_cpus_exclusive=exclusive)


def _pools(annotations: Mapping[str, Any], name: str, place: str) -> tuple[Pool, ...] | None:
    text = annotations.get(name)
    listed = None if text is None else _json(text, name, place)
    if listed is None:
        return None
    pools = tuple(msgspec.convert(listed, list[Pool]))
    for pool in pools:
        cpulist.parse(pool.cpuset)  # whoever asks for the CPUs of a pool later is not prepared for none
    return pools


def _pinned(annotations: Mapping[str, Any], place: str) -> frozenset[int]:
    text = annotations.get(CPU_ALLOCATIONS_ANNOTATION)
    listed = _json(text, CPU_ALLOCATIONS_ANNOTATION, place) if text is not None else None
    given = msgspec.convert(listed or [], list[dict[str, Any]])
    sets = [cpulist.parse(str(a.get("cpuset") or "")) for a in given if a.get("managedByKubelet")]
    return frozenset().union(*sets)


def _millicores(resources: Mapping[str, Any], default: Any) -> Any:
    return quantity.millicores(resources["cpu"]) if "cpu" in resources else default


def _bytes(resources: Mapping[str, Any], default: Any) -> Any:
    return quantity.whole(resources["memory"]) if "memory" in resources else default


def _mapping(value: Any, key: str, place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadNode(f"{place}: not a Kubernetes object")
    inner = value.get(key) or {}
    if not isinstance(inner, Mapping):
        raise BadNode(f"{place}: {key} is not an object")
    return inner


def _annotation(annotations: Mapping[str, Any], name: str, place: str) -> Mapping[str, Any]:
    if name not in annotations:
        return {}
    value = _json(annotations[name], name, place)
    if value is None:
        return {}  # what koordlet writes where a node has none
    if not isinstance(value, dict):
        raise BadNode(f"{place}: annotation {name} is not a JSON object")
    return value


def _json(text: Any, name: str, place: str) -> Any:
    try:
        return msgspec.json.decode(str(text))
    except MALFORMED as error:
        raise BadNode(f"{place}: annotation {name}: {error}") from None
