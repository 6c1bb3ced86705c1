"""What nodes would get of a ConfigMap, from files: to try strategies before they are in a cluster."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from cotenant.api.koordinator import node_slo, slo_config
from cotenant.api.objects import Node, ObjectMeta
from cotenant.manager.overcommit import strategy
from cotenant.manager.slo.node_metric import collect_policy
from cotenant.units import plain
from cotenant.units.errors import CotenantError
from cotenant.units.malformed import MALFORMED

ANY_NODE = Node(metadata=ObjectMeta(name="a-node-without-labels"))


class BadObjects(CotenantError):
    """The files do not hold what is needed."""


class Rendered(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What one node would get."""

    node: str
    selected_by: dict[str, tuple[str, ...]] = {}
    """By key: the strategies whose selectors choose the node; the first is in force."""
    node_slo: dict[str, Any] = msgspec.field(name="nodeSLO")
    metric_collect_policy: dict[str, Any] | None = None
    """None: colocation is not enabled there."""
    not_taken: tuple[str, ...] = ()
    """What the node's own annotation and labels say and cannot be used."""


class Offline(msgspec.Struct, frozen=True, kw_only=True):
    """What all nodes would get, and what of the ConfigMap cannot be used, by key."""

    nodes: list[Rendered]
    wrong: Mapping[slo_config.Key, str]
    unknown: Mapping[slo_config.Key, tuple[str, ...]]


def render(objects: Iterable[tuple[str, Mapping[str, Any]]]) -> Offline:
    """Return what the nodes in these files would get of the ConfigMap in them; without nodes, one without labels.

    :raises BadObjects: if there is not exactly one ConfigMap, or a Node is none.
    """
    config_maps: list[Mapping[str, Any]] = []
    nodes: list[Node] = []
    for place, value in objects:
        if value.get("kind") == "ConfigMap":
            config_maps.append(value)
        elif value.get("kind") == "Node":
            try:
                nodes.append(msgspec.convert(plain.without_nulls(value), Node, strict=False))
            except MALFORMED as error:
                raise BadObjects(f"{place}: {error}") from None
    if len(config_maps) != 1:
        raise BadObjects(f"{len(config_maps)} ConfigMaps: give the one named slo-controller-config, and Nodes")
    data = config_maps[0].get("data") or {}
    texts = {key: text for key, text in data.items() if isinstance(text, str)}
    config, wrong = slo_config.read(texts, slo_config.SloConfig())
    wrong |= {
        key: f"{key}: not a text, which is all that a ConfigMap holds: write the JSON below `{key}: |`"
        for key in slo_config.KEYS
        if key in data and key not in texts
    }
    return Offline(
        nodes=[_rendered(config, node) for node in nodes or [ANY_NODE]],
        wrong=wrong,
        unknown={key: section.unknown for key, section in config.sections.items() if section.unknown},
    )


def _rendered(config: slo_config.SloConfig, node: Node) -> Rendered:
    labels, annotations = node.metadata.labels or {}, node.metadata.annotations or {}
    problems: list[str] = []
    said = strategy.said(config.of("colocation-config", labels), labels, annotations, problems)
    matching = {key: config.section(key).matching(labels) for key in slo_config.KEYS}
    return Rendered(
        node=node.metadata.name,
        selected_by={key: names for key, names in matching.items() if names},
        node_slo=node_slo.rendered(config, labels),
        metric_collect_policy=collect_policy(said) if said["enable"] is True else None,
        not_taken=tuple(problems),
    )
