"""The controller: what is known of each node becomes its batch and mid resources, within a budget of writes."""

import asyncio
import contextlib
import dataclasses
import functools
import logging
from collections.abc import Sequence

from cotenant.api.koordinator import node_metric
from cotenant.kube import errors
from cotenant.kube.budget import Budget
from cotenant.kube.client import NODE_METRICS, NODES, PODS, TOPOLOGIES
from cotenant.kube.informer import Informer
from cotenant.manager.controller import FIELD_MANAGER, Context
from cotenant.manager.overcommit import cluster, names, nodes, pods, strategy, zones
from cotenant.manager.overcommit.account import Account, Decision, Heard
from cotenant.manager.overcommit.feed import Feed
from cotenant.manager.overcommit.metrics import OvercommitCollector
from cotenant.manager.overcommit.nodes import NodeFacts
from cotenant.manager.reconciling import Due, Reconciler, Write
from cotenant.manager.slo import readers

_log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
NODES_AT_ONCE = 100
"""Looked at without a break in which leases are renewed and watches read."""
SWEEP_SECONDS = 15.0
"""How often every node is looked at, whatever happens: use grows old without an event."""
FALLS_PER_SECOND = 20.0
RISES_PER_SECOND = 20.0
ZONES_PER_SECOND = 10.0
"""Bounds on the writes for all nodes. What must be taken back never waits behind what may be given."""


class Overcommit:
    """Publishes batch and mid resources while this replica leads."""

    name = "overcommit"

    async def run(self, context: Context) -> None:
        """Work until cancelled."""
        await Term(context).run()


@dataclasses.dataclass(frozen=True, slots=True)
class _Cached:
    """A node's strategy, and what it was made of."""

    version: int
    node: NodeFacts
    resolved: strategy.Resolved


