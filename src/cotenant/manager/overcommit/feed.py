"""What nodes use, by the analyzer's table: whoever leads among the analyzers sends it every few seconds."""

import asyncio
import dataclasses
import logging
from collections.abc import Callable

import grpc
import grpc.aio

from cotenant.api import usage
from cotenant.api.v1 import stream_pb2, stream_pb2_grpc
from cotenant.kube import channel, errors
from cotenant.kube.backoff import Backoff
from cotenant.kube.client import LEASES, Client
from cotenant.kube.elector import Lease
from cotenant.units.clock import Clock
from cotenant.units.malformed import MALFORMED

_log = logging.getLogger(__name__)

ANALYZER_LEASE = "cotenant-analyzer"
SILENCE_SECONDS = 20.0
"""Tables come every few seconds, empty ones too: a connection that is silent for longer is dead."""
CONNECTED_SECONDS = 10.0


@dataclasses.dataclass(frozen=True, slots=True)
class Told:
    """A node's newest row, and when it came."""

    row: usage.Row
    at: float


class Feed:
    """Reads the table until cancelled. A leader is found by its lease, whose holder ends in its address."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        clock: Clock,
        touch: Callable[[str], None] = lambda node: None,
        analyzer: channel.Peer | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._clock = clock
        self._touch = touch
        self._analyzer = analyzer or channel.Peer()
        self._backoff = backoff or Backoff(0.5, 15.0)
        self._leader = ""
        self.rows: dict[str, Told] = {}
        self.heard_at: float | None = None
        self.tables = 0
        self.failures = 0
        self.malformed = 0

    async def run(self) -> None:
        """Read until cancelled, connecting anew with a back-off."""
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            try:
                await self._read(await self._address())
            except (grpc.aio.AioRpcError, TimeoutError, errors.KubeError) as error:
                channel.end_if_cancelled()
                self.failures += 1
                self._leader = ""
                why = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error) or "no answer"
                _log.info("usage of nodes: %s", why)
            if loop.time() - started > CONNECTED_SECONDS:
                self._backoff.reset()
            await asyncio.sleep(self._backoff.next_seconds())

    def forget(self, node: str) -> None:
        """Drop a node that has left the cluster."""
        self.rows.pop(node, None)

    async def _address(self) -> str:
        """Return where to ask: where the last one sent us, what was configured, or the holder of the lease.

        :raises KubeError: if nobody leads, or the lease cannot be read.
        """
        known = self._leader or self._analyzer.address
        if known:
            return known
        lease = await self._client.get(LEASES, ANALYZER_LEASE, Lease, namespace=self._namespace)
        address = (lease.spec.holder_identity or "").rpartition("_")[2]
        if not address:
            raise errors.KubeError(f"lease {self._namespace}/{ANALYZER_LEASE}: no analyzer leads")
        return address

    async def _read(self, address: str) -> None:
        channel.check(address, self._analyzer.ca_file)
        open_channel = channel.opener(self._analyzer.ca_file, self._analyzer.token_file, self._analyzer.name)
        async with open_channel(address) as opened:
            call = stream_pb2_grpc.StreamStub(opened).Usage(stream_pb2.UsageRequest())
            async with asyncio.timeout(SILENCE_SECONDS) as silence:
                async for table in call:
                    silence.reschedule(asyncio.get_running_loop().time() + SILENCE_SECONDS)
                    if table.leader or not (table.nodes or table.complete):
                        self._leader = table.leader
                        return
                    self._take(table)

    def _take(self, table: stream_pb2.UsageTable) -> None:
        now = self._clock.monotonic()
        self.heard_at = now
        self.tables += bool(table.complete)
        for entry in table.nodes:
            try:
                self.rows[entry.node] = Told(usage.decode(entry.json), now)
            except MALFORMED as error:
                self.malformed += 1
                _log.warning("usage of node %s: %s", entry.node, error)
                continue
            self._touch(entry.node)
