"""The same by NUMA node: what batch work may ask for in each zone of a NodeResourceTopology."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import msgspec

from cotenant.api.koordinator import topology
from cotenant.api.objects import ObjectMeta
from cotenant.manager.overcommit import balance, formula, names, publication
from cotenant.manager.overcommit.consumption import Consumption
from cotenant.manager.overcommit.nodes import Amounts, NodeFacts
from cotenant.manager.overcommit.pods import PodFacts
from cotenant.manager.overcommit.strategy import Strategy
from cotenant.model.node import CPU_TOPOLOGY_ANNOTATION
from cotenant.units import cpulist, quantity
from cotenant.units.malformed import MALFORMED


class TopologyObject(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a NodeResourceTopology that are read; its zones are kept whole, to be written back."""

    metadata: ObjectMeta = ObjectMeta()
    zones: list[dict[str, Any]] = []


class _Named(msgspec.Struct, frozen=True, gc=False):
    name: str


class _Shape(msgspec.Struct, frozen=True, gc=False):
    """What every zone has, whatever else is in it."""

    name: str
    resources: list[_Named] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """One NUMA node."""

    name: str
    number: int
    capacity: Amounts
    published: Mapping[str, int]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ZoneFacts:
    """The NUMA nodes of a node."""

    resource_version: str
    zones: tuple[Zone, ...]
    raw: Sequence[Mapping[str, Any]]
    """All zones as they were read, others' resources included."""
    zone_of_cpu: Mapping[int, int]


def decode(value: TopologyObject) -> ZoneFacts:
    """Return the zones of a node that are NUMA nodes and say how large they are.

    :raises BadQuantity: if an amount in it is no quantity.
    :raises DecodeError: if a zone is of another shape.
    """
    msgspec.convert(value.zones, list[_Shape])
    return ZoneFacts(
        resource_version=value.metadata.resource_version,
        zones=tuple(zone for raw in value.zones if (zone := _zone(raw)) is not None),
        raw=value.zones,
        zone_of_cpu=_zone_of_cpu((value.metadata.annotations or {}).get(CPU_TOPOLOGY_ANNOTATION, "")),
    )


def _zone(raw: Mapping[str, Any]) -> Zone | None:
    name, number = str(raw.get("name", "")), str(raw.get("name", "")).rpartition("-")[2]
    amounts = {one["name"]: one for one in raw.get("resources") or () if isinstance(one, dict) and "name" in one}
    if raw.get("type") != topology.ZONE_TYPE or not number.isdecimal() or not {"cpu", "memory"} <= set(amounts):
        return None
    return Zone(
        name=name,
        number=int(number),
        capacity={
            "cpu": quantity.millicores(amounts["cpu"]["capacity"]),
            "memory": quantity.whole(amounts["memory"]["capacity"]),
        },
        published={one: quantity.whole(amounts[one]["allocatable"]) for one in names.BATCH.values() if one in amounts},
    )


def _zone_of_cpu(text: str) -> dict[int, int]:
    try:
        detail = msgspec.json.decode(text, type=topology.CpuTopology).detail if text else []
    except MALFORMED:
        return {}  # pods are then spread evenly, as where there is no annotation
    return {cpu.id: cpu.node for cpu in detail}


def values_of(
    facts: ZoneFacts, node: NodeFacts, pods: Sequence[PodFacts], use: Consumption, strategy: Strategy, wall: float
) -> dict[str, dict[str, int]]:
    """Return what each zone is to offer, by its name and the name of the resource; what is not known is left out.

    A pod that is bound counts where it is bound; everything that is not is spread evenly.
    """
    found: dict[str, dict[str, int]] = {zone.name: {} for zone in facts.zones}
    view = balance.View(pods, use, strategy, wall)
    for resource in names.RESOURCES:
        system = view.system_used(resource)
        if system is None:
            continue
        policy = strategy.policy[resource]
        amounts = [(_shares(facts, pod), claim.amount(policy)) for pod, claim in view.claims(resource)]
        even = Fraction(1, len(facts.zones)) if facts.zones else Fraction(0)
        for zone in facts.zones:
            measured = use.zones.get(zone.number)
            stated = measured.of(resource) if measured is not None else None
            here = [math.ceil(amount * shares.get(zone.number, Fraction(0))) for shares, amount in amounts]
            terms = formula.batch(
                zone.capacity[resource],
                strategy.reclaim_percent[resource],
                strategy.policy[resource],
                system_used=math.ceil(system * even) if stated is None else stated,
                reserved=math.ceil(node.reserved[resource] * even),
                claims=[formula.Claim(request=None, used=amount) for amount in here],
                cap_percent=strategy.batch_percent[resource],
                amplification=node.amplification if resource == "cpu" else balance.UNAMPLIFIED,
                third_party=math.ceil(node.third_party.get(names.BATCH[resource], 0) * even),
            )
            found[zone.name][names.BATCH[resource]] = terms.value
    return found


def _shares(facts: ZoneFacts, pod: PodFacts | None) -> Mapping[int, Fraction]:
    """Return how a pod's amount is spread over NUMA nodes; the parts add up to 1."""
    numbers = [zone.number for zone in facts.zones]
    if pod is not None and pod.bound.cpuset:
        try:
            at = [facts.zone_of_cpu[cpu] for cpu in cpulist.parse(pod.bound.cpuset) if cpu in facts.zone_of_cpu]
        except cpulist.BadCpuList:
            at = []
        here = [number for number in at if number in numbers]
        if here:
            return _spread(here)
    if pod is not None:
        here = [number for number in pod.bound.numa_nodes if number in numbers]  # it cannot be bound elsewhere
        if here:
            return _spread(here)
    return _spread(numbers)


def _spread(numbers: Iterable[int]) -> dict[int, Fraction]:
    listed = list(numbers)
    return {number: Fraction(listed.count(number), len(listed)) for number in set(listed)}


def patch(facts: ZoneFacts, new: Mapping[str, Mapping[str, int]]) -> dict[str, Any] | None:
    """Return the merge patch that makes the zones offer the new values, or None where they do.

    The list of zones is written whole, and only if nobody wrote it since it was read: it is others' as well.
    """
    zones = [_with(raw, new[str(raw.get("name"))]) if raw.get("name") in new else dict(raw) for raw in facts.raw]
    if zones == [dict(raw) for raw in facts.raw]:
        return None
    return {"metadata": {"resourceVersion": facts.resource_version}, "zones": zones}


def _with(raw: Mapping[str, Any], values: Mapping[str, int]) -> dict[str, Any]:
    others = [one for one in raw.get("resources") or () if one.get("name") not in names.BATCH.values()]
    ours = [
        {"name": name, "capacity": text, "allocatable": text, "available": text}
        for name, text in ((name, str(value)) for name, value in sorted(values.items()))
    ]
    return {**raw, "resources": sorted([*others, *ours], key=lambda one: str(one.get("name")))}


def is_due(facts: ZoneFacts, new: Mapping[str, Mapping[str, int]], strategy: Strategy) -> bool:
    """Return whether some zone's value has changed enough to be told."""
    return any(publication.is_due(zone.published, new[zone.name], None, strategy) for zone in facts.zones)
