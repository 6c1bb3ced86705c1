"""A v1 PodList, as the kubelet's ``/pods`` and the API server give it, read into :class:`cotenant.model.pod.Pod`.

Koordinator's labels, annotations and extended resources are parsed once, when the pod is read. What is malformed
counts as absent and is named in :attr:`Pod.problems`: a typing error in one annotation never ends a tick.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from cotenant.model import volcano
from cotenant.model.pod import (
    BATCH_CPU,
    BATCH_MEMORY,
    BLKIO_QOS_ANNOTATION,
    CPU_BURST_ANNOTATION,
    CPU_QOS_ANNOTATION,
    EXTENDED_RESOURCE_SPEC_ANNOTATION,
    MEMORY_QOS_ANNOTATION,
    MID_CPU,
    MID_MEMORY,
    RESOURCE_STATUS_ANNOTATION,
    Container,
    KubeQos,
    Pod,
    annotated_object,
    kube_qos,
    read_resource_status,
)
from cotenant.units import errors, quantity
from cotenant.units.malformed import MALFORMED, problem

_KUBE_QOS: dict[str, KubeQos] = {"Guaranteed": "Guaranteed", "Burstable": "Burstable", "BestEffort": "BestEffort"}
_EXTENDED = frozenset({*BATCH_CPU, *BATCH_MEMORY, *MID_CPU, *MID_MEMORY})
"""What the annotation of extended resources may speak of: the native resources are the API server's to check."""
_REMEDY = "give a v1 PodList as the kubelet's /pods returns it"


class BadPods(errors.CotenantError):
    """The file is not a v1 PodList."""


def decode(text: bytes | str, place: str = "PodList", *, preemptable_is_offline: bool = False) -> tuple[Pod, ...]:
    """Return the pods of a v1 PodList in JSON. ``preemptable_is_offline``: as rubik takes it.

    :raises BadPods: if it is not JSON, not a list of pods, or a pod lacks its name, uid or a valid quantity.
    """
    try:
        listed = msgspec.json.decode(text, type=_PodList)
    except MALFORMED as error:
        raise BadPods(f"{place}: {problem(error, text, _PodList)}; {_REMEDY}") from None
    if listed.kind not in ("PodList", "List", None) or (listed.kind is None and listed.items is None):
        raise BadPods(f"{place}: kind is {listed.kind or 'not given'}; {_REMEDY}")
    return tuple(_pod(item, place, preemptable_is_offline) for item in listed.items or ())


class _Resources(msgspec.Struct):
    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class _Container(msgspec.Struct, rename="camel"):
    name: str
    resources: _Resources | None = None
    restart_policy: str | None = None


class _Status(msgspec.Struct, rename={"container_id": "containerID"}):
    name: str
    container_id: str | None = None
    state: dict[str, Any] | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    uid: str
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class _Spec(msgspec.Struct, rename="camel"):
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    resources: _Resources | None = None


class _PodStatus(msgspec.Struct, rename="camel"):
    phase: str | None = None
    qos_class: str | None = None
    container_statuses: list[_Status] | None = None
    init_container_statuses: list[_Status] | None = None


class _Pod(msgspec.Struct, rename={"given_spec": "spec", "given_status": "status"}):
    metadata: _Metadata
    given_spec: _Spec | None = None
    given_status: _PodStatus | None = None

    @property
    def spec(self) -> _Spec:
        return self.given_spec or _Spec()

    @property
    def status(self) -> _PodStatus:
        return self.given_status or _PodStatus()


class _PodList(msgspec.Struct):
    kind: str | None = None
    items: list[_Pod] | None = None


