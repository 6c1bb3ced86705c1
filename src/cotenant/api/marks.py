"""What cotenant writes on a Node: labels, an annotation, an opt-in taint and a condition; how they look, and how they
are taken off. The scheduler writes them; the node's own agent takes them off when nobody else does. And the annotations
by which pods and Services say where their latency is read.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from cotenant.api.objects import Node

MODE_LABEL = "cotenant.io/mode"
"""What the node's agent does; it overrides the agent's own ``--mode``."""
INTERFERENCE_LABEL = "cotenant.io/interference"
AVOID_ONLINE_LABEL = "cotenant.io/avoid-online"
AVOID_OFFLINE_LABEL = "cotenant.io/avoid-offline"
KATA_LABEL = "cotenant.io/kata-ready"
VERDICT_LABELS = (INTERFERENCE_LABEL, AVOID_ONLINE_LABEL, AVOID_OFFLINE_LABEL)
LABELS = (*VERDICT_LABELS, KATA_LABEL)
HARD_ANNOTATION = "cotenant.io/hard-limits"
"""The hard limits in force, on every node that has one: their end changes the node, which wakes pods kept from it."""
LATENCY_METRIC_ANNOTATION = "cotenant.io/latency-metric"
"""On a pod or a Service: the histogram of how long requests took."""
LATENCY_SERVICE_ANNOTATION = "cotenant.io/latency-service"
"""What a pod's service is called; else its ``app.kubernetes.io/name`` or ``app``, else its owner."""
LATENCY_PORT_ANNOTATIONS = ("cotenant.io/latency-port", "prometheus.io/port")
LATENCY_PATH_ANNOTATIONS = ("cotenant.io/latency-path", "prometheus.io/path")
TAINT_KEY = "cotenant.io/interference"
TAINT_VALUE = "excluded"
CONDITION = "KataReady"

Effect = Literal["NoSchedule", "PreferNoSchedule"]
Raw = Mapping[str, Any]


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """What is on one node, or should be."""

    labels: dict[str, str] = {}
    hard: str | None = None
    """The annotation's text."""
    taint: str | None = None
    """The effect of our taint."""

    @property
    def excludes(self) -> bool:
        """Whether pods are kept away."""
        return self.taint is not None or AVOID_ONLINE_LABEL in self.labels or AVOID_OFFLINE_LABEL in self.labels


def marks_of(node: Node) -> Marks:
    """Return what of ours is on a node."""
    labels, annotations = node.metadata.labels or {}, node.metadata.annotations or {}
    return Marks(
        labels={key: labels[key] for key in LABELS if key in labels},
        hard=annotations.get(HARD_ANNOTATION),
        taint=next((taint.effect for taint in node.spec.taints or () if taint.key == TAINT_KEY), None),
    )


def apply_body(node: Node, marks: Marks) -> dict[str, Any]:
    """Return what to apply as our field manager, so that exactly these labels and this annotation are there.

    It carries the uid: a Node that is gone is not made anew.
    """
    metadata: dict[str, Any] = {"name": node.metadata.name, "labels": marks.labels}
    if node.metadata.uid:
        metadata["uid"] = node.metadata.uid
    if marks.hard is not None:
        metadata["annotations"] = {HARD_ANNOTATION: marks.hard}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def removal(labels: Sequence[str] = LABELS) -> dict[str, Any]:
    """Return a merge patch that takes these labels off, whoever put them there, and the annotation that goes along."""
    patch: dict[str, Any] = {"metadata": {"labels": dict.fromkeys(labels)}}
    if INTERFERENCE_LABEL in labels:
        patch["metadata"]["annotations"] = {HARD_ANNOTATION: None}
    return patch


def taint_patch(node: Raw, effect: str | None) -> dict[str, Any] | None:
    """Return the merge patch that leaves our taint with this effect (None: without it), or None where it is so.

    ``node`` is the object as it was read, undecoded: taints of others go back as they came. The patch carries the
    resourceVersion it was read at, because ``spec.taints`` is one atomic list.
    """
    taints: list[Any] = (node.get("spec") or {}).get("taints") or []
    wanted = [{"key": TAINT_KEY, "value": TAINT_VALUE, "effect": effect}] if effect is not None else []
    ours = [taint for taint in taints if taint.get("key") == TAINT_KEY]
    if [taint.get("effect") for taint in ours] == [taint["effect"] for taint in wanted]:
        return None
    left = [taint for taint in taints if taint.get("key") != TAINT_KEY] + wanted
    version = node["metadata"]["resourceVersion"]
    return {"metadata": {"resourceVersion": version}, "spec": {"taints": left or None}}
