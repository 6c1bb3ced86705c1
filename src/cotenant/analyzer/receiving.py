"""The analyzer's end of the stream."""

import asyncio
import contextlib
import dataclasses
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import grpc
import grpc.aio
import msgspec

from cotenant.analyzer import authentication, rulebook, tally
from cotenant.analyzer.errors import BadListen
from cotenant.analyzer.fleet import Fleet
from cotenant.api import report, usage
from cotenant.api.v1 import stream_pb2, stream_pb2_grpc
from cotenant.detect import rules
from cotenant.model import sample
from cotenant.model.ledger import Ledger
from cotenant.units import address
from cotenant.units.malformed import MALFORMED
from cotenant.web.serving import bind

_log = logging.getLogger(__name__)

HELLO_SECONDS = 10.0
STOP_SECONDS = 0.2
MAX_MESSAGE_BYTES = 1 << 20
"""Thirty samples of a node with 250 groups are below half of it."""
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
"""A host's name. It becomes the name of an object, and so a part of an address."""
MAX_LEDGER_BYTES = 128 << 10
"""Two hundred namespaces; one that is longer is cut off, and so refused."""
MAX_VERSIONS = 256
MAX_SAMPLES = 60
MAX_STREAMS = 20_000
MAX_FACTS_BYTES = 64 * 1024
TABLE_SECONDS = 4.0
"""How often whoever asks gets the table of what nodes use. A change is in the second table after it whole, and so, with
samples that come five at a time and all that follows, on the Node within 15 s."""
NODES_PER_MESSAGE = 100
MAX_READERS = 4

Identify = Callable[[str | None], Awaitable[authentication.Identity]]
"""From the ``authorization`` header to who calls."""

_ledger_decoder = msgspec.json.Decoder(Ledger)
_facts_decoder = msgspec.json.Decoder(report.NodeFacts)


@dataclasses.dataclass(frozen=True, slots=True)
class Instructions:
    """What every node is told."""

    period_milliseconds: int = 1000
    samples_per_message: int = 1


