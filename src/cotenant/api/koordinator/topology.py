"""``NodeResourceTopology`` (``topology.node.k8s.io/v1alpha1``): a node's zones, and in annotations who has which CPUs.

The names of the annotations are in :mod:`cotenant.model.node`, which reads them; here is what they hold.
"""

import msgspec

from cotenant.api.koordinator.node_metric import Quantity
from cotenant.api.objects import ObjectMeta

GROUP = "topology.node.k8s.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "NodeResourceTopology"
PLURAL = "noderesourcetopologies"
ZONE_TYPE = "Node"
"""A zone that is a NUMA node; it is named ``node-0``."""


class Attribute(msgspec.Struct, frozen=True, kw_only=True):
    """One attribute of a zone."""

    name: str
    value: str


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """The distance to another zone."""

    name: str
    value: int


class ZoneResource(msgspec.Struct, frozen=True, kw_only=True):
    """One resource of a zone: all of it, what pods may have, and what is left."""

    name: str
    capacity: Quantity
    allocatable: Quantity
    available: Quantity


class Zone(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One zone: a NUMA node."""

    name: str
    type: str
    parent: str | None = None
    costs: list[Cost] | None = None
    attributes: list[Attribute] | None = None
    resources: list[ZoneResource] | None = None


class NodeResourceTopology(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A node's resources by zone, and the policies that place pods in them."""

    metadata: ObjectMeta = ObjectMeta()
    topology_policies: list[str] = []
    zones: list[Zone] = []


class CpuInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One logical CPU in ``cpu-topology``."""

    id: int
    core: int
    socket: int
    node: int


class CpuTopology(msgspec.Struct, frozen=True, kw_only=True):
    """The annotation ``cpu-topology``."""

    detail: list[CpuInfo]


class SharedPool(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of ``cpu-shared-pools`` and ``be-cpu-shared-pools``."""

    socket: int
    node: int
    cpuset: str = ""


class CpuAllocation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One entry of ``pod-cpu-allocs``: CPUs that a pod has for itself."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    cpuset: str = ""
    managed_by_kubelet: bool = False


class CpuManagerPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The annotation ``cpu-manager-policy``: what the kubelet does with CPUs."""

    policy: str = ""
    options: dict[str, str] | None = None
    reserved_cpus: str = msgspec.field(default="", name="reservedCPUs")


def zone_name(numa_node: int) -> str:
    """Return the name of a NUMA node's zone."""
    return f"node-{numa_node}"


def numa_node(zone: Zone) -> int | None:
    """Return the NUMA node that a zone is, or None where its name says none."""
    prefix, _, number = zone.name.partition("-")
    return int(number) if prefix == "node" and number.isdecimal() else None


class CpuBasicInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The annotation ``cpu-basic-info``, as far as a ratio of CPU models follows from it."""

    cpu_model: str = ""
    hyper_thread_enabled: bool = False
    turbo_enabled: bool = False
