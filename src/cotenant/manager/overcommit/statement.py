"""What one node offers to batch and mid work and how that comes about, for people: the controller's own arithmetic."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from cotenant.manager.overcommit import balance, names, publication
from cotenant.manager.overcommit.account import Heard
from cotenant.manager.overcommit.nodes import NodeFacts
from cotenant.manager.overcommit.pods import PodFacts
from cotenant.manager.overcommit.strategy import Resolved


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One node. CPU is in thousandths of a core, memory in bytes; what is not known is None."""

    node: str
    state: str
    """``off``, ``unknown`` (nobody told of its use), ``degraded`` (too long ago) or ``current``."""
    source: str | None
    """Who told of its use: ``NodeMetric`` or ``stream``."""
    age_seconds: float | None
    offered: Mapping[str, int]
    asked: Mapping[str, int]
    worked_out: Mapping[str, int]
    """What the node should offer now; the controller writes it when it differs enough, or after a while."""
    batch: Mapping[str, Mapping[str, Any]]
    """The terms of the formula by resource."""
    mid: Mapping[str, Mapping[str, Any]]
    problems: tuple[str, ...]


def of(node: NodeFacts, pods: Sequence[PodFacts], heard: Heard | None, resolved: Resolved, wall: float) -> Statement:
    """Return the statement of a node. ``wall`` is now."""
    strategy = resolved.strategy
    terms = None
    if not strategy.enable:
        state = "off"
    elif heard is None:
        state = "unknown"
    elif heard.age_seconds > strategy.degrade_seconds:
        state = "degraded"
    else:
        state = "current"
        terms = balance.of(node, pods, heard.use, strategy, wall)
    drained = publication.drained(node.published, pods)
    return Statement(
        node=node.name,
        state=state,
        source=None if heard is None else heard.use.source,
        age_seconds=None if heard is None else round(heard.age_seconds, 1),
        offered={name: node.published[name] for name in names.PUBLISHED if name in node.published},
        asked=publication.asked(pods),
        worked_out=drained if terms is None else {**node.published, **terms.values},
        batch={} if terms is None else {name: _plain(one) for name, one in terms.batch.items()},
        mid={} if terms is None else {name: _plain(one) for name, one in terms.mid.items()},
        problems=resolved.problems,
    )


def _plain(terms: Any) -> dict[str, Any]:
    fields = {field.name: getattr(terms, field.name) for field in dataclasses.fields(terms)}
    if "amplification" in fields:
        fields["amplification"] = float(fields["amplification"])
    return fields | {"value": terms.value}
