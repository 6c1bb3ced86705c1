"""The parts of Kubernetes' own objects that a scheduling decision reads; everything else is skipped undecoded."""

import msgspec


class OwnerReference(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Who made an object."""

    kind: str = ""
    name: str = ""


class ObjectMeta(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An object's name and what is attached to it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """What a container asks for: quantities as text (or a bare number)."""

    requests: dict[str, str | float] | None = None


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """One container of a pod."""

    resources: Resources | None = None


class PodSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a pod asks for."""

    runtime_class_name: str | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    node_name: str | None = None
    containers: list[Container] | None = None
    overhead: dict[str, str | float] | None = None


class PodStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Kubernetes' own class of the pod: Guaranteed, Burstable or BestEffort."""

    qos_class: str | None = None


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, as far as a decision reads it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class NodeCondition(msgspec.Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    """One condition of a node; ``status`` is ``True``, ``False`` or ``Unknown``."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class Taint(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One taint of a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a node."""

    taints: list[Taint] | None = None


class RuntimeHandler(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One runtime that a node's container runtime offers; the default one has an empty name."""

    name: str | None = None


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the kubelet says of its node. ``runtime_handlers`` is there since Kubernetes 1.30."""

    allocatable: dict[str, str | float] | None = None
    conditions: list[NodeCondition] | None = None
    runtime_handlers: list[RuntimeHandler] | None = None


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node, as far as a decision reads it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class RuntimeClassScheduling(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a runtime class may run."""

    node_selector: dict[str, str] | None = None


class RuntimeClass(msgspec.Struct, frozen=True, kw_only=True):
    """A name for a handler of the container runtime."""

    metadata: ObjectMeta = ObjectMeta()
    handler: str = ""
    scheduling: RuntimeClassScheduling | None = None
