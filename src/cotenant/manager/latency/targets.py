"""Whom to scrape: pods with the annotation, and pods of a Service with it. Pure.

The annotation says which histogram (``cotenant.io/latency-metric``: ``name{label="value"}``); where it is served, by
``cotenant.io/latency-port`` and ``-path``, else by the usual ``prometheus.io/port`` and ``/path``.
"""

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from cotenant.api import marks
from cotenant.api.exposition import BadSelector, Selector
from cotenant.api.objects import ObjectMeta

NAME_LABELS = ("app.kubernetes.io/name", "app")
HASH_LABEL = "pod-template-hash"
PODS_LIMIT = 20
"""Pods of one service that are scraped: a sample of its requests, spread over its nodes."""
SERVICES_LIMIT = 64


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Status(msgspec.Struct, frozen=True, rename={"pod_ip": "podIP"}):
    phase: str = ""
    pod_ip: str = ""


class PodObject(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a v1 Pod that are read."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def annotated(self) -> bool:
        return marks.LATENCY_METRIC_ANNOTATION in (self.metadata.annotations or {})


class _ServiceSpec(msgspec.Struct, frozen=True):
    selector: dict[str, str] | None = None


class ServiceObject(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a v1 Service that are read."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _ServiceSpec = _ServiceSpec()

    @property
    def annotated(self) -> bool:
        return marks.LATENCY_METRIC_ANNOTATION in (self.metadata.annotations or {})

    @property
    def selector(self) -> str:
        """Its pods as a label selector; empty where it selects none."""
        return ",".join(f"{key}={value}" for key, value in sorted((self.spec.selector or {}).items()))


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """One pod's page of metrics. Equal targets are the same series."""

    service: str
    uid: str
    node: str
    url: str
    metric: Selector


def of_pod(pod: PodObject) -> Target | str | None:
    """Return the target that an annotated pod is, why it is none, or None while it does not run."""
    return _target(_service_of(pod), pod, pod.metadata.annotations or {})


def of_service(service: ServiceObject, pod: PodObject) -> Target | str | None:
    """Return the target that a pod of an annotated Service is; what the pod itself says comes first."""
    said = {**(service.metadata.annotations or {}), **(pod.metadata.annotations or {})}
    return _target(f"{service.metadata.namespace}/{service.metadata.name}", pod, said)


def _target(service: str, pod: PodObject, said: Mapping[str, str]) -> Target | str | None:
    if pod.status.phase != "Running" or not pod.status.pod_ip:
        return None
    try:
        metric = Selector.parse(said.get(marks.LATENCY_METRIC_ANNOTATION, ""))
    except BadSelector as error:
        return f"annotation {marks.LATENCY_METRIC_ANNOTATION}: {error}"
    port = next((said[name] for name in marks.LATENCY_PORT_ANNOTATIONS if name in said), "")
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        return f"annotation {marks.LATENCY_PORT_ANNOTATIONS[0]}: {port[:20]!r} is no port"
    path = next((said[name] for name in marks.LATENCY_PATH_ANNOTATIONS if name in said), "/metrics")
    if not path.startswith("/") or len(path) > 200 or any(ord(character) <= 32 for character in path):
        return f"annotation {marks.LATENCY_PATH_ANNOTATIONS[0]}: {path[:40]!r} is no path"
    address = f"[{pod.status.pod_ip}]" if ":" in pod.status.pod_ip else pod.status.pod_ip
    return Target(service, pod.metadata.uid, pod.spec.node_name, f"http://{address}:{port}{path}", metric)


def _service_of(pod: PodObject) -> str:
    metadata = pod.metadata
    labels, annotations = metadata.labels or {}, metadata.annotations or {}
    named = annotations.get(marks.LATENCY_SERVICE_ANNOTATION) or next(
        (labels[name] for name in NAME_LABELS if labels.get(name)), ""
    )
    owner = next((one.name for one in metadata.owner_references or ()), metadata.name)
    return f"{metadata.namespace}/{named or owner.removesuffix('-' + labels.get(HASH_LABEL, ''))}"


def choose(targets: Iterable[Target]) -> list[Target]:
    """Return whom to scrape of all that could be: a bounded number of services, of each so many pods over its nodes.

    The choice stays while the pods stay.
    """
    by_service: dict[str, list[Target]] = {}
    for target in targets:
        by_service.setdefault(target.service, []).append(target)
    found: list[Target] = []
    for service in sorted(by_service)[:SERVICES_LIMIT]:
        found += _spread(by_service[service])
    return found


def _spread(targets: Sequence[Target]) -> list[Target]:
    """Return some targets, one of each node before a second of any."""
    by_node: dict[str, list[Target]] = {}
    for target in sorted(targets, key=lambda one: _order(one.uid)):
        by_node.setdefault(target.node, []).append(target)
    turns = sorted(
        ((turn, _order(node), target) for node, own in by_node.items() for turn, target in enumerate(own)),
        key=lambda entry: entry[:2],
    )
    return [target for _, _, target in turns[:PODS_LIMIT]]


def _order(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()
