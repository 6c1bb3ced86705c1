"""Node affinity for the verdicts on nodes, put into pods: for schedulers that do not ask the extender.

``hard`` keeps a pod off nodes that are to be avoided and prefers calm ones; ``soft`` only prefers, so that a pod never
waits. A label that the pod's own node affinity names already is left to the pod.
"""

import copy
from typing import Any, Literal

from cotenant.api.marks import AVOID_OFFLINE_LABEL, AVOID_ONLINE_LABEL, INTERFERENCE_LABEL
from cotenant.model import pod as pods

Strength = Literal["off", "soft", "hard"]
STRENGTHS: tuple[Strength, ...] = ("off", "soft", "hard")

STRENGTH_LABEL = "cotenant.io/verdict-affinity"
"""On a pod: how strong its own affinity is to be, instead of what the manager was told; ``off`` opts out."""
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
AVOID_WEIGHT = 100
CALM_WEIGHT = 50
DISTURBED = ("high", "severe")


def strength_of(labels: dict[str, str], configured: Strength) -> Strength:
    """Return what a pod's label asks for, or what is configured; an unknown word asks for nothing."""
    return next((strength for strength in STRENGTHS if labels.get(STRENGTH_LABEL) == strength), configured)


def steerable(pod: dict[str, Any]) -> bool:
    """Return whether a pod may be kept from a node: not one of a DaemonSet, of the system, or placed already."""
    spec, metadata = pod["spec"], pod["metadata"]
    critical = (
        spec.get("priorityClassName") in pods.SYSTEM_CRITICAL_CLASSES
        or (spec.get("priority") or 0) >= pods.SYSTEM_CRITICAL_PRIORITY
    )
    owned = any(owner.get("kind") == "DaemonSet" for owner in metadata.get("ownerReferences") or ())
    return not (critical or owned or spec.get("nodeName"))


def inject(pod: dict[str, Any], offline: bool, strength: Strength) -> None:
    """Add the affinity to a pod, in place."""
    if strength == "off":
        return
    node_affinity = copy.deepcopy(((pod["spec"].get("affinity") or {}).get("nodeAffinity")) or {})
    named = _keys(node_affinity)
    avoid = {"key": AVOID_OFFLINE_LABEL if offline else AVOID_ONLINE_LABEL, "operator": "DoesNotExist"}
    calm = {"key": INTERFERENCE_LABEL, "operator": "NotIn", "values": list(DISTURBED)}
    if avoid["key"] not in named:
        if strength == "hard":
            _require(node_affinity, avoid)
        else:
            _prefer(node_affinity, avoid, AVOID_WEIGHT)
    if calm["key"] not in named:
        _prefer(node_affinity, calm, CALM_WEIGHT)
    affinity = pod["spec"].get("affinity") or {}
    if node_affinity != (affinity.get("nodeAffinity") or {}):
        pod["spec"]["affinity"] = {**affinity, "nodeAffinity": node_affinity}


def _require(node_affinity: dict[str, Any], expression: dict[str, Any]) -> None:
    """Add to every alternative; an alternative without any condition matches no node, and has to stay so."""
    required = node_affinity.get(REQUIRED)
    if not required:
        node_affinity[REQUIRED] = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        return
    for term in required.get("nodeSelectorTerms") or ():
        if term.get("matchExpressions") or term.get("matchFields"):
            term["matchExpressions"] = [*(term.get("matchExpressions") or ()), expression]


def _prefer(node_affinity: dict[str, Any], expression: dict[str, Any], weight: int) -> None:
    preference = {"weight": weight, "preference": {"matchExpressions": [expression]}}
    node_affinity[PREFERRED] = [*(node_affinity.get(PREFERRED) or ()), preference]


def _keys(node_affinity: dict[str, Any]) -> set[Any]:
    terms = list((node_affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or ())
    terms += [entry.get("preference") or {} for entry in node_affinity.get(PREFERRED) or ()]
    return {expression.get("key") for term in terms for expression in term.get("matchExpressions") or ()}
