"""One NodeSLO for each node: made with it, changed when its strategies change, deleted with it."""

import asyncio
from collections.abc import Mapping
from typing import Any

from cotenant.api.koordinator import node_slo as api
from cotenant.api.koordinator.slo_config import KEYS, Key
from cotenant.api.objects import Node
from cotenant.api.rollout import SLO_REVISION
from cotenant.kube.client import NODE_SLOS, NODES
from cotenant.kube.informer import Informer
from cotenant.manager.controller import Context
from cotenant.manager.reconciling import Reconciler, Write
from cotenant.manager.slo import nodes
from cotenant.manager.slo.state import SloState

LOOK_SECONDS = 0.2
OVERLAP_SECONDS = 10.0
"""How often overlaps are looked for while only nodes change."""


class NodeSloController:
    """Keeps the NodeSLOs in step while this replica leads."""

    name = "node-slo"

    async def run(self, context: Context) -> None:
        """Work until cancelled."""
        keeper = Keeper(context)
        informers: dict[str, Informer[Any]] = {
            "nodes": Informer(context.client, NODES, Node, keeper.nodes),
            "nodeslos": Informer(context.client, NODE_SLOS, dict[str, Any], keeper.slos),
        }
        await nodes.keep(context, keeper.reconciler, informers, [keeper.follow_state], tuple(informers))


class Keeper:
    """Decides, from nodes, NodeSLOs and strategies, what is to be written."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._clock = context.clock
        self._state = context.slo
        self._version = 0
        self._settled: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {}
        """By node: what was written last, and what the API server made of it (a field that its kind does not have)."""
        self.reconciler = Reconciler(NodeSloController.name, self.due, context.clock)
        self.nodes = nodes.Held(self.reconciler.touch)
        self.slos = nodes.Held(self.reconciler.seen)

    async def follow_state(self) -> None:
        """Look at every node when strategies change, and name overlaps; until cancelled."""
        looked_at = -OVERLAP_SECONDS
        while True:
            now, is_new = self._clock.monotonic(), self._state.version != self._version
            if is_new:
                self._version = self._state.version
                self.reconciler.touch_all(self.nodes.objects)
            if is_new or now - looked_at >= OVERLAP_SECONDS:
                looked_at = now
                self._state.overlaps = overlaps(self._state, self.nodes.objects)
            await asyncio.sleep(LOOK_SECONDS)

    def due(self, name: str) -> Write | None:
        """Return the write that brings a node's NodeSLO in step, or None where it is, or nothing is known yet."""
        node: Node | None = self.nodes.objects.get(name)
        found: Mapping[str, Any] | None = self.slos.objects.get(name)
        if node is None:
            self._settled.pop(name, None)
            return None if found is None else lambda: nodes.delete_orphan(self._client, NODE_SLOS, name)
        labels = node.metadata.labels or {}
        revision = self._state.of(labels)
        if revision is None:
            return None
        wanted = api.rendered(revision.config, labels)
        pinned = labels.get(SLO_REVISION) == revision.name
        if found is None:
            body = _body(name, wanted, node, revision.name)
            return lambda: self._client.create(NODE_SLOS, body, dict)
        held = found.get("spec") or {}
        spec = api.merged(held, wanted)
        said = (found["metadata"].get("annotations") or {}).get(SLO_REVISION)
        # A revision that changes nothing for a node is not worth a write, unless somebody waits to see it there.
        if (spec == held or self._settled.get(name) == (spec, held)) and (said == revision.name or not pinned):
            return None
        metadata = {
            **found["metadata"],
            "annotations": {**(found["metadata"].get("annotations") or {}), SLO_REVISION: revision.name},
            "ownerReferences": nodes.with_owner(found, node),
        }
        return lambda: self._replace(name, {**found, "metadata": metadata, "spec": spec})

    async def _replace(self, name: str, changed: dict[str, Any]) -> None:
        made = await self._client.replace(NODE_SLOS, name, changed, dict)
        self._settled[name] = (changed["spec"], made.get("spec") or {})


def _body(name: str, spec: Mapping[str, Any], node: Node, revision: str) -> dict[str, Any]:
    metadata = {"name": name, "annotations": {SLO_REVISION: revision}, "ownerReferences": [nodes.owner_of(node)]}
    return {"apiVersion": api.API_VERSION, "kind": api.KIND, "metadata": metadata, "spec": spec}


def overlaps(state: SloState, known: Mapping[str, Node]) -> dict[Key, str]:
    """Return, by key, which strategies select the same nodes; the first of them is in force."""
    found: dict[Key, str] = {}
    if state.revisions is None:
        return found
    for key in KEYS:
        section = state.revisions.active.config.section(key)
        if len(section.nodes) < 2:
            continue
        by_names: dict[tuple[str, ...], list[str]] = {}
        for name, node in known.items():
            names = section.matching(node.metadata.labels or {})
            if len(names) > 1:
                by_names.setdefault(names, []).append(name)
        if by_names:
            found[key] = "; ".join(_overlap(names, sorted(on)) for names, on in sorted(by_names.items()))
    return found


def _overlap(names: tuple[str, ...], on: list[str]) -> str:
    others = ", ".join(names[1:])
    return f"{names[0]} and {others} select the same nodes ({nodes.some(on)}): {names[0]} is in force"
