"""The shapes of objects that are changed or checked, as far as they are read.

The API server sends nothing else. Whoever does gets a 400 that names the place, instead of an error of ours; files hold
what anybody wrote.
"""

from typing import Any

import msgspec

from cotenant.api.errors import BadRequest
from cotenant.manager.webhook.surroundings import Quantity
from cotenant.units import malformed
from cotenant.units.malformed import MALFORMED

Object = dict[str, Any]


class _Camel(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields as the API server spells them."""


class _Metadata(_Camel, frozen=True, kw_only=True):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[Object] | None = None
    deletion_timestamp: str | None = None


class _Resources(_Camel, frozen=True, kw_only=True):
    requests: dict[str, Quantity] | None = None
    limits: dict[str, Quantity] | None = None


class _Container(_Camel, frozen=True, kw_only=True):
    name: str | None = None
    resources: _Resources | None = None
    restart_policy: str | None = None


class _Expression(_Camel, frozen=True, kw_only=True):
    key: str | None = None


class _Term(_Camel, frozen=True, kw_only=True):
    match_expressions: list[_Expression] | None = None
    match_fields: list[Object] | None = None


class _Required(_Camel, frozen=True, kw_only=True):
    node_selector_terms: list[_Term] | None = None


class _Preferred(_Camel, frozen=True, kw_only=True):
    preference: _Term | None = None


class _NodeAffinity(_Camel, frozen=True, kw_only=True):
    required: _Required | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[_Preferred] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class _PodAffinity(_Camel, frozen=True, kw_only=True):
    required: list[Object] | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[Object] | None = msgspec.field(default=None, name="preferredDuringSchedulingIgnoredDuringExecution")


class _Affinity(_Camel, frozen=True, kw_only=True):
    node_affinity: _NodeAffinity | None = None
    pod_affinity: _PodAffinity | None = None
    pod_anti_affinity: _PodAffinity | None = None


class _PodSpec(_Camel, frozen=True, kw_only=True):
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    scheduler_name: str | None = None
    node_name: str | None = None
    resources: _Resources | None = None
    affinity: _Affinity | None = None


class Pod(_Camel, frozen=True, kw_only=True):
    """A pod."""

    metadata: _Metadata | None = None
    spec: _PodSpec | None = None


class _NodeStatus(_Camel, frozen=True, kw_only=True):
    capacity: dict[str, Quantity] | None = None
    allocatable: dict[str, Quantity] | None = None


class Node(_Camel, frozen=True, kw_only=True):
    """A node."""

    metadata: _Metadata | None = None
    status: _NodeStatus | None = None


class ConfigMap(_Camel, frozen=True, kw_only=True):
    """A ConfigMap."""

    metadata: _Metadata | None = None
    data: dict[str, str] | None = None


def problem(value: Any, shape: type[msgspec.Struct]) -> str:
    """Return where an object has another shape than this, and what is there; empty where it has this one."""
    if not isinstance(value, dict):
        return "not an object"
    try:
        msgspec.convert(value, shape)
    except MALFORMED as error:
        return malformed.problem(error, value, shape)
    return ""


def checked(value: Any, shape: type[msgspec.Struct], place: str) -> Object:
    """Return an object that has this shape.

    :raises BadRequest: if it has another one; the text names the place in it.
    """
    found = problem(value, shape)
    if found:
        raise BadRequest(f"AdmissionReview: {place}: {found}")
    return dict(value)
