"""Which nodes a pod is kept from, and why. Pure: a table, a pod, the candidates and the time in; reasons out."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

from cotenant.api.objects import Node, Pod
from cotenant.api.reading import Row
from cotenant.scheduler import kata, pods
from cotenant.scheduler.rules import Rules
from cotenant.scheduler.table import Table

Waiver = Literal["none", "within-request", "over-all-reports"]
"""When hard limits are waived: never (preempt); when no candidate would remain (kube-scheduler, which sends them
together); when every node with a report has one in force or could not run the pod (Volcano, which sends one node a
request)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """Reasons by refused node; the nodes whose hard limit was waived; why the pod is not judged, if it is not."""

    refused: dict[str, str]
    waived: tuple[str, ...] = ()
    not_judged: str | None = None


def hard_reason(row: Row) -> str:
    """Return the text of a refusal: the same for all nodes with these limits, so that an event counts them."""
    return f"cotenant: interference limit {', '.join(row.hard)} in force"


def out_of_scope(rules: Rules) -> str:
    """Return why a pod has neither hard limits nor scores."""
    if rules.applies_to == "none":
        return "hard limits and scores are for no pods"
    return f"hard limits and scores are for {rules.applies_to} pods only"


def judge(
    pod: Pod,
    names: Sequence[str],
    table: Table,
    rules: Rules,
    now: float,
    *,
    waiver: Waiver,
    nodes: Mapping[str, Node] | None = None,
) -> Verdict:
    """Return which of the named nodes the pod is kept from.

    ``nodes`` are those sent with the request; they are newer than the table's.
    """
    exemption = pods.exemption_of(pod)
    if exemption is not None:
        return Verdict(refused={}, not_judged=exemption)
    refused = _kata_faults(pod, names, table, now, nodes or {})
    if not pods.is_in_scope(pod, rules.applies_to):
        return Verdict(refused=refused, not_judged=out_of_scope(rules))
    in_force = table.limits_in_force(now)
    limited = [name for name in names if name in in_force and name not in refused] if in_force else []
    if not limited:
        return Verdict(refused=refused)
    if waiver == "within-request":
        none_remains = all(name in in_force or name in refused for name in names)
    elif waiver == "over-all-reports":
        others = [name for name in table.rows if name not in in_force]
        none_remains = len(_kata_faults(pod, others, table, now, {})) == len(others)
    else:
        none_remains = False
    if none_remains:
        return Verdict(refused=refused, waived=tuple(limited))
    refused.update((name, hard_reason(in_force[name])) for name in limited)
    return Verdict(refused=refused)


def _kata_faults(pod: Pod, names: Sequence[str], table: Table, now: float, nodes: Mapping[str, Node]) -> dict[str, str]:
    """Return the reasons by node of a Kata pod; none where RuntimeClasses and Nodes are not known to us at all.

    A node is ready only by both: as the request shows it, and as we know it.
    """
    if table.runtime_classes is None or not kata.asks_for_kata(pod.spec.runtime_class_name, table.runtime_classes):
        return {}
    runtime_class = table.runtime_classes.get(pod.spec.runtime_class_name or "")
    faults = {}
    for name in names:
        row = table.known(name, now)
        shown, known = nodes.get(name), table.nodes.get(name)
        fault = kata.fault_of(runtime_class, shown or known, row)
        if fault is None and shown is not None and known is not None:
            fault = kata.fault_of(runtime_class, known, row)
        if fault is not None:
            faults[name] = f"cotenant: Kata not ready: {fault}"
    return faults
