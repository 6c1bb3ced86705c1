"""The last decisions, so that "why here, why not there" has an answer with the numbers of that moment.

A decision keeps references to the rows it was made from, not copies, and its explanation is worked out when somebody
asks: deciding stays cheap. The number of decisions and the number of node entries in all of them are bounded; past the
second bound the oldest decisions lose their nodes and keep their counts and refusals (the first few).
"""

import collections
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from cotenant.api import timestamp
from cotenant.api.objects import Pod
from cotenant.api.reading import Row
from cotenant.scheduler import herd, scores
from cotenant.scheduler.rules import Rules
from cotenant.scheduler.table import Table
from cotenant.scheduler.verdict import Verdict

Verb = Literal["kube/filter", "kube/prioritize", "kube/preempt", "volcano/predicate", "volcano/prioritize"]

MAX_DECISIONS = 10_000
MAX_NODE_ENTRIES = 1_000_000
"""About 8 MB of references, and the rows behind them."""
MAX_REFUSALS = 20
"""Kept of a decision whose nodes were dropped."""
SAME_DECISION_SECONDS = 2.0
"""Volcano asks for one node at a time: its questions about one pod within this time are one decision."""


@dataclasses.dataclass(slots=True)
class Decision:
    """One answer. ``nodes`` holds a row where the node had one, else its name."""

    at: float
    verb: Verb
    pod: str
    rules: Rules
    nodes: list[Row | str]
    refused: dict[str, str]
    waived: tuple[str, ...] = ()
    not_judged: str | None = None
    dropped: int = 0
    added: dict[str, float] = dataclasses.field(default_factory=dict)
    """What pods placed just before added to the effective level, by node."""


def name_of(pod: Pod) -> str:
    """Return ``namespace/name``."""
    return f"{pod.metadata.namespace or 'default'}/{pod.metadata.name}"


class Decisions:
    """A ring of decisions, oldest dropped first."""

    def __init__(self, max_decisions: int = MAX_DECISIONS, max_node_entries: int = MAX_NODE_ENTRIES) -> None:
        self._ring: collections.deque[Decision] = collections.deque()
        self._detailed: collections.deque[Decision] = collections.deque()
        self._open_predicates: dict[str, Decision] = {}
        self._max_decisions = max_decisions
        self._max_node_entries = max_node_entries
        self._node_entries = 0

    def __len__(self) -> int:
        return len(self._ring)

    @property
    def node_entries(self) -> int:
        """The number of nodes held in all decisions."""
        return self._node_entries

    def add(
        self,
        at: float,
        verb: Verb,
        pod: Pod,
        names: Sequence[str],
        table: Table,
        verdict: Verdict,
        rules: Rules,
        added: dict[str, float] | None = None,
    ) -> None:
        """Keep a decision about these nodes."""
        nodes: list[Row | str] = list(map(table.rows.get, names, names))
        key = name_of(pod)
        if verb == "volcano/predicate" and self._extend(key, at, nodes, verdict):
            return
        decision = Decision(
            at, verb, key, rules, nodes, dict(verdict.refused), verdict.waived, verdict.not_judged, added=added or {}
        )
        self._ring.append(decision)
        self._detailed.append(decision)
        if verb == "volcano/predicate":
            self._open_predicates[key] = decision
        self._node_entries += len(nodes)
        self._shrink()

    def _extend(self, key: str, at: float, nodes: list[Row | str], verdict: Verdict) -> bool:
        decision = self._open_predicates.get(key)
        if decision is None or decision.dropped or at - decision.at > SAME_DECISION_SECONDS:
            return False
        decision.nodes.extend(nodes)
        decision.refused.update(verdict.refused)
        decision.waived += verdict.waived
        self._node_entries += len(nodes)
        self._shrink()
        return True

    def _shrink(self) -> None:
        while self._node_entries > self._max_node_entries and self._detailed:
            self._forget_nodes(self._detailed.popleft())
        while len(self._ring) > self._max_decisions:
            oldest = self._ring.popleft()
            if self._detailed and self._detailed[0] is oldest:
                self._forget_nodes(self._detailed.popleft())
            if self._open_predicates.get(oldest.pod) is oldest:
                del self._open_predicates[oldest.pod]

    def _forget_nodes(self, decision: Decision) -> None:
        decision.dropped = len(decision.nodes)
        self._node_entries -= decision.dropped
        decision.nodes = []
        decision.added = {}
        decision.waived = decision.waived[:MAX_REFUSALS]
        decision.refused = dict(list(decision.refused.items())[:MAX_REFUSALS])

    def newest(self, most: int) -> list[Decision]:
        """Return the newest decisions, newest first."""
        return list(itertools.islice(reversed(self._ring), most))

    def of_pod(self, pod: str) -> Iterator[Decision]:
        """Yield the pod's decisions, newest first."""
        return (decision for decision in reversed(self._ring) if decision.pod == pod)

    def refusing(self, node: str) -> Iterator[Decision]:
        """Yield the decisions that kept a pod from this node, newest first."""
        return (decision for decision in reversed(self._ring) if node in decision.refused)


def explain(decision: Decision) -> dict[str, Any]:
    """Return a decision as data: each node kept or refused, by which rule, with which numbers of which age."""
    rows = [
        entry if isinstance(entry, Row) and entry.level is not None and entry.expires_at > decision.at else None
        for entry in decision.nodes
    ]
    effective = scores.effective_levels(rows, decision.rules.preset)
    if decision.not_judged and decision.verb in ("kube/prioritize", "volcano/prioritize"):
        effective = [0.0] * len(rows)
    if decision.added:
        names = [entry if isinstance(entry, str) else entry.node for entry in decision.nodes]
        effective = herd.adjusted(names, effective, decision.added)
    given: Sequence[float | None] = [None] * len(rows)
    if decision.verb == "kube/prioritize":
        given = scores.kube_scores(effective)
    elif decision.verb == "volcano/prioritize":
        given = scores.volcano_scores(effective, decision.rules.volcano_weight)
    waived = set(decision.waived)
    return {
        "time": timestamp.render(decision.at),
        "verb": decision.verb,
        "pod": decision.pod,
        "notJudged": decision.not_judged,
        "candidates": len(decision.nodes) + decision.dropped,
        "refused": len(decision.refused),
        "nodes": [
            _explain_node(decision, entry, e, score, waived)
            for entry, e, score in zip(decision.nodes, effective, given, strict=True)
        ],
        "refusals": decision.refused if decision.dropped else None,
        "nodesDropped": decision.dropped,
    }


def _explain_node(
    decision: Decision, entry: Row | str, effective: float, score: float | None, waived: set[str]
) -> dict[str, Any]:
    name = entry if isinstance(entry, str) else entry.node
    reason = decision.refused.get(name)
    return {
        "node": name,
        "kept": reason is None,
        "reason": reason or ("hard limit waived: no node would remain" if name in waived else None),
        "effectiveLevel": effective,
        "placedOfLate": decision.added.get(name),
        "score": score,
        **describe_row(None if isinstance(entry, str) else entry, decision.at),
    }


def describe_row(row: Row | None, now: float) -> dict[str, Any]:
    """Return what a node's report said at a time, with its age in seconds."""
    if row is None:
        return {"report": "missing"}
    return {
        "report": "valid" if row.expires_at > now else "expired",
        "interferenceLevel": row.level,
        "coverage": row.coverage,
        "bucket": row.bucket,
        "hard": list(row.hard),
        "triggered": list(row.triggered),
        "ageSeconds": None if row.observed_at is None else round(now - row.observed_at, 1),
    }
