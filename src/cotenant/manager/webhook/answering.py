"""One answer for each path: pods are changed, and pods, profiles and the configuration are checked."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from cotenant.api import crd, unstructured
from cotenant.api.errors import BadRequest
from cotenant.api.koordinator import kinds, slo_config
from cotenant.api.koordinator.profile import Profile
from cotenant.manager.webhook import mutation, node_status, patching, profiles, review, shapes, validation
from cotenant.manager.webhook.affinity import Strength
from cotenant.manager.webhook.errors import Refused
from cotenant.manager.webhook.patching import Operation
from cotenant.manager.webhook.review import Request
from cotenant.manager.webhook.surroundings import Surroundings
from cotenant.units.malformed import MALFORMED, problem


class Cluster(Protocol):
    """What the answers depend on."""

    @property
    def ready(self) -> Sequence[profiles.Ready]:
        """The profiles that can be applied."""
        ...

    async def around(self, namespace: str) -> Surroundings:
        """Return what is known around a pod.

        :raises Unprepared: if that is not enough.
        """
        ...

    def has_priority_class(self, name: str) -> bool:
        """Return whether there is a priority class of that name."""
        ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How one request is answered, and which profiles were applied."""

    request: Request
    reasons: tuple[str, ...] = ()
    """Why it is turned away; empty where it is not."""
    operations: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()
    applied: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """Return it as the API server reads it."""
        if self.reasons:
            return review.refused(self.request, self.reasons, self.warnings)
        return review.allowed(self.request, self.operations, self.warnings)


class Answering:
    """Answers by what the cluster says."""

    def __init__(self, cluster: Cluster, strength: Strength, configuration: str) -> None:
        self._cluster = cluster
        self._strength = strength
        self._configuration = configuration
        """The ConfigMap with the strategies, as ``namespace/name``."""

    async def mutate_pod(self, request: Request) -> Answer:
        """Apply the profiles.

        :raises BadRequest: if the object is not of a pod's shape.
        :raises Unprepared: if not enough is known to do so.
        """
        pod = _object(request, shapes.Pod)
        around = await self._cluster.around(request.namespace)
        arrival = mutation.Arrival(
            pod=pod,
            identity=mutation.identity_of(pod, request.namespace, request.uid),
            update=request.operation == "UPDATE",
        )
        try:
            outcome = mutation.mutate(arrival, self._cluster.ready, around, self._strength)
        except Refused as error:
            return Answer(request=request, reasons=(str(error),))
        operations = patching.difference(pod, outcome.pod)
        return Answer(request=request, operations=tuple(operations), applied=outcome.applied)

    async def mutate_node_status(self, request: Request) -> Answer:
        """Amplify what a node can allocate.

        :raises BadRequest: if the object is of another shape.
        """
        node = _object(request, shapes.Node)
        before = _before(request, shapes.Node)
        operations = patching.difference(node, node_status.amplified(node, before))
        return Answer(request=request, operations=tuple(operations))

    async def validate_pod(self, request: Request) -> Answer:
        """Check a pod's class, priority and resources.

        :raises BadRequest: if the object is not of a pod's shape.
        """
        pod = _object(request, shapes.Pod)
        before = _before(request, shapes.Pod) if request.operation == "UPDATE" else None
        reasons = validation.problems(pod, before)
        warnings = validation.warnings(pod) if request.operation == "CREATE" else []
        return Answer(request=request, reasons=tuple(reasons), warnings=tuple(warnings))

    async def validate_profile(self, request: Request) -> Answer:
        """Check a profile; a priority class that is not there yet is a warning.

        :raises BadRequest: if there is no object.
        """
        try:
            profile = msgspec.convert(_object(request), Profile)
        except MALFORMED as error:
            return Answer(request=request, reasons=(problem(error, request.object, Profile),))
        try:
            profiles.ready(profile)
        except profiles.BadProfile as error:
            return Answer(request=request, reasons=tuple(error.problems))
        warnings = [f"{place}: nobody knows this field" for place in crd.unknown_fields(kinds.PROFILE, request.object)]
        name = profile.spec.priority_class_name
        if name and not self._cluster.has_priority_class(name):
            warnings.append(
                f"spec.priorityClassName: there is no PriorityClass {name}; pods are refused until there is"
            )
        return Answer(request=request, warnings=tuple(warnings))

    async def validate_configuration(self, request: Request) -> Answer:
        """Check ``slo-controller-config`` as far as it changes; other ConfigMaps are let through.

        :raises BadRequest: if the object is of another shape.
        """
        config = _object(request, shapes.ConfigMap)
        name = request.name or unstructured.metadata(config).get("name")  # not every server names what is made
        if f"{request.namespace}/{name}" != self._configuration:
            return Answer(request=request)
        data = config.get("data") or {}
        before = (_before(request, shapes.ConfigMap) or {}).get("data") or {}
        reasons, warnings = [], []
        for key in slo_config.KEYS:
            if key not in data or data[key] == before.get(key):
                continue
            try:
                section = slo_config.decode(key, data[key])
            except slo_config.BadSection as error:
                reasons.append(str(error))
                continue
            warnings += [f"{key}: {place}: nobody knows this field" for place in section.unknown]
            warnings += _overlaps(key, section)
        return Answer(request=request, reasons=tuple(reasons), warnings=tuple(warnings))


def _overlaps(key: str, section: slo_config.Section) -> list[str]:
    """Return a warning for each two strategies that may choose the same node."""
    selecting = [one for one in section.nodes if one.selector is not None]
    return [
        f"{key}: {first.name} and {second.name} can choose the same node, which then gets {first.name}"
        for first, second in itertools.combinations(selecting, 2)
        if first.selector is not None and second.selector is not None and not first.selector.excludes(second.selector)
    ]


def _object(request: Request, shape: type[msgspec.Struct] | None = None) -> dict[str, Any]:
    """Return the object, of this shape if one is given."""
    if not isinstance(request.object, dict):
        raise BadRequest(f"AdmissionReview: {request.operation} without an object")
    return request.object if shape is None else shapes.checked(request.object, shape, "object")


def _before(request: Request, shape: type[msgspec.Struct]) -> dict[str, Any] | None:
    """Return the object as it was, or None where the request does not say."""
    return None if request.old_object is None else shapes.checked(request.old_object, shape, "oldObject")
