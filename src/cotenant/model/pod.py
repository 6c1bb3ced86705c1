"""Pods as the node sees them: only the fields that decide something here, and what Koordinator's words for them mean.

How a PodList becomes these is in :mod:`cotenant.model.pod_list`.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from cotenant.units import quantity
from cotenant.units.malformed import MALFORMED

KubeQos = Literal["Guaranteed", "Burstable", "BestEffort"]
QosClass = Literal["LSE", "LSR", "LS", "BE", "SYSTEM"]
PriorityBand = Literal["prod", "mid", "batch", "free"]

QOS_LABEL = "koordinator.sh/qosClass"
PRIORITY_CLASS_LABEL = "koordinator.sh/priority-class"
SUB_PRIORITY_LABEL = "koordinator.sh/priority"
EVICTION_ENABLED_LABEL = "koordinator.sh/eviction-enabled"
EVICTION_POLICY_ANNOTATION = "koordinator.sh/eviction-policy"
EVICTION_PRIORITY_ANNOTATION = "koordinator.sh/eviction-priority"
CORE_SCHED_GROUP_LABEL = "koordinator.sh/core-sched-group-id"
CORE_SCHED_POLICY_LABEL = "koordinator.sh/core-sched-policy"
CPU_QOS_ANNOTATION = "koordinator.sh/cpuQOS"
CPU_BURST_ANNOTATION = "koordinator.sh/cpuBurst"
MEMORY_QOS_ANNOTATION = "koordinator.sh/memoryQOS"
BLKIO_QOS_ANNOTATION = "koordinator.sh/blkioQOS"
RESOURCE_STATUS_ANNOTATION = "scheduling.koordinator.sh/resource-status"
EXTENDED_RESOURCE_SPEC_ANNOTATION = "node.koordinator.sh/extended-resource-spec"

BATCH_CPU = ("kubernetes.io/batch-cpu", "koordinator.sh/batch-cpu")
BATCH_MEMORY = ("kubernetes.io/batch-memory", "koordinator.sh/batch-memory")
MID_CPU = ("kubernetes.io/mid-cpu",)
MID_MEMORY = ("kubernetes.io/mid-memory",)

_QOS_CLASSES: dict[str, QosClass] = {"LSE": "LSE", "LSR": "LSR", "LS": "LS", "BE": "BE", "SYSTEM": "SYSTEM"}
_BANDS: tuple[tuple[int, int, PriorityBand], ...] = (
    (9000, 9999, "prod"),
    (7000, 7999, "mid"),
    (5000, 5999, "batch"),
    (3000, 3999, "free"),
)
_INTEGER = re.compile(r"[+-]?[0-9]{1,10}")
"""As Go reads one; Python's own int() takes spaces, underscores and other alphabets' digits as well."""
SYSTEM_CRITICAL_CLASSES = frozenset({"system-node-critical", "system-cluster-critical"})
SYSTEM_CRITICAL_PRIORITY = 2_000_000_000


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """One container that takes resources: an ordinary one or a sidecar (an init container that is restarted)."""

    name: str
    container_id: str | None = None
    """Without the runtime's prefix; None before it is created."""
    running: bool = False
    sidecar: bool = False
    requests: Mapping[str, str] = {}
    limits: Mapping[str, str] = {}

    def request_millicores(self) -> int:
        """Return the native CPU request, which is the limit where only that is given; 0 when there is none."""
        value = self.requests.get("cpu", self.limits.get("cpu"))
        return 0 if value is None else quantity.millicores(value)

    def limit_millicores(self) -> int | None:
        """Return the native CPU limit, or None when there is none (0 counts as none, as for the kubelet)."""
        return (quantity.millicores(self.limits["cpu"]) or None) if "cpu" in self.limits else None

    def request_memory_bytes(self) -> int:
        """Return the native memory request; 0 when there is none (the API server copies a limit that stands alone)."""
        return quantity.whole(self.requests["memory"]) if "memory" in self.requests else 0

    def limit_memory_bytes(self) -> int | None:
        """Return the native memory limit, or None when there is none."""
        return (quantity.whole(self.limits["memory"]) or None) if "memory" in self.limits else None

    def extended_request(self, names: tuple[str, ...]) -> int:
        """Return the request of an extended resource by its names, newest first; 0 when there is none."""
        return next((quantity.whole(self.requests[n]) for n in names if n in self.requests), 0)

    def extended_limit(self, names: tuple[str, ...]) -> int | None:
        """Return the limit of an extended resource; None when there is none, or when it is not positive."""
        return next((max(quantity.whole(self.limits[n]), 0) or None for n in names if n in self.limits), None)


class ResourceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the scheduler gave the pod: a CPU list, or the NUMA nodes whose share pools it may use."""

    cpuset: str = ""
    numa_nodes: tuple[int, ...] = ()


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """One pod."""

    namespace: str
    name: str
    uid: str
    """The uid that the kubelet names the cgroup by (a static pod's is the hash of its manifest)."""
    kube_qos: KubeQos
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    priority: int | None = None
    priority_class_name: str = ""
    phase: str = ""
    terminating: bool = False
    containers: tuple[Container, ...] = ()
    resource_status: ResourceStatus = ResourceStatus()
    cpu_qos: Mapping[str, Any] = {}
    cpu_burst: Mapping[str, Any] = {}
    memory_qos: Mapping[str, Any] = {}
    blkio_qos: Mapping[str, Any] = {}
    annotated_qos: QosClass | None = None
    """The class by Volcano's annotations; it counts only without Koordinator's label."""
    has_extended_spec: bool = False
    """Whether some container asks for batch resources, in the annotation or by itself."""
    problems: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def qos_label(self) -> QosClass | None:
        """The class as labelled, or without the label as annotated for Volcano; None for neither, or an unknown one."""
        label = self.labels.get(QOS_LABEL)
        return self.annotated_qos if label is None else qos_class(label)

    @property
    def qos(self) -> QosClass:
        """Koordinator's class with the default for pods without the label."""
        return self.qos_label or default_qos(self.kube_qos)

    @property
    def best_effort(self) -> bool:
        """Whether the pod is offline work: labelled BE, or without a label and the kubelet's BestEffort."""
        return self.qos == "BE"

    @property
    def band(self) -> PriorityBand | None:
        """The priority band: the label (an unknown value is none), then ``spec.priority``, then the class's default."""
        return band(self.labels, self.priority, self.qos)

    @property
    def sub_priority(self) -> int:
        """The priority within the band; 0 when missing or not a number."""
        return _int32(self.labels.get(SUB_PRIORITY_LABEL)) or 0

    @property
    def eviction_priority(self) -> int:
        """Lower is evicted first; 0 when missing or not a number."""
        return _int32(self.annotations.get(EVICTION_PRIORITY_ANNOTATION)) or 0

    @property
    def active(self) -> bool:
        """Whether the pod runs or will run: neither finished nor being deleted."""
        return not self.terminating and self.phase not in ("Succeeded", "Failed")

    @property
    def system_critical(self) -> bool:
        """Whether the cluster itself needs the pod: in kube-system, or of a system-critical priority."""
        return (
            self.namespace == "kube-system"
            or self.priority_class_name in SYSTEM_CRITICAL_CLASSES
            or (self.priority is not None and self.priority >= SYSTEM_CRITICAL_PRIORITY)
        )

    def eviction_allowed(self, feature: str) -> bool:
        """Return whether the pod's ``eviction-policy`` lets this feature evict it; no annotation allows all."""
        text = self.annotations.get(EVICTION_POLICY_ANNOTATION)
        if text is None:
            return True
        allowed = _json(text)
        return isinstance(allowed, list) and feature in allowed

    def request_millicores(self) -> int:
        """Return the sum of the containers' native CPU requests."""
        return sum(container.request_millicores() for container in self.containers)

    def batch_request_millicores(self) -> int:
        """Return the sum of the containers' batch-cpu requests, in thousandths of a CPU."""
        return sum(container.extended_request(BATCH_CPU) for container in self.containers)


def qos_class(text: str | None) -> QosClass | None:
    """Return Koordinator's class of that name, or None where there is none."""
    return _QOS_CLASSES.get(text or "")


def default_qos(kube_qos: KubeQos) -> QosClass:
    """Return Koordinator's class of a pod without the label."""
    default: dict[KubeQos, QosClass] = {"Guaranteed": "LSR", "Burstable": "LS", "BestEffort": "BE"}
    return default[kube_qos]


def band(labels: Mapping[str, str], priority: int | None, qos: QosClass) -> PriorityBand | None:
    """Return the priority band: the label (None where unknown), then ``spec.priority``, then the class's default."""
    label = labels.get(PRIORITY_CLASS_LABEL)
    if label is not None:
        return next((name for _, _, name in _BANDS if label == f"koord-{name}"), None)
    return band_of(priority) or ("batch" if qos == "BE" else "prod")


def band_of(priority: int | None) -> PriorityBand | None:
    """Return the band of a ``spec.priority``; None outside every band."""
    if priority is None:
        return None
    return next((band for low, high, band in _BANDS if low <= priority <= high), None)


Quantities = Mapping[str, str | int | float]


def kube_qos(resources: Iterable[tuple[Quantities, Quantities]]) -> KubeQos:
    """Return Kubernetes' class of a pod by requests and limits: of each container, or of the pod where it has some."""
    pairs = [
        (_nonzero(requests.get(name)), _nonzero(limits.get(name)))
        for requests, limits in resources
        for name in ("cpu", "memory")
    ]
    if all(request is None and limit is None for request, limit in pairs):
        return "BestEffort"
    guaranteed = all(limit is not None and request in (None, limit) for request, limit in pairs)
    return "Guaranteed" if guaranteed else "Burstable"


def _nonzero(value: str | int | float | None) -> Any:
    if value is None:
        return None
    try:
        return quantity.parse(value) or None
    except quantity.BadQuantity:
        return None  # named when the pod is read


def resource_status_of(annotations: Mapping[str, str]) -> ResourceStatus:
    """Return what a pod's annotation says that it is bound to; nothing where there is none or it is malformed."""
    return read_resource_status(annotated_object(annotations, RESOURCE_STATUS_ANNOTATION, []))


def read_resource_status(status: Mapping[str, Any]) -> ResourceStatus:
    """Return what koord-scheduler gave a pod; a field of the wrong type counts as not given."""
    cpuset = status.get("cpuset")
    listed = status.get("numaNodeResources")
    nodes = [entry.get("node", 0) for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    return ResourceStatus(
        cpuset=cpuset if isinstance(cpuset, str) else "",
        numa_nodes=tuple(sorted({node for node in nodes if isinstance(node, int)})),
    )


def annotated_object(annotations: Mapping[str, str], name: str, problems: list[str]) -> Mapping[str, Any]:
    """Return the JSON object in an annotation; empty when it is missing or malformed, which is noted."""
    text = annotations.get(name)
    if text is None:
        return {}
    value = _json(text)
    if isinstance(value, dict):
        return value
    problems.append(f"annotation {name} is not a JSON object")
    return {}


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except MALFORMED:
        return None


def _int32(text: str | None) -> int | None:
    if _INTEGER.fullmatch(text or "") is None:
        return None
    value = int(text or "")
    return value if -(2**31) <= value < 2**31 else None
