"""Offline pods ask for what is left over: cpu and memory become batch or mid resources.

CPU becomes whole thousandths of a core and memory whole bytes, both rounded up. Init containers and sidecars are
translated like the others. ``spec.overhead`` is not: the API server holds it against the RuntimeClass.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from cotenant.manager.webhook.errors import Refused
from cotenant.model import pod as pods
from cotenant.units import quantity

Resources = dict[str, Any]

NATIVE = ("cpu", "memory")
EXTENDED: dict[pods.PriorityBand, dict[str, tuple[str, ...]]] = {
    "batch": {"cpu": pods.BATCH_CPU, "memory": pods.BATCH_MEMORY},
    "mid": {"cpu": pods.MID_CPU, "memory": pods.MID_MEMORY},
}
"""What a native resource becomes, by the pod's band: the first name is the one that is written."""
_SPECIFIED = (*pods.BATCH_CPU, *pods.BATCH_MEMORY, *pods.MID_CPU, *pods.MID_MEMORY)


def containers_of(pod: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every container that takes resources, with its place: init containers, sidecars, ordinary ones."""
    for kind in ("initContainers", "containers"):
        for index, container in enumerate((pod.get("spec") or {}).get(kind) or ()):
            yield f"spec.{kind}[{index}]", container


def translate(pod: dict[str, Any], band: pods.PriorityBand) -> frozenset[str]:
    """Translate a pod's resources in place; return the native ones that some container asks for by another name now.

    A container that states an extended resource itself keeps that amount, and only loses the native one.

    :raises Refused: if an amount is not a quantity, or the pod has resources that cannot be translated.
    """
    names = EXTENDED.get(band)
    if names is None:
        return frozenset()
    of_pod = (pod.get("spec") or {}).get("resources") or {}
    if any(name in (of_pod.get(side) or {}) for side in ("requests", "limits") for name in NATIVE):
        raise Refused(
            f"spec.resources: cpu and memory of the whole pod have no {band} counterpart; give them by container, or"
            " annotate the profile with config.koordinator.sh/skip-update-resources"
        )
    translated = set()
    for place, container in containers_of(pod):
        resources = container.get("resources")
        if isinstance(resources, dict):
            translated |= _translate_container(resources, names, place)
    return frozenset(translated)


def _translate_container(resources: Resources, names: dict[str, tuple[str, ...]], place: str) -> set[str]:
    found = set()
    huge = any(name.startswith("hugepages-") for side in ("requests", "limits") for name in resources.get(side) or ())
    # What an earlier round put beside huge pages, or as good: it asks for nothing.
    filler = huge and [(resources.get(side) or {}).get("cpu") for side in ("requests", "limits")] == ["0", None]
    for native in NATIVE:
        stated = any(name in (resources.get(side) or {}) for side in ("requests", "limits") for name in names[native])
        for side in ("requests", "limits"):
            amounts = resources.get(side)
            if not isinstance(amounts, dict) or native not in amounts or (filler and native == "cpu"):
                continue
            value = amounts.pop(native)
            if not stated:
                amounts[names[native][0]] = _converted(native, value, f"{place}.resources.{side}.{native}")
        for name in names[native]:
            if name in (resources.get("limits") or {}):
                resources["requests"] = resources.get("requests") or {}
                resources["requests"].setdefault(name, resources["limits"][name])
            if name in (resources.get("requests") or {}):
                found.add(native)
    if huge and found:
        # Kubernetes takes huge pages beside cpu or memory only; an amount of 0 is enough for it.
        resources["requests"] = {**(resources.get("requests") or {}), "cpu": "0"}
    return found


def _converted(native: str, value: Any, place: str) -> str:
    """Return a native amount as an extended one. Text that is a whole amount of bytes already stays as it is."""
    try:
        if native == "cpu":
            return str(quantity.millicores(value))
        exact = quantity.parse(value)
        return str(value) if exact == exact.to_integral_value() else str(quantity.whole(value))
    except quantity.BadQuantity as error:
        raise Refused(f"{place}: {error}") from None


def extended_resource_spec(pod: dict[str, Any]) -> str | None:
    """Return the annotation from which a node's agent reads batch and mid resources, or None where there are none.

    It holds the containers that run together, sidecars included; init containers would be added to their sum.
    """
    found = {}
    for place, container in containers_of(pod):
        if place.startswith("spec.initContainers") and container.get("restartPolicy") != "Always":
            continue
        resources = container.get("resources") or {}
        sides = {
            side: {name: _whole(amounts[name]) for name in _SPECIFIED if name in amounts}
            for side in ("limits", "requests")
            if isinstance(amounts := resources.get(side), dict)
        }
        if any(sides.values()):
            found[str(container.get("name"))] = {side: amounts for side, amounts in sides.items() if amounts}
    return msgspec.json.encode({"containers": found}).decode() if found else None


def _whole(value: Any) -> str:
    try:
        return str(quantity.whole(value))
    except quantity.BadQuantity:
        return str(value)  # the API server will say so
