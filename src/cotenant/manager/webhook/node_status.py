"""What a node says it can allocate, amplified: a Node's status as it is written, and what it becomes.

The kubelet always writes what the machine has, and would undo within seconds what anybody else wrote there; so the
amount is multiplied on its way in, and the annotation ``raw-allocatable`` keeps what it was. Koordinator's protocol.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import msgspec

from cotenant.api import unstructured
from cotenant.api.koordinator.names import AMPLIFICATION_ANNOTATION
from cotenant.manager.overcommit.strategy import exact
from cotenant.model.node import RAW_ALLOCATABLE_ANNOTATION
from cotenant.units import quantity
from cotenant.units.malformed import MALFORMED

AMPLIFIED = ("cpu", "memory")
"""Resources that a ratio applies to; for others it says nothing."""
Object = Mapping[str, Any]


def amplified(node: Object, before: Object | None) -> dict[str, Any]:
    """Return a Node whose ``allocatable`` is amplified; unchanged where it has no ratio, or one that nobody can read.

    An amount that differs from the one ``before``, or is of another capacity, comes from who knows the machine:
    it is the raw one. One that is the same was amplified before, and the annotation has what it was made of.
    """
    metadata, status = unstructured.metadata(node), node.get("status") or {}
    ratios = _map((metadata.get("annotations") or {}).get(AMPLIFICATION_ANNOTATION))
    allocatable = status.get("allocatable")
    if not ratios or not isinstance(allocatable, dict):
        return dict(node)
    was = (before or {}).get("status") or {}
    told, had, has = was.get("allocatable") or {}, was.get("capacity") or {}, status.get("capacity") or {}
    kept = raw_of(metadata.get("annotations") or {})
    raw = {
        name: kept[name] if name in kept and (amount, has.get(name)) == (told.get(name), had.get(name)) else amount
        for name, amount in allocatable.items()
        if name in AMPLIFIED
    }
    try:
        shown = {name: times(raw[name], exact(ratios[name]), name) for name in raw if name in ratios}
    except (ValueError, quantity.BadQuantity):
        return dict(node)
    text = msgspec.json.encode(dict(sorted(raw.items()))).decode()
    annotations = {**metadata["annotations"], RAW_ALLOCATABLE_ANNOTATION: text}
    return {
        **node,
        "metadata": {**metadata, "annotations": annotations},
        "status": {**status, "allocatable": {**allocatable, **shown}},
    }


def raw_of(annotations: Mapping[str, str]) -> dict[str, Any]:
    """Return what an amplified node has in truth; empty where the annotation does not say."""
    return _map(annotations.get(RAW_ALLOCATABLE_ANNOTATION))


def is_amplified(annotations: Mapping[str, str], allocatable: Mapping[str, Any]) -> bool:
    """Return whether a node shows what its ratios make of its raw amounts."""
    ratios, raw = _map(annotations.get(AMPLIFICATION_ANNOTATION)), raw_of(annotations)
    named = [name for name in AMPLIFIED if name in ratios and name in allocatable]
    if any(name not in raw for name in named):
        return False
    try:
        wanted = {name: times(raw[name], exact(ratios[name]), name) for name in named}
        return all(quantity.parse(allocatable[name]) == quantity.parse(amount) for name, amount in wanted.items())
    except (ValueError, quantity.BadQuantity):
        return True  # nobody can read it: nothing would come of asking


def times(amount: str | int | float, ratio: Fraction, name: str) -> str | int | float:
    """Return an amount multiplied, rounded up: CPU to thousandths, else to whole numbers. A ratio up to 1 is none.

    :raises BadQuantity: if the amount is no quantity.
    """
    if ratio <= 1:
        return amount
    value = Fraction(quantity.parse(amount)) * ratio
    if name != "cpu":
        return str(math.ceil(value))
    millicores = math.ceil(value * 1000)
    return f"{millicores}m" if millicores % 1000 else str(millicores // 1000)


def _map(text: str | None) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, Any])
    except MALFORMED:
        return {}
