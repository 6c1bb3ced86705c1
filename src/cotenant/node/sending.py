"""The node's end of the stream: samples go up as they come, and nothing that happens there slows sampling."""

import asyncio
import collections
import dataclasses
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from cotenant.api.v1 import stream_pb2, stream_pb2_grpc
from cotenant.kube import channel
from cotenant.kube.backoff import Backoff
from cotenant.model import sample

_log = logging.getLogger(__name__)

KEPT_SAMPLES = 30
MAX_SAMPLES_PER_MESSAGE = 5
ACCEPT_SECONDS = 5.0
"""How long the analyzer may take to accept a node: a connection that nobody serves looks open."""
CONNECTED_SECONDS = 10.0
"""A call that lasted longer than this resets the back-off."""


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
    """Who sends."""

    node: str
    boot_id: str = ""
    version: str = ""
    facts: bytes = b""


@dataclasses.dataclass(slots=True)
class Orders:
    """What the analyzer last asked for."""

    period_seconds: float = 1.0
    samples_per_message: int = 1
    rules_version: str = ""
    alarms: dict[str, tuple[float, bool]] = dataclasses.field(default_factory=dict)

    def is_alarming(self, taken: sample.Sample) -> bool:
        """Tell whether a value of the sample is past one at which it is to be sent at once."""
        for signal, (limit, falling) in self.alarms.items():
            value = _value_of(taken, signal)
            if value is not None and (value <= limit if falling else value >= limit):
                return True
        return False


def _value_of(taken: sample.Sample, signal: str) -> float | None:
    """Return the number at a signal's path in the sample, or None."""
    found: Any = taken
    for part in signal.split("."):
        found = found.get(part) if isinstance(found, dict) else getattr(found, part, None)
        if found is None:
            return None
    return float(found) if isinstance(found, int | float) else None


class Sender:
    """Keeps the newest samples and sends them to whoever leads."""

    def __init__(
        self,
        identity: Identity,
        address: str,
        open_channel: channel.OpenChannel = channel.open_plaintext,
        backoff: Backoff | None = None,
        accept_seconds: float = ACCEPT_SECONDS,
    ) -> None:
        self._identity = identity
        self._configured = self._address = address
        self._open_channel = open_channel
        self._accept_seconds = accept_seconds
        self._backoff = backoff or Backoff(0.5, 30.0)
        self._kept: collections.deque[tuple[int, float, bytes]] = collections.deque(maxlen=KEPT_SAMPLES)
        self._taken = 0
        self._sent_to = 0
        """The number of samples taken, and of those the current call need not send any more."""
        self._ready = asyncio.Event()
        self._accepted = asyncio.Event()
        self._calls = 0
        self._told = identity
        self._ledger = b""
        self.orders = Orders()
        self.connected = False
        self.sent = 0
        self.dropped = 0
        self.failures = 0

    def offer(self, taken: sample.Sample) -> None:
        """Take a sample to send; never waits. While nobody takes them, the oldest of thirty is dropped."""
        if len(self._kept) == KEPT_SAMPLES and self._kept[0][0] >= self._sent_to:
            self.dropped += 1
        self._kept.append((self._taken, taken.uptime_s or 0.0, sample.encode(taken)))
        self._taken += 1
        if self._taken - self._sent_to >= self.orders.samples_per_message or self.orders.is_alarming(taken):
            self._ready.set()

    def tell(self, facts: bytes) -> None:
        """Say other facts of the node from now on: with the next message, and again in each new call."""
        self._identity = dataclasses.replace(self._identity, facts=facts)
        self._ready.set()

    def enclose(self, ledger: bytes) -> None:
        """Put the node's ledger into the next message; of several that wait, the newest counts."""
        self._ledger = ledger

    async def run(self) -> None:
        """Send until cancelled, reconnecting with a back-off."""
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            try:
                await self._call()
            except (grpc.aio.AioRpcError, TimeoutError) as error:
                channel.end_if_cancelled()
                self.failures += 1
                why = error.details() if isinstance(error, grpc.aio.AioRpcError) else "no answer"
                _log.info("stream to %s: %s", self._address, why)
                self._address = self._configured
            finally:
                self.connected = False
                self._accepted.clear()
            if loop.time() - started > CONNECTED_SECONDS:
                self._backoff.reset()
            await asyncio.sleep(self._backoff.next_seconds())

    async def _call(self) -> None:
        self._calls += 1
        async with self._open_channel(self._address) as opened:
            call = stream_pb2_grpc.StreamStub(opened).Samples(self._messages(self._calls))
            async with asyncio.timeout(self._accept_seconds) as accepting:
                async for downward in call:
                    accepting.reschedule(None)
                    if not downward.rules_version:
                        self._address = downward.leader or self._configured
                        call.cancel()
                        return
                    self._take(downward)
                    self.connected = True
                    self._accepted.set()

    def _take(self, downward: stream_pb2.Downward) -> None:
        self.orders = Orders(
            period_seconds=(downward.period_milliseconds or 1000) / 1000,
            samples_per_message=min(max(downward.samples_per_message, 1), MAX_SAMPLES_PER_MESSAGE),
            rules_version=downward.rules_version,
            alarms={alarm.signal: (alarm.value, alarm.falling) for alarm in downward.alarms},
        )

    async def _messages(self, call: int) -> AsyncIterator[stream_pb2.Upward]:
        yield self._hello()
        await self._accepted.wait()  # until then samples stay here, and not in a connection that may never be
        if call != self._calls:
            return
        # All that is kept goes again: what the last call took may have been lost with it, and a new leader's windows
        # are full at once. The analyzer knows by their time which it has.
        self._sent_to = 0
        self._ready.set()
        while True:
            await self._ready.wait()
            if call != self._calls:
                return  # gRPC still asks on behalf of a call that has ended: these samples are the next one's
            self._ready.clear()
            if self._told != self._identity:
                yield self._hello()
            batch = [
                stream_pb2.Sample(uptime_seconds=uptime, json=encoded)
                for number, uptime, encoded in self._kept
                if number >= self._sent_to
            ]
            self._sent_to = self._taken
            if batch:
                self.sent += len(batch)
                books, self._ledger = self._ledger, b""
                yield stream_pb2.Upward(batch=stream_pb2.Batch(samples=batch, ledger=books))

    def _hello(self) -> stream_pb2.Upward:
        self._told = who = self._identity
        return stream_pb2.Upward(
            hello=stream_pb2.Hello(node=who.node, boot_id=who.boot_id, version=who.version, facts=who.facts)
        )
