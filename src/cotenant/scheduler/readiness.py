"""The condition ``KataReady`` of a node, and the label beside it. Pure."""

from collections.abc import Iterable

import msgspec

from cotenant.api import timestamp
from cotenant.api.marks import CONDITION, KATA_LABEL
from cotenant.api.objects import Node, NodeCondition, RuntimeClass, RuntimeClassScheduling
from cotenant.api.reading import Row
from cotenant.scheduler import kata

_REASONS = {
    "node is outside": "OutsideNodeSelector",
    "label": "NotLabelledReady",
    "node is not Ready": "NodeNotReady",
    "container runtime offers": "HandlerNotOffered",
    "container runtime's configuration": "HandlerNotConfigured",
    "host lacks": "HostRequirementMissing",
}


def condition_of(
    node: Node, row: Row | None, runtime_classes: Iterable[RuntimeClass], now: float
) -> NodeCondition | None:
    """Return the condition that should be on the node, or None where nobody knows anything of Kata there.

    ``row`` is the node's report while it holds. The node is ready when it can run at least one Kata RuntimeClass; a
    cluster without one is judged by the host alone.
    """
    held = next((found for found in node.status.conditions or () if found.type == CONDITION), None)
    if row is None or not row.kata_looked:
        if held is None:
            return None
        return _settled(held, "Unknown", "NoReport", "no report of this node holds that says anything of Kata", now)
    classes = sorted(
        (_without_our_label(one) for one in runtime_classes if kata.is_kata_handler(one.handler)),
        key=lambda one: one.metadata.name,
    )
    faults = [kata.fault_of(one, node, row) for one in classes] or [kata.fault_of(None, node, row)]
    able = [one.metadata.name for one, fault in zip(classes, faults, strict=False) if fault is None]
    if None in faults:
        text = f"can run {', '.join(able)}" if able else "the host has what Kata needs; there is no Kata RuntimeClass"
        return _settled(held, "True", "Ready", text, now)
    fault = faults[0] or ""
    reason = next((word for text, word in _REASONS.items() if fault.startswith(text)), "NotReady")
    return _settled(held, "False", reason, fault, now)


def _without_our_label(one: RuntimeClass) -> RuntimeClass:
    """Return the class without a demand for the label that says what is worked out here: it would never come true."""
    selector = (one.scheduling.node_selector if one.scheduling else None) or {}
    if KATA_LABEL not in selector:
        return one
    others = {key: value for key, value in selector.items() if key != KATA_LABEL}
    return msgspec.structs.replace(one, scheduling=RuntimeClassScheduling(node_selector=others or None))


def _settled(held: NodeCondition | None, status: str, reason: str, message: str, now: float) -> NodeCondition:
    """Return the condition, with the time at which its status last changed."""
    since = held.last_transition_time if held is not None and held.status == status else None
    return NodeCondition(
        type=CONDITION,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=since or timestamp.render(now),
    )
