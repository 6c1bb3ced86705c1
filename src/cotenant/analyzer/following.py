"""What the analyzer follows in the cluster: its rules and its nodes."""

import asyncio
import logging
from typing import Any

import msgspec

from cotenant.analyzer.fleet import Fleet
from cotenant.analyzer.rulebook import Book
from cotenant.api import report
from cotenant.api.objects import Node
from cotenant.kube import errors
from cotenant.kube.client import NODES, REPORTS, RULES, Client
from cotenant.kube.informer import Informer

_log = logging.getLogger(__name__)

FIELD_MANAGER = "cotenant-analyzer"


class _Nodes:
    """Labels choose the rules; a node that leaves is forgotten later."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def replaced(self, objects: dict[str, Node]) -> None:
        for key in set(self._fleet.nodes) - set(objects):
            self._fleet.left(key)
        for key, value in objects.items():
            self.put(key, value)

    def put(self, key: str, value: Node) -> None:
        self._fleet.relabel(key, value.metadata.labels or {})

    def removed(self, key: str) -> None:
        self._fleet.left(key)


class _Rules:
    """Rules take effect at once; what became of each version is told in its status."""

    def __init__(self, fleet: Fleet, told: "asyncio.Queue[tuple[str, Book, int]]") -> None:
        self._fleet = fleet
        self._told = told
        self._generations: dict[str, int] = {}

    def replaced(self, objects: dict[str, dict[str, Any]]) -> None:
        for name in set(self._generations) - set(objects):
            self.removed(name)
        for key, value in objects.items():
            self.put(key, value)

    def put(self, key: str, value: dict[str, Any]) -> None:
        generation = int((value.get("metadata") or {}).get("generation") or 0)
        if self._generations.get(key) == generation:
            return  # only the status changed: our own write
        self._generations[key] = generation
        book = self._fleet.rulebook.put(value)
        if book.refused:
            _log.warning("rules %s, generation %d: %s", key, generation, book.refused)
        self._told.put_nowait((key, book, generation))

    def removed(self, key: str) -> None:
        self._generations.pop(key, None)
        self._fleet.rulebook.remove(key)


class Following:
    """Keeps rules and nodes up to date until cancelled."""

    def __init__(self, client: Client, fleet: Fleet) -> None:
        self._client = client
        self._told: asyncio.Queue[tuple[str, Book, int]] = asyncio.Queue()
        self.nodes = Informer(client, NODES, Node, _Nodes(fleet))
        self.rules = Informer(client, RULES, dict[str, Any], _Rules(fleet, self._told))

    async def run(self) -> None:
        """Follow."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.nodes.run())
            tasks.create_task(self.rules.run())
            tasks.create_task(self._tell())

    async def _tell(self) -> None:
        """Write into each object's status whether it is valid and which generation is in force."""
        while True:
            name, book, generation = await self._told.get()
            try:
                await self._client.apply(
                    RULES, name, rule_status(name, book, generation), FIELD_MANAGER, force=True, subresource="status"
                )
            except errors.KubeError as error:
                _log.warning("status of rules %s: %s", name, error)


def rule_status(name: str, book: Book, generation: int) -> dict[str, Any]:
    """Return the object that tells what became of one generation of rules."""
    condition = report.Condition(
        type="Valid",
        status="False" if book.refused else "True",
        reason="Refused" if book.refused else "InForce",
        message=book.refused or f"generation {generation} is in force",
        observed_generation=generation,
    )
    status: dict[str, Any] = {"conditions": [condition]}
    if book.generation:
        status["activeGeneration"] = book.generation
    return {
        "apiVersion": report.API_VERSION,
        "kind": "DetectionRuleConfig",
        "metadata": {"name": name},
        "status": status,
    }


class _PublishedMeta(msgspec.Struct):
    name: str


class _Published(msgspec.Struct):
    metadata: _PublishedMeta
    status: report.ReportStatus = msgspec.field(default_factory=report.ReportStatus)


async def published(client: Client) -> dict[str, report.ReportStatus]:
    """Return the statuses of all reports there are, by node; one that cannot be read is left out.

    :raises KubeError: if they cannot be listed.
    """
    found: dict[str, report.ReportStatus] = {}
    next_page: str | None = None
    while True:
        page = await client.page(REPORTS, limit=500, continue_=next_page)
        for item in page.items:
            try:
                read = msgspec.json.decode(item, type=_Published)
            except msgspec.DecodeError as error:
                _log.warning("a report of an earlier leader: %s", error)
                continue
            if read.metadata.name != report.CLUSTER:
                found[read.metadata.name] = read.status
        next_page = page.next_page or None
        if next_page is None:
            return found
