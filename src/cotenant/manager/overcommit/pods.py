"""A pod as overcommit sees it: whether it has precedence over batch work, and what it asks for."""

import dataclasses
import decimal
import math
from collections.abc import Mapping

import msgspec

from cotenant.api import timestamp
from cotenant.api.objects import ObjectMeta
from cotenant.manager.overcommit import names
from cotenant.model import pod as koordinator
from cotenant.units import quantity

FINISHED = ("Succeeded", "Failed")
_KUBE_QOS: dict[str, koordinator.KubeQos] = {
    "Guaranteed": "Guaranteed",
    "Burstable": "Burstable",
    "BestEffort": "BestEffort",
}
Amounts = Mapping[str, decimal.Decimal]
ANYWHERE = koordinator.ResourceStatus()
_NOTHING = decimal.Decimal(0)
_NO_REQUEST: Mapping[names.Resource, int] = {"cpu": 0, "memory": 0}


class _Resources(msgspec.Struct, frozen=True, gc=False):
    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class _Container(msgspec.Struct, frozen=True, rename="camel"):
    resources: _Resources | None = None
    restart_policy: str | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    overhead: dict[str, str | int | float] | None = None
    resources: _Resources | None = None


class _Running(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    started_at: str | None = None


class _State(msgspec.Struct, frozen=True, gc=False):
    running: _Running | None = None


class _ContainerStatus(msgspec.Struct, frozen=True, gc=False):
    state: _State | None = None


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    phase: str | None = None
    qos_class: str | None = None
    container_statuses: list[_ContainerStatus] | None = None


class PodObject(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a v1 Pod that are read."""

    metadata: ObjectMeta = ObjectMeta()
    given_spec: _Spec | None = msgspec.field(default=None, name="spec")
    given_status: _Status | None = msgspec.field(default=None, name="status")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """One pod that is bound to a node."""

    key: str
    node: str
    high_priority: bool
    """Batch work yields to it: neither batch nor free, or needed by the cluster itself."""
    prod: bool
    """Mid work yields to it as well."""
    exclusive: bool = False
    """Its CPUs are its own, used or not (LSE)."""
    request: Mapping[names.Resource, int] = dataclasses.field(default_factory=dict)
    """What it asks for of the node itself, mid resources included."""
    extended: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """What it asks for of the resources that overcommit publishes."""
    running_since: float | None = None
    """Seconds since the epoch at which the last of its containers started; None while one does not run."""
    bound: koordinator.ResourceStatus = ANYWHERE
    """The CPUs, or the NUMA nodes, that it is bound to; neither: it may be anywhere."""

    def settled(self, wall: float, seconds: float) -> bool:
        """Return whether the whole pod has run for so long that what it uses says what it needs."""
        return self.running_since is not None and wall - self.running_since >= seconds


def decode(value: PodObject) -> PodFacts | None:
    """Return the facts of a pod; None where it is bound to no node.

    One that has finished holds nothing; that it is known keeps a metric that outlives it from counting as a pod's that
    is not.

    :raises BadQuantity: if a request is no quantity, which an API server does not let through.
    """
    metadata, spec, status = value.metadata, value.given_spec or _Spec(), value.given_status or _Status()
    if not spec.node_name:
        return None
    namespace = metadata.namespace or "default"
    if status.phase in FINISHED:
        return PodFacts(
            key=f"{namespace}/{metadata.name}",
            node=spec.node_name,
            high_priority=False,
            prod=False,
            request=_NO_REQUEST,
        )
    read = koordinator.Pod(
        namespace=namespace,
        name=metadata.name,
        uid=metadata.uid,
        kube_qos=_KUBE_QOS.get(status.qos_class or "", "Burstable"),
        labels=metadata.labels or {},
        priority=spec.priority,
        priority_class_name=spec.priority_class_name or "",
    )
    total = requests_of(spec)
    # Both are one claim on the same CPUs: a mid pod asks for mid-cpu where another asks for cpu.
    own: dict[names.Resource, int] = {
        "cpu": math.ceil(total.get("cpu", _NOTHING) * 1000),
        "memory": math.ceil(total.get("memory", _NOTHING)),
    }
    extended = {name: math.ceil(total[name]) for name in names.PUBLISHED if name in total}
    for resource in names.RESOURCES:
        own[resource] += extended.get(names.MID[resource], 0)
    offline = read.band in ("batch", "free") and not read.system_critical
    return PodFacts(
        key=read.key,
        node=spec.node_name,
        high_priority=not offline,
        prod=not offline and read.band != "mid",
        exclusive=read.qos == "LSE",
        request=own,
        extended=extended,
        running_since=_running_since(spec, status),
        bound=koordinator.resource_status_of(metadata.annotations or {}),
    )


def requests_of(spec: _Spec) -> dict[str, decimal.Decimal]:
    """Return what a pod asks for as the scheduler adds it up, exactly.

    Its containers and sidecars together, or one init container beside the sidecars that start before it if that is
    more; or what the pod states as a whole. The overhead of its runtime comes on top.
    """
    running: dict[str, decimal.Decimal] = {}
    most: dict[str, decimal.Decimal] = {}
    for container in spec.init_containers or ():
        asked = _asked(container.resources)
        if container.restart_policy == "Always":
            running = _sum(running, asked)
        else:
            most = _most(most, _sum(running, asked))
    for container in spec.containers or ():
        running = _sum(running, _asked(container.resources))
    of_pod = spec.resources.requests if spec.resources is not None else None
    total = _most(most, running) | _exact(of_pod or {})
    return _sum(total, _exact(spec.overhead or {}))


def _asked(resources: _Resources | None) -> dict[str, decimal.Decimal]:
    """Return what a container asks for; a limit that stands alone is the request, as the API server has it."""
    if resources is None:
        return {}
    return _exact({**(resources.limits or {}), **(resources.requests or {})})


def _exact(amounts: Mapping[str, str | int | float]) -> dict[str, decimal.Decimal]:
    return {name: quantity.parse(amount) for name, amount in amounts.items()}


def _sum(one: Amounts, other: Amounts) -> dict[str, decimal.Decimal]:
    return {name: one.get(name, _NOTHING) + other.get(name, _NOTHING) for name in {**one, **other}}


def _most(one: Amounts, other: Amounts) -> dict[str, decimal.Decimal]:
    return {name: max(one.get(name, _NOTHING), other.get(name, _NOTHING)) for name in {**one, **other}}


def _running_since(spec: _Spec, status: _Status) -> float | None:
    states = [one.state.running if one.state is not None else None for one in status.container_statuses or ()]
    started = [timestamp.parse(running.started_at) if running is not None else None for running in states]
    known = [at for at in started if at is not None]
    if not known or len(known) < len(started) or len(started) < len(spec.containers or ()):
        return None
    return max(known)
