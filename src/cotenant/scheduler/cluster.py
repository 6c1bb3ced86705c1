"""The table from the API server: informers on reports, Nodes and RuntimeClasses, and a look at the analyzer's lease.

Reports hold only while the analyzer lives: when its lease has not been renewed for a minute, as our own clock saw it,
all of them count as expired.
"""

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from cotenant.api.objects import Node, RuntimeClass
from cotenant.api.reading import row_of
from cotenant.kube import errors
from cotenant.kube.client import LEASES, NODES, REPORTS, RUNTIME_CLASSES, Client
from cotenant.kube.elector import Lease
from cotenant.kube.informer import Informer
from cotenant.scheduler.herd import Herd
from cotenant.scheduler.placing import Placements
from cotenant.scheduler.table import Table
from cotenant.units.clock import Clock

Object = TypeVar("Object")

ANALYZER_LEASE = "cotenant-analyzer"
LEASE_FRESH_SECONDS = 60.0
LEASE_POLL_SECONDS = 5.0
SETTLE_SECONDS = 15.0
"""How long the API server must have answered before a lease that did not move is held against the analyzer: after an
outage the analyzer needs a moment, too."""


@dataclasses.dataclass(slots=True)
class _Objects(Generic[Object]):
    """Keeps objects in a dictionary that is swapped whole when they are listed anew."""

    store: Callable[[dict[str, Object]], None]
    objects: dict[str, Object] = dataclasses.field(default_factory=dict)

    def replaced(self, objects: dict[str, Object]) -> None:
        self.objects = objects
        self.store(objects)

    def put(self, key: str, value: Object) -> None:
        self.objects[key] = value

    def removed(self, key: str) -> None:
        self.objects.pop(key, None)


class _Reports:
    """Keeps rows; remembers which report is about which node, since a deletion names the report."""

    def __init__(self, source: "ClusterSource") -> None:
        self._source = source
        self._nodes: dict[str, str] = {}

    def replaced(self, objects: dict[str, dict[str, Any]]) -> None:
        for key in list(self._nodes):
            self.removed(key)
        for key, value in objects.items():
            self.put(key, value)

    def put(self, key: str, value: dict[str, Any]) -> None:
        row = row_of(value)
        if row is not None:
            self._nodes[key] = row.node
            self._source.table.put(row)

    def removed(self, key: str) -> None:
        node = self._nodes.pop(key, None)
        if node is not None:
            self._source.table.remove(node)


class ClusterSource:
    """A table that follows the cluster. Before the first lists arrive nothing is known, so everything passes."""

    def __init__(
        self, client: Client, clock: Clock, lease_namespace: str | None = None, *, follow_placements: bool = False
    ) -> None:
        self._client = client
        self._clock = clock
        self._lease_namespace = lease_namespace or client.namespace
        self.table = Table()
        self.table.suspended = True
        self.herd = Herd() if follow_placements else None
        self._placements = None if self.herd is None else Placements(client, self.table, self.herd, clock)
        self._lease_renewed: str | None = None
        self._lease_seen_at: float | None = None
        self._lease_error: str | None = None
        self._answering_since: float | None = None
        self._reports = Informer(client, REPORTS, dict[str, Any], _Reports(self))
        self._nodes = Informer(client, NODES, Node, _Objects(self._keep_nodes))
        self._runtime_classes = Informer(client, RUNTIME_CLASSES, RuntimeClass, _Objects(self._keep_runtime_classes))

    def _keep_nodes(self, objects: dict[str, Node]) -> None:
        self.table.nodes = objects

    def _keep_runtime_classes(self, objects: dict[str, RuntimeClass]) -> None:
        self.table.runtime_classes = objects

    @property
    def may_judge(self) -> bool:
        """Whether what is known is enough to change what stands on nodes: listed, and the lease's silence is real."""
        if not self._nodes.synced.is_set() or self._answering_since is None:
            return False
        if self.table.suspended:
            return self._clock.monotonic() - self._answering_since >= SETTLE_SECONDS
        return self._reports.synced.is_set()

    @property
    def malformed(self) -> int:
        """The number of objects that could not be read."""
        return self._reports.malformed

    @property
    def errors(self) -> int:
        """The number of failed lists and watches."""
        placements = 0 if self._placements is None else self._placements.failures
        return self._reports.failures + self._nodes.failures + self._runtime_classes.failures + placements

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "cluster",
            "analyzer": "gone" if self.table.suspended else "alive",
            "analyzerLeaseError": self._lease_error,
            "placements": None
            if self._placements is None
            else {"counted": self._placements.placed, "lastError": self._placements.last_error},
            **{
                name: {"synced": informer.synced.is_set(), "lastError": informer.last_error}
                for name, informer in (
                    ("reports", self._reports),
                    ("nodes", self._nodes),
                    ("runtimeClasses", self._runtime_classes),
                )
            },
        }

    async def keep(self) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._reports.run())
            tasks.create_task(self._nodes.run())
            tasks.create_task(self._runtime_classes.run())
            tasks.create_task(self._watch_lease())
            if self._placements is not None:
                tasks.create_task(self._placements.run())

    async def _watch_lease(self) -> None:
        while True:
            await self.look_at_lease()
            await asyncio.sleep(LEASE_POLL_SECONDS)

    async def look_at_lease(self) -> None:
        """Read the analyzer's lease once and decide whether its reports hold."""
        found_none = False
        try:
            lease = await self._client.get(LEASES, ANALYZER_LEASE, Lease, namespace=self._lease_namespace)
            self._lease_error = None
            if lease.spec.renew_time is not None and lease.spec.renew_time != self._lease_renewed:
                self._lease_renewed, self._lease_seen_at = lease.spec.renew_time, self._clock.monotonic()
        except errors.NotFound as error:
            self._lease_error, found_none = str(error), True
        except errors.KubeError as error:
            self._lease_error = str(error)
        answered = self._lease_error is None or found_none
        if not answered:
            self._answering_since = None
        elif self._answering_since is None:
            self._answering_since = self._clock.monotonic()
        age = None if self._lease_seen_at is None else self._clock.monotonic() - self._lease_seen_at
        self.table.suspended = age is None or age > LEASE_FRESH_SECONDS
