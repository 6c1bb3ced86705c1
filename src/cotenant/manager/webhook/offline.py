"""What the webhook would make of pods, from files: to try a profile before it is in a cluster."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from cotenant.api import crd, unstructured
from cotenant.api.koordinator import kinds
from cotenant.api.koordinator.profile import KIND, Profile
from cotenant.manager.webhook import mutation, profiles, shapes, validation
from cotenant.manager.webhook.affinity import Strength
from cotenant.manager.webhook.errors import Refused
from cotenant.manager.webhook.surroundings import LimitRange, Namespace, PriorityClass, Quota, Surroundings
from cotenant.units import plain
from cotenant.units.errors import CotenantError
from cotenant.units.malformed import MALFORMED, problem

_KINDS: dict[str, Any] = {
    KIND: Profile,
    "Namespace": Namespace,
    "PriorityClass": PriorityClass,
    "ResourceQuota": Quota,
    "LimitRange": LimitRange,
}
KNOWN_CLASSES = {
    "koord-prod": 9000, "koord-mid": 7000, "koord-batch": 5000, "koord-free": 3000,
    "system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000,
}  # fmt: skip
"""Koordinator's classes, and those that every cluster has; they count as there unless the files say otherwise."""


class BadObjects(CotenantError):
    """An object that is not of its kind."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What would become of one pod."""

    namespace: str
    name: str
    applied: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    pod: dict[str, Any] | None = None
    """As it would be stored; None where it is refused."""


@dataclasses.dataclass(slots=True)
class Objects:
    """The objects of some files, and the profiles among them that are not good, with the reason."""

    ready: list[profiles.Ready] = dataclasses.field(default_factory=list)
    bad_profiles: dict[str, str] = dataclasses.field(default_factory=dict)
    unknown: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    """By profile: places of fields that nobody knows, and that do nothing."""
    namespaces: dict[str, Namespace] = dataclasses.field(default_factory=dict)
    classes: dict[str, PriorityClass] = dataclasses.field(default_factory=dict)
    quotas: list[Quota] = dataclasses.field(default_factory=list)
    limit_ranges: list[LimitRange] = dataclasses.field(default_factory=list)
    pods: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def around(self, namespace: str) -> Surroundings:
        """Return what is known around a pod; a namespace that is in no file has no labels but its name."""
        found = self.namespaces.get(namespace)
        labels = {"kubernetes.io/metadata.name": namespace, **((found and found.metadata.labels) or {})}
        return Surroundings(
            namespace=namespace,
            namespace_labels=labels,
            priority_classes=self.classes,
            quotas=[one for one in self.quotas if (one.metadata.namespace or "default") == namespace],
            limit_ranges=[one for one in self.limit_ranges if (one.metadata.namespace or "default") == namespace],
        )


def collected(values: Iterable[tuple[str, dict[str, Any]]]) -> Objects:
    """Return objects by kind, each given with the file that it is from; kinds that do not matter are passed over.

    :raises BadObjects: if an object is not of its kind.
    """
    found = Objects(
        classes={
            name: msgspec.convert({"metadata": {"name": name}, "value": value}, PriorityClass)
            for name, value in KNOWN_CLASSES.items()
        }
    )
    for place, value in values:
        _take(found, value, place)
    return found


def judge(objects: Objects, strength: Strength) -> list[Verdict]:
    """Return what would become of each pod."""
    return [_judge(objects, pod, strength) for pod in objects.pods]


def _judge(objects: Objects, pod: dict[str, Any], strength: Strength) -> Verdict:
    metadata = unstructured.metadata(pod)
    namespace, name = metadata.get("namespace") or "default", metadata.get("name") or metadata.get("generateName") or ""
    try:
        prioritized = _prioritized(pod, objects.classes)
        arrival = mutation.Arrival(pod=prioritized, identity=mutation.identity_of(pod, namespace, name))
        outcome = mutation.mutate(arrival, objects.ready, objects.around(namespace), strength)
    except Refused as error:
        return Verdict(namespace=namespace, name=name, refused=(str(error),))
    refused = tuple(validation.problems(outcome.pod))
    return Verdict(
        namespace=namespace,
        name=name,
        applied=outcome.applied,
        refused=refused,
        warnings=tuple(validation.warnings(outcome.pod)),
        pod=None if refused else outcome.pod,
    )


def _prioritized(pod: dict[str, Any], classes: Mapping[str, PriorityClass]) -> dict[str, Any]:
    """Return the pod with the priority of its class, or of the default class: so the API server hands it over.

    :raises Refused: if there is no class of that name, for which the API server turns it away.
    """
    spec = pod.get("spec") or {}
    default = next((one for one in classes.values() if one.global_default), None)
    name = spec.get("priorityClassName") or (default.metadata.name if default is not None else "")
    if not name or spec.get("priority") is not None:
        return pod
    found = classes.get(name)
    if found is None:
        raise Refused(f"spec.priorityClassName: there is no PriorityClass {name}; create it, or add it to the files")
    return {**pod, "spec": {**spec, "priorityClassName": name, "priority": found.value}}


def _take(found: Objects, written: dict[str, Any], place: str) -> None:
    kind, value, spec = written.get("kind"), plain.without_nulls(written), written.get("spec")
    if kind == KIND and isinstance(spec, dict) and "patch" in spec:
        value["spec"]["patch"] = spec["patch"]  # in which a null takes something away
    if kind == "Pod":
        wrong = shapes.problem(value, shapes.Pod)
        if wrong:
            raise BadObjects(f"{place}: Pod: {wrong}")
        found.pods.append(value)
        return
    if not isinstance(kind, str) or kind not in _KINDS:
        return
    try:
        one = msgspec.convert(value, _KINDS[kind], strict=False)
    except MALFORMED as error:
        raise BadObjects(f"{place}: {kind}: {problem(error, value, _KINDS[kind], strict=False)}") from None
    if isinstance(one, Profile):
        if strangers := crd.unknown_fields(kinds.PROFILE, value):
            found.unknown[one.metadata.name] = strangers
        try:
            found.ready.append(profiles.ready(one))
        except profiles.BadProfile as error:
            found.bad_profiles[one.metadata.name] = str(error)
    elif isinstance(one, Namespace):
        found.namespaces[one.metadata.name] = one
    elif isinstance(one, PriorityClass):
        found.classes[one.metadata.name] = one
    elif isinstance(one, Quota):
        found.quotas.append(one)
    elif isinstance(one, LimitRange):
        found.limit_ranges.append(one)
