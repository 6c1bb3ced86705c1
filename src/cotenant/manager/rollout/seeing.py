"""What a rollout sees of the cluster: Node objects and the reports about them, followed by informers.

A report counts only while the analyzer lives. The leader writes the summary object every ten seconds: when that has
not moved for a minute, as our own clock saw it, or has not moved yet, no report says anything.
"""

import asyncio
import dataclasses

import msgspec

from cotenant.api import timestamp
from cotenant.api.report import CLUSTER, ClusterNode, NodeFacts
from cotenant.kube.client import NODES, REPORTS, Client
from cotenant.kube.informer import Informer
from cotenant.manager.rollout.holding import Hold, hold_of
from cotenant.manager.rollout.view import NodeView
from cotenant.units.clock import Clock

SILENCE_SECONDS = 60.0


class _Meta(msgspec.Struct, frozen=True):
    name: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class Node(msgspec.Struct, frozen=True):
    """A Node, as far as a rollout reads it."""

    metadata: _Meta = _Meta()


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    observed_at: str | None = None
    expires_at: str | None = None
    interference_level: float | None = None
    bucket: str | None = None
    node_facts: NodeFacts | None = None
    nodes: list[ClusterNode] = []


class Report(msgspec.Struct, frozen=True):
    """A report, as far as a rollout reads it."""

    metadata: _Meta = _Meta()
    status: _Status = _Status()


@dataclasses.dataclass(frozen=True, slots=True)
class _Newest:
    """The newer of a node's report and its entry in the summary: level, and whether its samples arrive."""

    level: float | None
    heard: bool


class Nodes:
    """All Node objects."""

    def __init__(self) -> None:
        self.objects: dict[str, Node] = {}

    def replaced(self, objects: dict[str, Node]) -> None:
        self.objects = objects

    def put(self, key: str, value: Node) -> None:
        self.objects[key] = value

    def removed(self, key: str) -> None:
        self.objects.pop(key, None)


class Reports:
    """All reports, the summary of all nodes apart."""

    def __init__(self, clock: Clock, *, trusted: bool = False) -> None:
        """``trusted``: a report that has not expired counts; for a single look, which sees nothing move."""
        self._clock = clock
        self._trusted = trusted
        self.objects: dict[str, Report] = {}
        self._summary: dict[str, ClusterNode] = {}
        self._summed_at: str | None = None
        self._moved_at: float | None = None

    @property
    def alive(self) -> bool:
        """Whether an analyzer leads, as far as can be seen."""
        if self._trusted:
            return True
        return self._moved_at is not None and self._clock.monotonic() - self._moved_at <= SILENCE_SECONDS

    def replaced(self, objects: dict[str, Report]) -> None:
        self.objects = {}
        for key, value in objects.items():
            self.put(key, value)

    def put(self, key: str, value: Report) -> None:
        if key != CLUSTER:
            self.objects[key] = value
            return
        moved = value.status.observed_at != self._summed_at
        if moved and self._summed_at is not None:
            self._moved_at = self._clock.monotonic()
        self._summed_at = value.status.observed_at
        self._summary = {entry.name: entry for entry in value.status.nodes}

    def removed(self, key: str) -> None:
        self.objects.pop(key, None)

    def of(self, name: str) -> tuple[NodeFacts | None, _Newest]:
        """Return a node's facts (None: no report holds), and the newest that is known of its level."""
        found = self.objects.get(name)
        status = found.status if found is not None and self.alive else _Status()
        expires = timestamp.parse(status.expires_at)
        if expires is None or expires <= self._clock.wall():
            return None, _Newest(None, False)
        entry = self._summary.get(name)
        observed = timestamp.parse(status.observed_at) or 0.0
        if entry is not None and (timestamp.parse(entry.observed_at) or 0.0) >= observed:
            return status.node_facts, _Newest(entry.interference_level, entry.bucket not in (None, "unknown"))
        return status.node_facts, _Newest(status.interference_level, status.bucket not in (None, "unknown"))


class Seeing:
    """Follows nodes and reports."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._nodes, self._reports = Nodes(), Reports(clock)
        self._informers = (
            Informer(client, NODES, Node, self._nodes),
            Informer(client, REPORTS, Report, self._reports),
        )

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers:
                tasks.create_task(informer.run())

    @property
    def ready(self) -> bool:
        """Whether all nodes are known; reports that are not known yet are unknown, which is safe."""
        return self._informers[0].synced.is_set()

    def held(self) -> list[tuple[str, Hold]]:
        """Return the nodes that some rollout holds."""
        found = ((name, _hold(node)[0]) for name, node in self._nodes.objects.items())
        return [(name, hold) for name, hold in found if hold is not None]

    def views(self) -> list[NodeView]:
        """Return every node as it is seen now."""
        return [_view(name, node, self._reports) for name, node in self._nodes.objects.items()]


def _view(name: str, node: Node, reports: Reports) -> NodeView:
    hold, damaged = _hold(node)
    facts, newest = reports.of(name)
    return NodeView(
        name=name,
        labels=node.metadata.labels or {},
        hold=hold,
        damaged=damaged,
        interface=facts.priority_interface if facts is not None else None,
        facts=facts,
        heard=newest.heard,
        level=newest.level if newest.heard else None,
    )


async def holds(client: Client) -> list[tuple[str, Hold]]:
    """Return the nodes that some rollout holds, by a list of all nodes.

    :raises KubeError: if they cannot be listed.
    """
    nodes = [node async for node in client.every(NODES, Node)]
    found = ((node.metadata.name, _hold(node)[0]) for node in nodes)
    return [(name, hold) for name, hold in found if hold is not None]


async def look(client: Client, clock: Clock) -> list[NodeView]:
    """Return every node as it is seen at a single look; a report counts until it expires.

    :raises KubeError: if nodes or reports cannot be listed.
    """
    reports = Reports(clock, trusted=True)
    async for report in client.every(REPORTS, Report):
        reports.put(report.metadata.name, report)
    return [_view(node.metadata.name, node, reports) async for node in client.every(NODES, Node)]


def _hold(node: Node) -> tuple[Hold | None, bool]:
    try:
        return hold_of(node.metadata.annotations), False
    except ValueError:
        return None, True