def _pod(wire: _Pod, place: str, preemptable_is_offline: bool) -> Pod:
    annotations = wire.metadata.annotations or {}
    problems: list[str] = []
    extended = annotated_object(annotations, EXTENDED_RESOURCE_SPEC_ANNOTATION, problems).get("containers")
    containers = _containers(wire, extended if isinstance(extended, dict) else {}, problems)
    pod = Pod(
        namespace=wire.metadata.namespace or "default",
        name=wire.metadata.name,
        uid=_cgroup_uid(wire.metadata.uid, annotations),
        kube_qos=_kube_qos(wire),
        labels=wire.metadata.labels or {},
        annotations=annotations,
        priority=wire.spec.priority,
        priority_class_name=wire.spec.priority_class_name or "",
        phase=wire.status.phase or "",
        terminating=wire.metadata.deletion_timestamp is not None,
        containers=containers,
        resource_status=read_resource_status(annotated_object(annotations, RESOURCE_STATUS_ANNOTATION, problems)),
        cpu_qos=annotated_object(annotations, CPU_QOS_ANNOTATION, problems),
        cpu_burst=annotated_object(annotations, CPU_BURST_ANNOTATION, problems),
        memory_qos=annotated_object(annotations, MEMORY_QOS_ANNOTATION, problems),
        blkio_qos=annotated_object(annotations, BLKIO_QOS_ANNOTATION, problems),
        annotated_qos=volcano.qos_of(annotations, preemptable_is_offline),
        has_extended_spec=any(
            name in container.requests or name in container.limits
            for container in containers
            for name in BATCH_CPU + BATCH_MEMORY
        ),
        problems=tuple(problems),
    )
    try:
        for container in containers:
            for value in (*container.requests.values(), *container.limits.values()):
                quantity.parse(value)
    except quantity.BadQuantity as error:
        raise BadPods(f"{place}: pod {pod.key}: {error}") from None
    return pod


def _containers(wire: _Pod, extended: Mapping[str, Any], problems: list[str]) -> tuple[Container, ...]:
    statuses = {
        status.name: status
        for status in (*(wire.status.init_container_statuses or ()), *(wire.status.container_statuses or ()))
    }
    sidecars = [c for c in wire.spec.init_containers or () if c.restart_policy == "Always"]
    found = [(c, True) for c in sidecars] + [(c, False) for c in wire.spec.containers or ()]
    return tuple(_container(c, sidecar, statuses.get(c.name), extended.get(c.name), problems) for c, sidecar in found)


def _container(
    wire: _Container, sidecar: bool, status: _Status | None, extended: Any, problems: list[str]
) -> Container:
    resources = wire.resources or _Resources()
    added = extended if isinstance(extended, dict) else {}
    return Container(
        name=wire.name,
        container_id=(status.container_id or "").rpartition("//")[2] or None if status else None,
        running=bool(status and status.state and "running" in status.state),
        sidecar=sidecar,
        requests=_texts(resources.requests) | _extended(added.get("requests"), problems),
        limits=_texts(resources.limits) | _extended(added.get("limits"), problems),
    )


def _texts(values: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in values.items()} if isinstance(values, dict) else {}


def _extended(values: Any, problems: list[str]) -> dict[str, str]:
    """Return the extended resources in the annotation; what is none, or no amount, is left out and noted."""
    found = {}
    for name, value in _texts(values).items():
        try:
            valid = name in _EXTENDED and quantity.parse(value) >= 0
        except quantity.BadQuantity:
            valid = False
        if valid:
            found[name] = value
        else:
            problems.append(f"annotation {EXTENDED_RESOURCE_SPEC_ANNOTATION}: {name[:80]} {value[:40]!r}: left out")
    return found


def _cgroup_uid(uid: str, annotations: Mapping[str, str]) -> str:
    """Return the uid in the name of the pod's cgroup: a mirror of a static pod carries it as an annotation."""
    return annotations.get("kubernetes.io/config.mirror") or uid


def _kube_qos(wire: _Pod) -> KubeQos:
    stated = _KUBE_QOS.get(wire.status.qos_class or "")
    if stated:
        return stated
    containers = [*(wire.spec.init_containers or ()), *(wire.spec.containers or ())]
    resources = [wire.spec.resources] if wire.spec.resources else [c.resources or _Resources() for c in containers]
    return kube_qos([(r.requests or {}, r.limits or {}) for r in resources])
