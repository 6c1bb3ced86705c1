"""Reports go to the API server: worst first, within the budget, a few at a time, the newest state each time."""

import asyncio
import dataclasses
import logging
from typing import Protocol

import msgspec

from cotenant.analyzer.fleet import Fleet
from cotenant.analyzer.publication import NodePublication
from cotenant.api import report
from cotenant.kube import errors
from cotenant.kube.budget import Budget
from cotenant.kube.client import NODES, REPORTS, Client
from cotenant.units.clock import Clock

_log = logging.getLogger(__name__)

FIELD_MANAGER = "cotenant-analyzer"
CONCURRENT_WRITES = 8
TICK_SECONDS = 1.0
WRITE_SECONDS = 15.0
SUMMARY_SECONDS = 10.0
LOG_EVERY_SECONDS = 30.0


class Sink(Protocol):
    """Where reports go."""

    async def write(self, name: str, value: report.NodeInterferenceReport) -> None:
        """Write one report, whole.

        :raises KubeError: if it cannot be written; it is tried again later.
        """
        ...


class ClusterSink:
    """The API server, by server-side apply; each report belongs to its Node, so that it goes with it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._applied: set[str] = set()

    async def write(self, name: str, value: report.NodeInterferenceReport) -> None:
        if name not in self._applied:
            metadata = await self._metadata(name)
            body = {"apiVersion": value.api_version, "kind": value.kind, "metadata": metadata, "spec": value.spec}
            await self._client.apply(REPORTS, name, body, FIELD_MANAGER, force=True)
            self._applied.add(name)
        body = {
            "apiVersion": value.api_version, "kind": value.kind, "metadata": {"name": name}, "status": value.status,
        }  # fmt: skip
        try:
            await self._client.apply(REPORTS, name, body, FIELD_MANAGER, force=True, subresource="status")
        except errors.NotFound:
            self._applied.discard(name)  # somebody deleted it: made anew at the next try
            raise

    async def _metadata(self, name: str) -> dict[str, object]:
        if name == report.CLUSTER:
            return {"name": name}
        node = await self._client.get(NODES, name, _Owner)
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid}
        return {"name": name, "ownerReferences": [owner]}


class _OwnerMeta(msgspec.Struct):
    uid: str


class _Owner(msgspec.Struct):
    metadata: _OwnerMeta


@dataclasses.dataclass(slots=True)
class Written:
    """What was written, and what could not be."""

    reports: int = 0
    summaries: int = 0
    failures: int = 0
    last_error: str | None = None


class Writer:
    """Writes what the fleet has due until cancelled."""

    def __init__(self, fleet: Fleet, sink: Sink, clock: Clock, budget: Budget | None = None) -> None:
        self._fleet = fleet
        self._sink = sink
        self._clock = clock
        self._budget = budget or Budget(clock)
        self._slots = asyncio.Semaphore(CONCURRENT_WRITES)
        self._hold_until = 0.0
        self._summary_at = 0.0
        self._logged_at = -LOG_EVERY_SECONDS
        self.written = Written()

    async def run(self) -> None:
        """Write each second what is due."""
        while True:
            await self.write_due()
            await asyncio.sleep(TICK_SECONDS)

    async def write_due(self) -> None:
        """Write what is due now, as far as the budget goes, and wait for the answers."""
        self._fleet.tick()
        now = self._clock.monotonic()
        if now < self._hold_until:
            return
        due = self._fleet.due(self._budget.available())
        self._budget.spend(len(due))
        writes = [self._write(node) for node in due]
        if now >= self._summary_at:
            self._summary_at = now + SUMMARY_SECONDS
            writes.append(self._write_summary())
        await asyncio.gather(*writes)

    async def _write(self, node: NodePublication) -> None:
        material, status = node.begin_write()
        value = report.NodeInterferenceReport(
            metadata={"name": node.node}, spec=report.ReportSpec(node_name=node.node), status=status
        )
        done = False
        try:
            done = await self._try(node.node, value)
        finally:  # also where leadership is lost meanwhile: the next term writes it again
            node.end_write(material if done else None, self._clock.monotonic())
        self.written.reports += done

    async def _write_summary(self) -> None:
        value = report.NodeInterferenceReport(metadata={"name": report.CLUSTER}, status=self._fleet.summary())
        self.written.summaries += await self._try(report.CLUSTER, value)

    async def _try(self, name: str, value: report.NodeInterferenceReport) -> bool:
        async with self._slots:
            if self._clock.monotonic() < self._hold_until:
                return False
            try:
                async with asyncio.timeout(WRITE_SECONDS):
                    await self._sink.write(name, value)
            except TimeoutError:
                self._failed(errors.Unreachable(f"report {name}: no answer within {WRITE_SECONDS:.0f} s"))
                return False
            except errors.KubeError as error:
                self._failed(error)
                return False
        return True

    def _failed(self, error: errors.KubeError) -> None:
        """Hold off as long as the server asks, or a second where it does not answer: nothing piles up meanwhile."""
        now = self._clock.monotonic()
        self.written.failures += 1
        self.written.last_error = str(error)
        if isinstance(error, errors.Throttled | errors.Unreachable):
            wait = getattr(error, "retry_after_seconds", None) or 1.0
            self._hold_until = max(self._hold_until, now + wait)
        if now - self._logged_at >= LOG_EVERY_SECONDS:
            self._logged_at = now
            _log.warning("reports: %s", error)