class Receiver(stream_pb2_grpc.StreamServicer):
    """Takes samples of all nodes while ``serves``; else says where the leader is, as far as that is known."""

    def __init__(
        self,
        fleet: Fleet,
        instructions: Instructions,
        serves: Callable[[], bool] = lambda: True,
        leader: Callable[[], str] = lambda: "",
        identify: Identify | None = None,
        identify_reader: Identify | None = None,
        table_seconds: float = TABLE_SECONDS,
    ) -> None:
        self._fleet = fleet
        self._instructions = instructions
        self._serves = serves
        self._leader = leader
        self._identify = identify
        self._identify_reader = identify_reader
        self._table_seconds = table_seconds
        self._calls: dict[str, grpc.aio.ServicerContext] = {}
        self._versions: dict[int, tuple[rules.Rules, str]] = {}
        self.malformed = 0
        self.refused = 0
        """Calls turned away for who made them, or because that could not be checked."""

    @property
    def connected(self) -> int:
        """The number of nodes whose stream is open."""
        return len(self._calls)

    async def Samples(
        self, request_iterator: AsyncIterator[stream_pb2.Upward], context: grpc.aio.ServicerContext
    ) -> None:
        """Serve one node's call."""
        if not self._serves():
            await context.write(stream_pb2.Downward(leader=self._leader()))
            return
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                hello = (await anext(aiter(request_iterator))).hello
        except (TimeoutError, StopAsyncIteration):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first message is to be a Hello")
        identity = await self._identity(context, self._identify)
        node = hello.node
        if not _NAME.fullmatch(node) or node == report.CLUSTER:
            quoted = f": {node[:80]!r} is none's name" if node else ""
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"Hello names no node{quoted}")
        try:
            if identity is not None:
                identity.check(node)
        except authentication.Refused as refused:
            self.refused += 1
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(refused))
        if len(self._calls) >= MAX_STREAMS and node not in self._calls:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_STREAMS} nodes are connected already")
        facts = self._facts(node, hello.facts)
        self._calls[node] = context  # a second call of the node takes over: the first is a dead connection
        # The node sends no sample before this answer: none is lost to a replica that does not lead.
        said = self._version(node)
        await context.write(self._downward(node, said))
        try:
            async for message in request_iterator:
                if not self._serves():
                    await context.write(stream_pb2.Downward(leader=self._leader()))
                    return
                if message.HasField("hello"):  # again, because its facts have changed
                    facts = self._facts(node, message.hello.facts) or facts
                self._hear(node, message.batch, facts)
                version = self._version(node)
                if version != said:
                    said = version
                    await context.write(self._downward(node, version))
        finally:
            if self._calls.get(node) is context:
                del self._calls[node]

    def _version(self, node: str) -> str:
        """Return the version of a node's rules; worked out once for each set of rules, not for each message."""
        source = self._fleet.rules_of(node)
        kept = self._versions.get(id(source))
        if kept is None or kept[0] is not source:
            if len(self._versions) >= MAX_VERSIONS:
                self._versions.clear()
            kept = self._versions[id(source)] = (source, rulebook.version_of(source))
        return kept[1]

    async def Usage(self, request: stream_pb2.UsageRequest, context: grpc.aio.ServicerContext) -> None:
        """Send a reader what nodes use until it goes, or another replica leads."""
        await self._identity(context, self._identify_reader)
        if len(self._fleet.tallies) >= MAX_READERS:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_READERS} read already")
        mine = tally.Tally()
        self._fleet.tallies.add(mine)
        try:
            while self._serves():
                await asyncio.sleep(self._table_seconds)
                for message in _messages(mine.roll()):
                    await context.write(message)
            await context.write(stream_pb2.UsageTable(leader=self._leader()))
        finally:
            self._fleet.tallies.discard(mine)

    async def _identity(
        self, context: grpc.aio.ServicerContext, identify: Identify | None
    ) -> authentication.Identity | None:
        """Return who calls; None where nobody is asked, which is on loopback only. Turns others away."""
        if identify is None:
            return None
        metadata = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        try:
            return await identify(metadata.get("authorization"))
        except authentication.Refused as refused:
            self.refused += 1
            code = grpc.StatusCode.UNAVAILABLE if refused.temporary else grpc.StatusCode.UNAUTHENTICATED
            await context.abort(code, str(refused))
            raise

    def _facts(self, node: str, encoded: bytes) -> report.NodeFacts | None:
        if not encoded:
            return None
        if len(encoded) > MAX_FACTS_BYTES:
            self.malformed += 1
            _log.warning("facts of %s: %d bytes, more than %d", node, len(encoded), MAX_FACTS_BYTES)
            return None
        try:
            return _facts_decoder.decode(encoded)
        except MALFORMED as error:
            self.malformed += 1
            _log.warning("facts of %s: %s", node, error)
            return None

    def _hear(self, node: str, batch: stream_pb2.Batch, facts: report.NodeFacts | None) -> None:
        taken = []
        for entry in batch.samples[-MAX_SAMPLES:]:
            try:
                decoded = sample.decode(entry.json)
            except MALFORMED:
                self.malformed += 1
                continue
            if entry.uptime_seconds and entry.uptime_seconds != decoded.uptime_s:
                decoded = msgspec.structs.replace(decoded, uptime_s=entry.uptime_seconds)
            taken.append(decoded)
        self._fleet.hear(node, taken, facts)
        if batch.ledger:
            self._hear_ledger(node, batch.ledger)

    def _hear_ledger(self, node: str, encoded: bytes) -> None:
        try:
            self._fleet.ledgers.hear(node, _ledger_decoder.decode(encoded[:MAX_LEDGER_BYTES]))
        except MALFORMED as error:
            self.malformed += 1
            _log.warning("ledger of %s: %s", node, error)

    def _downward(self, node: str, version: str) -> stream_pb2.Downward:
        alarms = [
            stream_pb2.Alarm(signal=alarm.signal, value=alarm.value, falling=alarm.falling)
            for alarm in rulebook.alarms_of(self._fleet.rules_of(node))
        ]
        return stream_pb2.Downward(
            period_milliseconds=self._instructions.period_milliseconds,
            samples_per_message=self._instructions.samples_per_message,
            rules_version=version,
            alarms=alarms,
        )


def _messages(table: dict[str, usage.Row]) -> Iterator[stream_pb2.UsageTable]:
    """Yield a table in pieces, the last one marked."""
    rows = [stream_pb2.NodeUsage(node=node, json=usage.encode(row)) for node, row in table.items()]
    for start in range(0, max(len(rows), 1), NODES_PER_MESSAGE):
        last = start + NODES_PER_MESSAGE
        yield stream_pb2.UsageTable(nodes=rows[start:last], complete=last >= len(rows))


@contextlib.asynccontextmanager
async def serving(
    receiver: Receiver, listen: str, credentials: grpc.ServerCredentials | None = None
) -> AsyncIterator[int]:
    """Serve while the context lasts; yields the port.

    :raises BadListen: if the address cannot be bound.
    """
    try:
        bind(listen).close()  # why an address cannot be had, gRPC tells in a log of its own, and only there
    except address.BadAddress as error:
        raise BadListen(str(error)) from None
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.keepalive_time_ms", 20_000),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
            ("grpc.so_reuseport", 0),
        ]
    )
    stream_pb2_grpc.add_StreamServicer_to_server(receiver, server)
    try:
        port = (
            server.add_secure_port(listen, credentials) if credentials is not None else server.add_insecure_port(listen)
        )
    except RuntimeError as error:
        raise BadListen(f"--listen {listen}: {error}") from None
    await server.start()
    try:
        yield port
    finally:
        await server.stop(STOP_SECONDS)
