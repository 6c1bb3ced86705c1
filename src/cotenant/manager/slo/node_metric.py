"""What each node is asked to measure: the ``spec`` of its NodeMetric. Nodes report while there is one, so that an
object that nobody reads costs no writes: it is made when somebody does, and taken away again.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from cotenant.api.koordinator import colocation
from cotenant.api.koordinator import node_metric as api
from cotenant.api.objects import Node
from cotenant.kube.budget import Budget
from cotenant.kube.client import NODE_METRICS, NODES
from cotenant.kube.informer import Informer
from cotenant.manager.controller import FIELD_MANAGER, Context
from cotenant.manager.overcommit import strategy
from cotenant.manager.reconciling import Reconciler, Write
from cotenant.manager.slo import nodes
from cotenant.manager.slo.readers import Readers

LOOK_SECONDS = 0.2
UNREAD_SECONDS = 600.0
"""How long an object stays that nobody reads any more: a scheduler that restarts must find it again."""
MANAGED = ("app.kubernetes.io/managed-by", "cotenant-manager")
"""Label of the objects that we made: only those are taken away while their node is there."""
LEAST_SECONDS = {"aggregateDurationSeconds": 60, "reportIntervalSeconds": 30}
"""The kind takes nothing smaller."""

_FIELDS = {
    "aggregateDurationSeconds": "metricAggregateDurationSeconds",
    "reportIntervalSeconds": "metricReportIntervalSeconds",
    "nodeAggregatePolicy": "metricAggregatePolicy",
    "nodeMemoryCollectPolicy": "metricMemoryCollectPolicy",
}


def collect_policy(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``metricCollectPolicy`` that a colocation strategy asks for."""
    policy = {field: said[name] for field, name in _FIELDS.items() if said.get(name) is not None}
    for field, least in LEAST_SECONDS.items():
        if field in policy:
            policy[field] = max(policy[field], least)
    return policy


class NodeMetricController:
    """Keeps the specs in step while this replica leads."""

    name = "node-metric"

    async def run(self, context: Context) -> None:
        """Work until cancelled."""
        keeper = Keeper(context, Readers(context.client, context.settings.slo_config.namespace, context.clock))
        informers: dict[str, Informer[Any]] = {
            "nodes": Informer(context.client, NODES, Node, keeper.nodes),
            "nodemetrics": Informer(context.client, NODE_METRICS, Asked, keeper.metrics),
        }
        beside = [keeper.readers.run, keeper.follow]
        await nodes.keep(context, keeper.reconciler, informers, beside, tuple(informers))


class Asked(msgspec.Struct, kw_only=True):
    """A NodeMetric without its status, which is large and the node's."""

    metadata: dict[str, Any] = {}
    spec: dict[str, Any] = {}


class Keeper:
    """Decides, from nodes, NodeMetrics, strategies and readers, what is to be written."""

    def __init__(self, context: Context, readers: Readers) -> None:
        self._client = context.client
        self._clock = context.clock
        self._slo = context.slo
        self._when = context.settings.node_metric
        self.readers = readers
        self.reconciler = Reconciler(
            NodeMetricController.name, self.due, context.clock, Budget(context.clock, 20.0, 20.0)
        )
        self.nodes = nodes.Held(self.reconciler.touch)
        self.metrics = nodes.Held(self._metric_changed)
        self._specs: dict[str, Mapping[str, Any] | None] = {}
        self._read_at: dict[str, float] = {}
        self._started_at = context.clock.monotonic()

    def _metric_changed(self, name: str) -> None:
        """Look at a node again when its spec has changed; its status comes each minute and is the node's own."""
        found: Asked | None = self.metrics.objects.get(name)
        spec = None if found is None else found.spec
        if name not in self._specs or self._specs[name] != spec:
            self._specs[name] = spec
            self.reconciler.seen(name)

    async def follow(self) -> None:
        """Look at every node when strategies or readers change, and now and then; until cancelled."""
        before: tuple[int, bool] | None = None
        looked_at = self._clock.monotonic()
        while True:
            now, state = self._clock.monotonic(), (self._slo.version, self.readers.alive)
            if state != before or now - looked_at >= UNREAD_SECONDS / 10:
                before, looked_at = state, now
                self.reconciler.touch_all(set(self.nodes.objects) | set(self.metrics.objects))
            await asyncio.sleep(LOOK_SECONDS)

    def due(self, name: str) -> Write | None:
        """Return the write that brings a node's NodeMetric in step, or None where it is, or nothing is known yet."""
        node: Node | None = self.nodes.objects.get(name)
        found: Asked | None = self.metrics.objects.get(name)
        if node is None:
            self._read_at.pop(name, None)
            self._specs.pop(name, None)
            return None if found is None else lambda: nodes.delete_orphan(self._client, NODE_METRICS, name)
        labels = node.metadata.labels or {}
        config = self._slo.config_of(labels)
        if config is None:
            return None
        said = strategy.said(config.of("colocation-config", labels), labels, node.metadata.annotations or {}, [])
        enabled = said["enable"] is True
        if not self._is_read(name, enabled):
            is_ours = found is not None and (found.metadata.get("labels") or {}).get(MANAGED[0]) == MANAGED[1]
            return (lambda: self._client.delete(NODE_METRICS, name)) if is_ours else None
        # As with Koordinator, a strategy that is not enabled asks for the defaults, and changes nothing that is there.
        policy = collect_policy(said if enabled else colocation.DEFAULT_COLOCATION)
        if found is None:
            body = _body(name, policy, node)
            return lambda: self._client.create(NODE_METRICS, body, dict)
        held = found.spec.get("metricCollectPolicy") or {}
        if not enabled or all(held.get(field) == value for field, value in policy.items()):
            return None
        patch = {
            "metadata": {"resourceVersion": found.metadata["resourceVersion"]},
            "spec": {"metricCollectPolicy": policy},
        }
        return lambda: self._client.patch(NODE_METRICS, name, patch, field_manager=FIELD_MANAGER)

    def _is_read(self, name: str, enabled: bool) -> bool:
        """Return whether somebody reads a node's metric, or did a moment ago."""
        now = self._clock.monotonic()
        if self._when == "always" or (self._when == "auto" and (enabled or self.readers.alive)):
            self._read_at[name] = now
            return True
        # A term that has just begun does not know who read before it.
        return (
            self._when == "auto"
            and now - self._read_at.get(name, self._started_at) < UNREAD_SECONDS
            and (name in self.metrics.objects)
        )


def _body(name: str, policy: Mapping[str, Any], node: Node) -> dict[str, Any]:
    metadata = {"name": name, "labels": dict([MANAGED]), "ownerReferences": [nodes.owner_of(node)]}
    spec = {"metricCollectPolicy": policy}
    return {"apiVersion": api.API_VERSION, "kind": api.KIND, "metadata": metadata, "spec": spec}
