"""Which node belongs to which stage. Pure, and stable: chosen by a hash of the node's name."""

import collections
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence

from cotenant.api.rollout import Stage
from cotenant.manager.rollout.view import NodeView


def position(name: str) -> int:
    """Return where a node is in the order in which shares are taken."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])


def assign(stages: Sequence[Stage], nodes: Iterable[NodeView], uid: str) -> dict[str, int]:
    """Return the stage's index of each node that any stage takes in.

    A node that this rollout has changed stays in its stage. Of the others, a stage with share s takes the first
    ceil(s·n) of the n nodes that it selects, of each priority interface apart, in the order of their hashes: a node
    that comes or goes moves no more than one other across the end of each stage.
    """
    known = list(nodes)
    indexes = {stage.name: index for index, stage in enumerate(stages)}
    found: dict[str, int] = {}
    for node in known:
        if node.hold is not None and node.hold.uid == uid and node.hold.stage in indexes:
            found[node.name] = indexes[node.hold.stage]
    for index, stage in enumerate(stages):
        for group in _by_interface(stage, known).values():
            count = max(1, math.ceil(stage.share * len(group) - 1e-9))
            for name in sorted(group, key=lambda name: (position(name), name))[:count]:
                found.setdefault(name, index)
    return found


def matches(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Return whether labels have all that a selector asks for."""
    return all(labels.get(key) == value for key, value in selector.items())


def selects(stage: Stage, node: NodeView) -> bool:
    """Return whether a stage is about a node, wherever it is taken in."""
    if stage.priority_interfaces and node.interface not in stage.priority_interfaces:
        return False
    return matches(stage.node_selector, node.labels)


def _by_interface(stage: Stage, nodes: Sequence[NodeView]) -> Mapping[str | None, list[str]]:
    groups: dict[str | None, list[str]] = collections.defaultdict(list)
    for node in nodes:
        if selects(stage, node):
            groups[node.interface].append(node.name)
    return groups