class Term:
    """One term of leadership: what is known is known since its beginning."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._clock = context.clock
        self._dirty: set[str] = set()
        self._strategies: dict[str, _Cached] = {}
        self._swept_at = -SWEEP_SECONDS
        self._version = -1
        self.accounts: dict[str, Account] = {}
        self.nodes = cluster.Nodes(self._node_changed)
        self.pods = cluster.Pods(self._touch)
        self.metrics = cluster.Metrics(self._touch, context.clock)
        self.topologies = cluster.Topologies(self._topology_changed)
        self.feed = Feed(context.client, context.namespace, context.clock, self._touch, context.settings.analyzer)
        place = context.settings.slo_config.namespace
        self.rival = readers.Readers(context.client, place, context.clock, readers.MANAGER)
        """Koordinator's own manager."""
        self.falls = self._reconciler("falls", functools.partial(self._due, falls_only=True), FALLS_PER_SECOND)
        self.rises = self._reconciler("rises", self._due, RISES_PER_SECOND)
        self.zones = self._reconciler("zones", self._due_zones, ZONES_PER_SECOND)

    @property
    def is_standing_back(self) -> bool:
        """Whether these resources are somebody else's: Koordinator's manager's while it lives, or whose it was told."""
        when = self._context.settings.overcommit
        return when == "never" or (when == "auto" and self.rival.alive)

    def _reconciler(self, what: str, due: Due, per_second: float) -> Reconciler:
        budget = Budget(self._clock, per_second, per_second)
        return Reconciler(f"{Overcommit.name}-{what}", due, self._clock, budget)

    async def run(self) -> None:
        """Work until cancelled."""
        client = self._context.client
        self._context.metrics.register(OvercommitCollector(self))
        listed = Informer(client, NODES, nodes.NodeObject, self.nodes)
        running = Informer(client, PODS, pods.PodObject, self.pods)
        # Without Koordinator's kinds there is nothing of these to list; the stream is enough.
        reported = Informer(client, NODE_METRICS, node_metric.NodeMetric, self.metrics)
        zoned = Informer(client, TOPOLOGIES, zones.TopologyObject, self.topologies)
        writers = (self.falls, self.rises, self.zones)
        self._context.observed.follow(
            Overcommit.name, nodes=listed, pods=running, nodemetrics=reported, topologies=zoned
        )
        self._context.observed.write(*writers)
        async with asyncio.TaskGroup() as tasks:
            for informer in (listed, running, reported, zoned):
                tasks.create_task(informer.run())
            tasks.create_task(self.feed.run())
            tasks.create_task(self.rival.run())
            await self.rival.looked.wait()
            await listed.synced.wait()
            await running.synced.wait()  # a pod that is not seen yet would count for nothing
            tasks.create_task(self._look())
            for writer in writers:
                tasks.create_task(writer.run())

    async def _look(self) -> None:
        while True:
            changed = self.changed()
            for start in range(0, len(changed), NODES_AT_ONCE):
                self.look(changed[start : start + NODES_AT_ONCE])
                await asyncio.sleep(0)
            await asyncio.sleep(LOOK_SECONDS)

    def changed(self) -> list[str]:
        """Return the nodes to be looked at: those of which something has changed, and from time to time all."""
        now = self._clock.monotonic()
        if now - self._swept_at >= SWEEP_SECONDS or self._version != self._context.slo.version:
            self._swept_at, self._version = now, self._context.slo.version
            self._dirty.update(self.nodes.facts)
            self.zones.touch_all(self.topologies.facts)
        changed, self._dirty = self._dirty, set()
        return list(changed)

    def look(self, changed: Sequence[str]) -> None:
        """Decide about nodes, and put those to be written in line."""
        for name in changed:
            decision = self.decide(name)
            if decision is not None and decision.body is not None:
                (self.falls if decision.urgency else self.rises).touch(name)
                if name in self.topologies.facts:
                    self.zones.touch(name)

    def decide(self, name: str) -> Decision | None:
        """Return what is to be done with a node.

        None where it is gone, cannot be understood, nobody says how, or another manager does it.
        """
        node = self.nodes.facts.get(name)
        if node is None:
            self._forget(name)
            return None
        if self.is_standing_back:
            return None
        resolved = self.strategy_of(node)
        if name in self.nodes.problems or resolved is None:
            return None
        account = self.accounts.get(name)
        if account is None:
            account = self.accounts[name] = Account(self._clock)
        return account.decide(node, self.pods.on(name), self._heard(node), resolved.strategy)

    def _heard(self, node: NodeFacts) -> Heard | None:
        return cluster.heard(node, self.feed.rows.get(node.name), self.metrics.reported.get(node.name), self._clock)

    def strategy_of(self, node: NodeFacts) -> strategy.Resolved | None:
        """Return the strategy of a node, or None while the ConfigMap is not known."""
        version, cached = self._context.slo.version, self._strategies.get(node.name)
        if cached is not None and cached.version == version and cached.node is node:
            return cached.resolved
        config = self._context.slo.config_of(node.labels)
        if config is None:
            return None
        resolved = strategy.of(config.of("colocation-config", node.labels), node.labels, node.annotations)
        if resolved.problems and (cached is None or cached.resolved.problems != resolved.problems):
            _log.warning("node/%s: %s; not taken", node.name, "; ".join(resolved.problems))
        self._strategies[node.name] = _Cached(version, node, resolved)
        return resolved

    def age_of(self, moment: float) -> float:
        """Return how long ago a moment of our clock is, in seconds."""
        return self._clock.monotonic() - moment

    def _due(self, name: str, falls_only: bool = False) -> Write | None:
        decision = self.decide(name)
        if decision is None or decision.body is None or (falls_only and not decision.urgency):
            return None
        return functools.partial(self._write, name, decision)

    def _due_zones(self, name: str) -> Write | None:
        """Return what makes a node's zones follow the node."""
        if self.is_standing_back:
            return None
        facts, node, account = self.topologies.facts.get(name), self.nodes.facts.get(name), self.accounts.get(name)
        if facts is None or node is None or account is None:
            return None
        resolved, heard = self.strategy_of(node), self._heard(node)
        if account.state == "current" and resolved is not None and heard is not None:
            wall = self._clock.wall()
            new = zones.values_of(facts, node, self.pods.on(name), heard.use, resolved.strategy, wall)
            body = zones.patch(facts, new) if zones.is_due(facts, new, resolved.strategy) else None
        elif account.state == "waiting" or any(batch in node.published for batch in names.BATCH.values()):
            return None  # what is there stays until the node itself offers nothing any more
        else:
            body = zones.patch(facts, {zone.name: {} for zone in facts.zones})
        if body is None:
            return None
        return functools.partial(self._context.client.patch, TOPOLOGIES, name, body, field_manager=FIELD_MANAGER)

    async def _write(self, name: str, decision: Decision) -> None:
        with contextlib.suppress(errors.NotFound):  # the node is gone, and with it what it offered
            await self._context.client.patch(
                NODES, name, decision.body, subresource="status", field_manager=FIELD_MANAGER
            )
            account = self.accounts.get(name)
            if account is not None:
                account.wrote(decision)

    def _touch(self, name: str) -> None:
        self._dirty.add(name)

    def _node_changed(self, name: str) -> None:
        self._dirty.add(name)
        self.falls.seen(name)
        self.rises.seen(name)

    def _topology_changed(self, name: str) -> None:
        self.zones.seen(name)

    def _forget(self, name: str) -> None:
        self.accounts.pop(name, None)
        self._strategies.pop(name, None)
        self.feed.forget(name)
