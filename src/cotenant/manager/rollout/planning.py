"""What a rollout would do to the nodes that there are: before anything is applied, and nothing is."""

from collections.abc import Sequence

import msgspec

from cotenant.api.rollout import ColocationRollout, LeftOut
from cotenant.manager.rollout import counting, entry, membership
from cotenant.manager.rollout.view import NodeView


class StagePlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One stage: the nodes that it would change, by priority interface, how many it would not, and what stops it."""

    name: str
    nodes: list[str]
    """Those that may be changed now, in the order in which they would be."""
    interfaces: dict[str, int]
    refused: int
    waiting: int
    obstacle: str = ""


class Plan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All stages, who would be left out and why, and how many nodes no stage reaches."""

    stages: list[StagePlan]
    left_out: list[LeftOut]
    unreached: int
    problems: list[str] = []

    @property
    def good(self) -> bool:
        """Whether it would come to its end, as far as entry is concerned."""
        return not self.problems and not any(stage.obstacle for stage in self.stages)


def plan(rollout: ColocationRollout, nodes: Sequence[NodeView], others: frozenset[str]) -> Plan:
    """Return what a rollout would do; ``others`` are the rollouts under way, by uid."""
    spec = rollout.spec
    known = [node for node in nodes if membership.matches(spec.node_selector, node.labels)]
    stage_of = membership.assign(spec.stages, known, rollout.metadata.uid)
    verdicts = {node.name: entry.judge(rollout, node, others) for node in known if node.name in stage_of}
    counts = counting.stages(rollout, known, stage_of, verdicts)
    stages = []
    for index, (stage, count) in enumerate(zip(spec.stages, counts, strict=True)):
        members = sorted(
            (node for node in known if stage_of.get(node.name) == index and verdicts[node.name].ready),
            key=lambda node: (membership.position(node.name), node.name),
        )
        interfaces: dict[str, int] = {}
        for node in members:
            kind = node.interface or "unknown"
            interfaces[kind] = interfaces.get(kind, 0) + 1
        obstacle = ""
        if count.nodes == 0 and not stage.optional and not any(membership.selects(stage, node) for node in known):
            obstacle = "it has no node"
        elif count.nodes - len(members) > spec.entry.max_left_out_share * count.nodes + 1e-9:
            obstacle = f"{count.nodes - len(members)} of {count.nodes} nodes would be left out"
        stages.append(
            StagePlan(
                name=stage.name,
                nodes=[node.name for node in members],
                interfaces=interfaces,
                refused=count.refused,
                waiting=count.waiting,
                obstacle=obstacle,
            )
        )
    return Plan(
        stages=stages,
        left_out=counting.left_out(rollout.metadata.uid, known, verdicts),
        unreached=len(known) - len(stage_of),
        problems=entry.problems(rollout),
    )
