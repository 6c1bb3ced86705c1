"""The annotations of Nodes that follow from ``cpu-normalization-config`` and ``resource-amplification-config``."""

import asyncio
import collections
from typing import Any

import msgspec

from cotenant.api.koordinator.names import (
    AMPLIFICATION_ANNOTATION,
    AMPLIFIED_LABEL,
    CPU_BASIC_INFO_ANNOTATION,
    NORMALIZATION_LABEL,
)
from cotenant.api.objects import Node, ObjectMeta
from cotenant.kube.budget import Budget
from cotenant.kube.client import NODES, TOPOLOGIES
from cotenant.kube.informer import Informer
from cotenant.manager.controller import FIELD_MANAGER, Context
from cotenant.manager.reconciling import Reconciler, Write
from cotenant.manager.slo import nodes, ratios
from cotenant.manager.webhook import node_status
from cotenant.model.node import CPU_NORMALIZATION_ANNOTATION, RAW_ALLOCATABLE_ANNOTATION

LOOK_SECONDS = 0.2
NOTE_SECONDS = 10.0
NUDGE_SECONDS = 30.0
"""How often the API server is made to ask the webhook about a node whose amounts are not multiplied."""


class Described(msgspec.Struct, kw_only=True):
    """A NodeResourceTopology without its zones."""

    metadata: ObjectMeta = ObjectMeta()


class AmplificationController:
    """Keeps the annotations in step while this replica leads."""

    name = "amplification"

    async def run(self, context: Context) -> None:
        """Work until cancelled. Without the kind NodeResourceTopology nothing is known of CPUs; the rest goes on."""
        keeper = Keeper(context)
        informers: dict[str, Informer[Any]] = {
            "nodes": Informer(context.client, NODES, Node, keeper.nodes),
            "noderesourcetopologies": Informer(context.client, TOPOLOGIES, Described, keeper.topologies),
        }
        await nodes.keep(context, keeper.reconciler, informers, [keeper.follow_state], ["nodes"])


class Keeper:
    """Decides, from nodes, topologies and strategies, what is to be written."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._clock = context.clock
        self._slo = context.slo
        self._version = 0
        self._unknown: dict[str, str] = {}
        self._nudged_at: dict[str, float] = {}
        budget = Budget(context.clock, 10.0, 10.0)
        self.reconciler = Reconciler(AmplificationController.name, self.due, context.clock, budget)
        self.nodes = nodes.Held(self.reconciler.seen)
        self.topologies = nodes.Held(self.reconciler.touch)

    async def follow_state(self) -> None:
        """Look at every node when strategies change; say of which nodes the ratio cannot be told; until cancelled."""
        noted_at = self._clock.monotonic()
        while True:
            if self._slo.version != self._version:
                self._version = self._slo.version
                self.reconciler.touch_all(self.nodes.objects)
            if self._clock.monotonic() - noted_at >= NOTE_SECONDS:
                noted_at = self._clock.monotonic()
                self._note()
                self.reconciler.touch_all(self.nodes.objects)
            await asyncio.sleep(LOOK_SECONDS)

    def due(self, name: str) -> Write | None:
        """Return the write that brings a node's annotations in step, or None where they are, or nothing is known."""
        node: Node | None = self.nodes.objects.get(name)
        self._unknown.pop(name, None)
        labels = {} if node is None else node.metadata.labels or {}
        config = self._slo.config_of(labels)
        if node is None or config is None:
            return None
        held = node.metadata.annotations or {}
        topology: Described | None = self.topologies.objects.get(name)
        described = {} if topology is None else topology.metadata.annotations or {}
        ratio = ratios.normalization(
            config.of("cpu-normalization-config", labels),
            labels.get(NORMALIZATION_LABEL),
            ratios.basic_info(described.get(CPU_BASIC_INFO_ANNOTATION)),
        )
        changes: dict[str, str | None] = {}
        if ratio.text is None:
            self._unknown[name] = ratio.reason
        elif not ratios.same_normalization(held.get(CPU_NORMALIZATION_ANNOTATION), ratio.text):
            changes[CPU_NORMALIZATION_ANNOTATION] = ratio.text
        in_force = ratio.text or held.get(CPU_NORMALIZATION_ANNOTATION)
        wanted = ratios.amplification_text(
            ratios.amplification(config.of("resource-amplification-config", labels), in_force)
        )
        if not ratios.same_amplification(held.get(AMPLIFICATION_ANNOTATION), wanted):
            changes[AMPLIFICATION_ANNOTATION] = wanted
        if wanted is None and RAW_ALLOCATABLE_ANNOTATION in held:
            changes[RAW_ALLOCATABLE_ANNOTATION] = None
        mark = None if wanted is None else "true"
        metadata = None
        if changes or labels.get(AMPLIFIED_LABEL) != mark:
            metadata = {"annotations": changes, "labels": {AMPLIFIED_LABEL: mark}}
        status = self._status(node, wanted)
        return None if metadata is None and status is None else lambda: self._write(name, metadata, status)

    def _status(self, node: Node, wanted: str | None) -> dict[str, Any] | None:
        """Return what is to be written into a node's status, or None where nothing is.

        Where the ratio is gone, the raw amounts; where the webhook has not multiplied them yet, an empty patch, which
        makes the API server ask it: a kubelet that has nothing new to say writes each five minutes only.
        """
        name, held = node.metadata.name, node.metadata.annotations or {}
        if wanted is None:
            self._nudged_at.pop(name, None)
            raw = node_status.raw_of(held)
            return {"allocatable": raw} if raw else None
        now = self._clock.monotonic()
        is_settled = node_status.is_amplified(held, node.status.allocatable or {})
        is_marked = ratios.same_amplification(held.get(AMPLIFICATION_ANNOTATION), wanted)
        if is_settled or not is_marked or now < self._nudged_at.get(name, -NUDGE_SECONDS) + NUDGE_SECONDS:
            return None
        self._nudged_at[name] = now
        return {}

    async def _write(self, name: str, metadata: dict[str, Any] | None, status: dict[str, Any] | None) -> None:
        """Write annotations first: with the ratio still there, the webhook would multiply what is given back."""
        if metadata is not None:
            await self._client.patch(NODES, name, {"metadata": metadata}, field_manager=FIELD_MANAGER)
        if status is not None:
            body = {"status": status}
            await self._client.patch(NODES, name, body, subresource="status", field_manager=FIELD_MANAGER)

    def _note(self) -> None:
        """Say in the conditions on which nodes normalization is asked for and cannot be had, by reason."""
        by_reason: dict[str, list[str]] = collections.defaultdict(list)
        for name, reason in sorted(self._unknown.items()):
            by_reason[reason].append(name)
        notes = [f"{nodes.some(names)}: no ratio, {reason}" for reason, names in by_reason.items()]
        if notes:
            self._slo.notes["cpu-normalization-config"] = "; ".join(notes)
        else:
            self._slo.notes.pop("cpu-normalization-config", None)
