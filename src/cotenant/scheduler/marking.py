"""The verdict on the node, for schedulers that do not ask the extender: labels, opt-in taints, and ``KataReady``.

What a label says is what was published, which is slower than detection; the state is on the Node objects alone, so a
new leader starts from them and changes nothing that still holds.
"""

import asyncio
import dataclasses
import logging
import math
from typing import Literal

from cotenant.api import marks
from cotenant.api.marks import Marks
from cotenant.api.objects import Node, NodeCondition
from cotenant.api.reading import Row
from cotenant.kube import errors
from cotenant.kube.budget import Budget
from cotenant.kube.client import LEASES, NODES, Client
from cotenant.kube.elector import Lease
from cotenant.model import evaluation
from cotenant.scheduler import readiness
from cotenant.scheduler.caps import Candidate, Caps, Exclusions
from cotenant.scheduler.cluster import ClusterSource
from cotenant.scheduler.rules import AppliesTo
from cotenant.units.clock import Clock

_log = logging.getLogger(__name__)

LEASE = "cotenant-scheduler"
FIELD_MANAGER = "cotenant-scheduler"
SWITCH_ANNOTATION = "cotenant.io/verdicts"
"""On the lease: ``off`` takes every verdict off the nodes and keeps it off, without a restart."""
TICK_SECONDS = 1.0
SWITCH_POLL_SECONDS = 5.0
MIN_INTERVAL_SECONDS = 10.0
"""Between two writes to one node, unless pods are to be kept away from it or let in again."""
ECHO_SECONDS = 5.0
"""How long a write may take to come back by the watch before it is made again."""
CONCURRENT_WRITES = 4
TAINT_ATTEMPTS = 5
LOG_EVERY_SECONDS = 30.0

