"""What a rollout leaves on a Node: labels, and one annotation that says what was set and what was there before.

Both are one write, so that whoever reads the node knows how to put it back, after any restart. Pure.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from cotenant.api.report import AgentCounts
from cotenant.api.rollout import HOLD_ANNOTATION
from cotenant.units.malformed import MALFORMED, problem


class Hold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The annotation. ``was`` None: there was no such label. ``level`` and ``counts`` are from before the change."""

    rollout: str
    uid: str
    stage: str
    at: str
    set: dict[str, str]
    was: dict[str, str | None]
    level: float | None = None
    counts: AgentCounts | None = None


_decoder = msgspec.json.Decoder(Hold)


def hold_of(annotations: Mapping[str, str] | None) -> Hold | None:
    """Return what the annotation says, or None where there is none.

    :raises ValueError: if it cannot be read.
    """
    text = (annotations or {}).get(HOLD_ANNOTATION)
    if text is None:
        return None
    try:
        found = _decoder.decode(text)
    except MALFORMED as error:
        raise ValueError(problem(error, text, Hold)) from None
    if set(found.set) != set(found.was):
        raise ValueError("set and was do not name the same labels")
    return found


def holding_patch(node: Mapping[str, Any], hold: Hold) -> dict[str, Any] | None:
    """Return the merge patch that sets a hold's labels, or None where the node is already held by that rollout.

    ``node`` is the object as it was read: what it holds now becomes ``was``, and the patch holds for it alone.
    """
    metadata = node["metadata"]
    labels = metadata.get("labels") or {}
    try:
        held = hold_of(metadata.get("annotations"))
    except ValueError:
        return None
    if held is not None and held.uid == hold.uid:
        return None
    kept = msgspec.structs.replace(hold, was={key: labels.get(key) for key in hold.set})
    annotation = msgspec.json.encode(kept).decode()
    return _patch(metadata, dict(hold.set), annotation)


def release_patch(node: Mapping[str, Any], uid: str, *, keep: frozenset[str] = frozenset()) -> dict[str, Any] | None:
    """Return the merge patch that ends a rollout's hold on a node, or None where it has none.

    Each label that still has the value that was set gets its earlier one; what somebody changed since stays, and so do
    the labels in ``keep``.
    """
    metadata = node["metadata"]
    labels = metadata.get("labels") or {}
    try:
        held = hold_of(metadata.get("annotations"))
    except ValueError:
        return None
    if held is None or held.uid != uid:
        return None
    back = {
        key: held.was[key]
        for key, value in held.set.items()
        if key not in keep and labels.get(key) == value and held.was[key] != value
    }
    return _patch(metadata, back, None)


def _patch(metadata: Mapping[str, Any], labels: Mapping[str, str | None], annotation: str | None) -> dict[str, Any]:
    changed: dict[str, Any] = {
        "resourceVersion": metadata["resourceVersion"],
        "annotations": {HOLD_ANNOTATION: annotation},
    }
    if metadata.get("uid"):
        changed["uid"] = metadata["uid"]
    if labels:
        changed["labels"] = dict(labels)
    return {"metadata": changed}
