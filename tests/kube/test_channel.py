"""What both ends of the analyzer's connections rely on."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc.aio
import pytest
from tests.waiting import PATIENCE_SECONDS

from cotenant.kube import channel
from cotenant.kube.client import Client
from cotenant.manager.overcommit.feed import Feed
from cotenant.node.sending import Identity, Sender
from cotenant.units.clock import ManualClock


class BeginningChannel:
    """A channel as gRPC's is in the moment in which a call begins: a call that is cancelled then fails instead."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def __aenter__(self) -> "BeginningChannel":
        return self

    async def __aexit__(self, *exception: object) -> None:
        return

    def stream_stream(self, *_: object, **__: object) -> Callable[..., AsyncIterator[Any]]:
        return lambda *_: self._failing()

    unary_stream = stream_stream

    async def _failing(self) -> AsyncIterator[Any]:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            nothing = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing, "refused") from None
        yield


async def ends(run: Any, opened: BeginningChannel) -> bool:
    """Cancel in the middle of a call; return whether that was an end."""
    task = asyncio.create_task(run)
    await asyncio.wait_for(opened.asked.wait(), PATIENCE_SECONDS)
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=PATIENCE_SECONDS)
    task.cancel()
    return task in done and task.cancelled()


async def test_who_sends_samples_ends_when_told_to() -> None:
    opened = BeginningChannel()
    assert await ends(Sender(Identity("n1"), "127.0.0.1:1", lambda _: opened).run(), opened)  # type: ignore[arg-type, return-value]


async def test_who_reads_what_nodes_use_ends_when_told_to(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = BeginningChannel()
    monkeypatch.setattr(channel, "opener", lambda *_: lambda address: opened)
    peer = channel.Peer(address="127.0.0.1:1")
    assert await ends(Feed(client, "tests", ManualClock(), analyzer=peer).run(), opened)
