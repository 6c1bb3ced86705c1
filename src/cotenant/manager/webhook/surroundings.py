"""What the cluster says around a pod: its namespace's labels, quotas and limits, and the priority classes."""

import dataclasses
from collections.abc import Mapping, Sequence

import msgspec

from cotenant.api.objects import ObjectMeta
from cotenant.detect.templates import Templates, bundled

Quantity = str | int | float


class PriorityClass(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A priority class."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    preemption_policy: str | None = None
    global_default: bool = False
    """It is given to pods that name none."""


class Namespace(msgspec.Struct, frozen=True, kw_only=True):
    """A namespace, for its labels."""

    metadata: ObjectMeta = ObjectMeta()


class ScopeRequirement(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One expression of a quota's scopes."""

    scope_name: str = ""
    operator: str = ""
    values: list[str] | None = None


class ScopeSelector(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The scopes of a quota, as expressions."""

    match_expressions: list[ScopeRequirement] | None = None


class QuotaSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a quota limits, and for which pods."""

    hard: dict[str, Quantity] | None = None
    scopes: list[str] | None = None
    scope_selector: ScopeSelector | None = None


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """A ResourceQuota."""

    metadata: ObjectMeta = ObjectMeta()
    spec: QuotaSpec = QuotaSpec()


class LimitItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The bounds of a LimitRange for one kind of thing: ``Container``, ``Pod`` or another."""

    type: str = ""
    min: dict[str, Quantity] | None = None
    max: dict[str, Quantity] | None = None
    max_limit_request_ratio: dict[str, Quantity] | None = None


class LimitRangeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of a LimitRange."""

    limits: list[LimitItem] | None = None


class LimitRange(msgspec.Struct, frozen=True, kw_only=True):
    """A LimitRange."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LimitRangeSpec = LimitRangeSpec()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What is known around one pod."""

    namespace: str
    namespace_labels: Mapping[str, str]
    priority_classes: Mapping[str, PriorityClass]
    quotas: Sequence[Quota] = ()
    """Those of the pod's namespace."""
    limit_ranges: Sequence[LimitRange] = ()
    """Those of the pod's namespace."""
    templates: Templates = dataclasses.field(default_factory=bundled)
    """What pods get by their type of business."""