Taints = Literal["off", "soft", "hard"]
_EFFECTS: dict[Taints, marks.Effect | None] = {"off": None, "soft": "PreferNoSchedule", "hard": "NoSchedule"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is written on nodes."""

    taints: Taints = "off"
    """``soft`` asks schedulers to prefer other nodes, ``hard`` forbids new pods, those of DaemonSets too."""
    applies_to: AppliesTo = "all"
    """``none``: nothing but what Kata needs."""
    max_excluded_fraction: float = 0.05
    pool_label: str = "cotenant.io/pool"
    """Nodes with the same value of this label are one pool; those without it are one, too."""


@dataclasses.dataclass(slots=True)
class Counts:
    """What the writer did, and what it holds back."""

    label_writes: int = 0
    taint_writes: int = 0
    condition_writes: int = 0
    failures: int = 0
    conflicts: int = 0
    excluded: int = 0
    waiting_for_pool: int = 0
    waiting_for_rate: int = 0
    last_error: str | None = None


@dataclasses.dataclass(slots=True)
class _Last:
    """What was last written to a node, and when."""

    marks: Marks | None = None
    condition: tuple[str, str, str] | None = None
    at: float = -math.inf


def wanted_marks(row: Row | None, excluded: bool, kata_ready: str | None, settings: Settings) -> Marks:
    """Return what should be on a node; ``row`` is its report while it holds, ``kata_ready`` the condition's status."""
    labels: dict[str, str] = {}
    if row is not None:
        labels[marks.INTERFERENCE_LABEL] = row.bucket if row.bucket in evaluation.BUCKETS else "unknown"
    if excluded and settings.applies_to in ("all", "online"):
        labels[marks.AVOID_ONLINE_LABEL] = "true"
    if excluded and settings.applies_to in ("all", "offline"):
        labels[marks.AVOID_OFFLINE_LABEL] = "true"
    if kata_ready in ("True", "False"):
        labels[marks.KATA_LABEL] = kata_ready.lower()
    return Marks(
        labels=labels,
        hard=", ".join(row.hard) if row is not None and row.hard else None,
        taint=_EFFECTS[settings.taints] if excluded else None,
    )


def severity_of(row: Row | None) -> tuple[float, ...]:
    """Return how bad a node is: hard limits, then the bucket, then the level."""
    if row is None:
        return (0.0, -1.0, 0.0)
    return float(len(row.hard)), float(evaluation.severity_of(row.bucket)), row.level or 0.0


class Marker:
    """Writes what the table says onto the nodes, while we lead."""

    def __init__(
        self, client: Client, source: ClusterSource, settings: Settings, clock: Clock, budget: Budget | None = None
    ) -> None:
        self._client = client
        self._source = source
        self._settings = settings
        self._clock = clock
        self._budget = budget or Budget(clock)
        self._caps = Caps(settings.max_excluded_fraction)
        self._last: dict[str, _Last] = {}
        self._hold_until = -math.inf
        self._logged_at = -math.inf
        self._switch_at = -math.inf
        self.switched_off = False
        self.counts = Counts()

    async def run(self) -> None:
        """Write each second what differs, until cancelled."""
        while True:
            await self.write_due()
            await asyncio.sleep(TICK_SECONDS)

    async def write_due(self) -> None:
        """Write what should be written now, as far as the budget goes."""
        now = self._clock.monotonic()
        await self._look_at_switch(now)
        if now < self._hold_until or not self._source.may_judge:
            return
        nodes = self._source.table.nodes
        for gone in set(self._last) - set(nodes):
            del self._last[gone]
        due = self._due(nodes, now)[: self._budget.available()]
        self._budget.spend(len(due))
        slots = asyncio.Semaphore(CONCURRENT_WRITES)
        await asyncio.gather(*(self._write(slots, *change) for change in due))

    async def _look_at_switch(self, now: float) -> None:
        if now - self._switch_at < SWITCH_POLL_SECONDS:
            return
        self._switch_at = now
        try:
            lease = await self._client.get(LEASES, LEASE, Lease, namespace=self._client.namespace)
        except errors.KubeError:
            return  # as it was
        annotations = lease.metadata.get("annotations") or {}
        self.switched_off = annotations.get(SWITCH_ANNOTATION) == "off"

    def _due(self, nodes: dict[str, Node], now: float) -> list[tuple[Node, Marks, NodeCondition | None, bool]]:
        """Return what to write: nodes to keep pods away from first, then those to let pods in again, then the rest."""
        wall, table = self._clock.wall(), self._source.table
        silent = self.switched_off or self._settings.applies_to == "none"
        rows = {name: None if silent else table.known(name, wall) for name in nodes}
        plan = self._plan(nodes, rows, now)
        classes = (table.runtime_classes or {}).values()
        due: list[tuple[tuple[float, ...], tuple[Node, Marks, NodeCondition | None, bool]]] = []
        for name, node in nodes.items():
            row = rows[name]
            condition = readiness.condition_of(node, table.known(name, wall), classes, wall)
            wanted = wanted_marks(row, name in plan.excluded, condition.status if condition else None, self._settings)
            found = marks.marks_of(node)
            held = next((one for one in node.status.conditions or () if one.type == marks.CONDITION), None)
            changed = condition if _content(condition) != _content(held) else None
            if wanted == found and changed is None:
                continue
            turning = wanted.excludes != found.excludes or (wanted.hard is None) != (found.hard is None)
            last = self._last.get(name, _Last())
            pause = MIN_INTERVAL_SECONDS if not turning else ECHO_SECONDS if last.marks == wanted else 0.0
            if now - last.at < pause:
                continue
            order = (float(not wanted.excludes), float(not turning), *(-part for part in severity_of(row)))
            due.append((order, (node, wanted, changed, wanted.excludes and not found.excludes)))
        due.sort(key=lambda entry: entry[0])
        return [change for _, change in due]

    def _plan(self, nodes: dict[str, Node], rows: dict[str, Row | None], now: float) -> Exclusions:
        candidates = [
            Candidate(
                name,
                (node.metadata.labels or {}).get(self._settings.pool_label, ""),
                bool((row := rows[name]) is not None and row.hard),
                severity_of(row),
                marks.marks_of(node).excludes,
            )
            for name, node in nodes.items()
        ]
        plan = self._caps.plan(candidates, now)
        waiting = list(plan.waiting.values())
        self.counts.excluded = len(plan.excluded)
        self.counts.waiting_for_pool, self.counts.waiting_for_rate = waiting.count("pool"), waiting.count("rate")
        return plan

    async def _write(
        self, slots: asyncio.Semaphore, node: Node, wanted: Marks, condition: NodeCondition | None, is_new: bool
    ) -> None:
        name, found = node.metadata.name, marks.marks_of(node)
        async with slots:
            now = self._clock.monotonic()
            if now < self._hold_until:
                return
            try:
                if (wanted.labels, wanted.hard) != (found.labels, found.hard):
                    await self._label(node, wanted, found)
                if wanted.taint != found.taint:
                    self.counts.conflicts += await set_taint(self._client, name, wanted.taint)
                    self.counts.taint_writes += 1
                if condition is not None:
                    await set_condition(self._client, name, condition)
                    self.counts.condition_writes += 1
            except errors.KubeError as error:
                self._failed(error)
                return
            self._last[name] = _Last(wanted, _content(condition), now)
            if is_new:
                self._caps.note_new(now)

    async def _label(self, node: Node, wanted: Marks, found: Marks) -> None:
        name = node.metadata.name
        await self._client.apply(NODES, name, marks.apply_body(node, wanted), FIELD_MANAGER, force=True)
        self.counts.label_writes += 1
        last = self._last.get(name)
        extra = [key for key in found.labels if key not in wanted.labels]
        if extra and last is not None and last.marks == wanted:
            # Given up once already and still there: somebody else put it there too, and it would outlive its truth.
            await self._client.patch(NODES, name, marks.removal(extra), field_manager=FIELD_MANAGER)

    def _failed(self, error: errors.KubeError) -> None:
        now = self._clock.monotonic()
        self.counts.failures += 1
        self.counts.last_error = str(error)
        if isinstance(error, errors.Throttled | errors.Unreachable):
            self._hold_until = max(self._hold_until, now + (getattr(error, "retry_after_seconds", None) or 1.0))
        if now - self._logged_at >= LOG_EVERY_SECONDS:
            self._logged_at = now
            _log.warning("verdict: %s", error)


def _content(condition: NodeCondition | None) -> tuple[str, str, str] | None:
    return None if condition is None else (condition.status, condition.reason, condition.message)


async def set_taint(client: Client, name: str, effect: str | None) -> int:
    """Leave our taint on a node with this effect (None: without it), everybody else's as they are.

    Returns how often somebody else wrote in between.

    :raises Conflict: if somebody did each time.
    :raises KubeError: if it cannot be written.
    """
    for attempt in range(TAINT_ATTEMPTS):
        node = await client.get(NODES, name, dict)
        patch = marks.taint_patch(node, effect)
        if patch is None:
            return attempt
        try:
            await client.patch(NODES, name, patch, field_manager=FIELD_MANAGER)
        except errors.Conflict:
            if attempt == TAINT_ATTEMPTS - 1:
                raise
            continue
        return attempt
    return TAINT_ATTEMPTS


async def set_condition(client: Client, name: str, condition: NodeCondition) -> None:
    """Put our condition on a node beside those of others.

    :raises KubeError: if it cannot be written.
    """
    patch = {"status": {"conditions": [condition]}}
    await client.patch(NODES, name, patch, how="strategic", subresource="status", field_manager=FIELD_MANAGER)


async def clear(client: Client) -> list[str]:
    """Take everything of ours off every node; returns the nodes that had something.

    :raises KubeError: if nodes cannot be listed or one cannot be written.
    """
    return [node.metadata.name async for node in client.every(NODES, Node) if await clear_node(client, node)]


async def clear_node(client: Client, node: Node) -> bool:
    """Take everything of ours off a node; returns whether there was something.

    :raises KubeError: if it cannot be written.
    """
    name, found = node.metadata.name, marks.marks_of(node)
    conditions = [one for one in node.status.conditions or () if one.type == marks.CONDITION]
    if found.labels or found.hard is not None:
        await client.patch(NODES, name, marks.removal(), field_manager=FIELD_MANAGER)
    if found.taint is not None:
        await set_taint(client, name, None)
    if conditions:
        gone = {"status": {"conditions": [{"$patch": "delete", "type": marks.CONDITION}]}}
        await client.patch(NODES, name, gone, how="strategic", subresource="status", field_manager=FIELD_MANAGER)
    return found != Marks() or bool(conditions)
