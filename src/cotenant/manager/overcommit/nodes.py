"""A node as overcommit sees it: what it has, what is held back of it, and what is published on it now."""

import dataclasses
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import msgspec

from cotenant.api.objects import ObjectMeta
from cotenant.manager.overcommit import names
from cotenant.model import node as nodes
from cotenant.units import errors, quantity
from cotenant.units.malformed import MALFORMED, problem

Amounts = Mapping[names.Resource, int]
"""Whole thousandths of a core, and bytes."""


class _Status(msgspec.Struct, frozen=True, kw_only=True):
    capacity: dict[str, str | int | float] | None = None
    allocatable: dict[str, str | int | float] | None = None


class NodeObject(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a v1 Node that are read; images, conditions and addresses are skipped undecoded."""

    metadata: ObjectMeta = ObjectMeta()
    status: _Status = _Status()


class BadNode(errors.CotenantError):
    """What a Node says cannot be understood; the text names the place."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """One node."""

    name: str
    uid: str = ""
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    annotations: Mapping[str, str] = dataclasses.field(default_factory=dict)
    capacity: Amounts
    reserved: Amounts
    """The larger of what the kubelet keeps for the system and what the annotation reserves."""
    third_party: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """What other schedulers gave out, by the name of the published resource."""
    amplification: Fraction = Fraction(1)
    published: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """What the node offers now of the resources that overcommit publishes; those that it has not are left out."""
    torn: frozenset[str] = frozenset()
    """Resources of which capacity and allocatable differ: somebody wrote one of them alone."""
    origin: str | None = None
    """The annotation that tells other schedulers what is shared, as it is now."""


def decode(value: NodeObject) -> NodeFacts:
    """Return the facts of a node.

    :raises BadNode: if its size, its reservation or what others were given cannot be read: to guess at them could
        promise what is not there.
    """
    metadata, place = value.metadata, f"node/{value.metadata.name}"
    annotations = metadata.annotations or {}
    capacity, allocatable = value.status.capacity or {}, dict(value.status.allocatable or {})
    try:
        offered, torn = published(capacity, allocatable)
        native = {name: allocatable[name] for name in names.RESOURCES if name in allocatable}
        read = nodes.decode_node(
            {
                "metadata": {"name": metadata.name, "annotations": annotations},
                "status": {"capacity": capacity, "allocatable": native},
            },
            place,
            nodes.Node(capacity_millicores=None, capacity_memory_bytes=None),
        )
        if read.capacity_millicores is None or read.capacity_memory_bytes is None:
            raise BadNode(f"{place}: no capacity of cpu and memory yet")
        offers_bytes = read.allocatable_memory_bytes
        kept = 0 if offers_bytes is None else max(read.capacity_memory_bytes - offers_bytes, 0)
        return NodeFacts(
            name=metadata.name,
            uid=metadata.uid,
            labels=metadata.labels or {},
            annotations=annotations,
            capacity={"cpu": read.capacity_millicores, "memory": read.capacity_memory_bytes},
            reserved={"cpu": read.reserved_millicores, "memory": max(kept, read.annotation_reserved_bytes)},
            third_party=_third_party(annotations, place),
            amplification=read.cpu_normalization_ratio,
            published=offered,
            torn=torn,
            origin=annotations.get(names.ORIGIN_ANNOTATION),
        )
    except nodes.BadNode as error:
        raise BadNode(str(error)) from None
    except quantity.BadQuantity as error:
        raise BadNode(f"{place}: {error}") from None


def published(capacity: Mapping[str, Any], allocatable: Mapping[str, Any]) -> tuple[dict[str, int], frozenset[str]]:
    """Return what a node offers of what overcommit publishes, and of which of it capacity says something else.

    :raises BadQuantity: if an amount is no quantity.
    """
    found, torn = {}, set()
    for name in names.PUBLISHED:
        has, offers = capacity.get(name), allocatable.get(name)
        if offers is not None:
            found[name] = quantity.whole(offers)
        if (has is None) != (offers is None) or (has is not None and quantity.whole(has) != found[name]):
            torn.add(name)
    return found, frozenset(torn)


class _Allocation(msgspec.Struct, frozen=True, kw_only=True):
    priority: str = ""
    resources: dict[str, str | int | float] | None = None


class _Allocations(msgspec.Struct, frozen=True, kw_only=True):
    allocations: list[_Allocation] | None = None


def _third_party(annotations: Mapping[str, str], place: str) -> dict[str, int]:
    text = annotations.get(names.THIRD_PARTY_ANNOTATION)
    if not text:
        return {}
    try:
        said = msgspec.json.decode(text, type=_Allocations)
    except MALFORMED as error:
        raise BadNode(
            f"{place}: annotation {names.THIRD_PARTY_ANNOTATION}: {problem(error, text, _Allocations)}"
        ) from None
    sums: dict[str, int] = {}
    for allocation in said.allocations or ():
        for name, amount in (allocation.resources or {}).items():
            if name in names.PUBLISHED:
                # Less than nothing was never given out: it would be promised on top of what is there.
                sums[name] = sums.get(name, 0) + max(quantity.whole(amount), 0)
    return sums
