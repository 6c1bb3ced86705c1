"""How many nodes of each stage are where, and who was left out. Pure."""

from collections.abc import Mapping, Sequence

import msgspec

from cotenant.api.rollout import ColocationRollout, LeftOut, StageStatus
from cotenant.manager.rollout.entry import Verdict
from cotenant.manager.rollout.view import NodeView

MAX_LEFT_OUT = 20
"""Nodes named in the status; there may be thousands."""


def stages(
    rollout: ColocationRollout,
    nodes: Sequence[NodeView],
    stage_of: Mapping[str, int],
    entries: Mapping[str, Verdict],
) -> list[StageStatus]:
    """Return the stages with their nodes counted anew; what they remember is the old status's, by name."""
    before = {stage.name: stage for stage in rollout.status.stages}
    kept = [before.get(stage.name, StageStatus(name=stage.name)) for stage in rollout.spec.stages]
    counts = [dict.fromkeys(("nodes", "changed", "confirmed", "waiting", "refused", "overridden"), 0) for _ in kept]
    for node in nodes:
        index = stage_of.get(node.name)
        if index is None:
            continue
        count = counts[index]
        count["nodes"] += 1
        if node.name not in entries:
            count["overridden" if node.overridden else "changed"] += 1
            count["confirmed"] += not node.overridden and node.confirmed is True
        else:
            verdict = entries[node.name]
            count["refused"] += verdict.refused
            count["waiting"] += not verdict.ready and not verdict.refused
    return [msgspec.structs.replace(stage, **count) for stage, count in zip(kept, counts, strict=True)]


def left_out(uid: str, nodes: Sequence[NodeView], entries: Mapping[str, Verdict]) -> list[LeftOut]:
    """Return the first nodes, by name, that are left out or left as they are, with the reason."""
    found = [
        LeftOut(name=node.name, reason="changed by somebody else")
        for node in nodes
        if node.hold is not None and node.hold.uid == uid and node.overridden
    ]
    found += [LeftOut(name=name, reason=verdict.reason) for name, verdict in entries.items() if not verdict.ready]
    return sorted(found, key=lambda one: one.name)[:MAX_LEFT_OUT]
