import asyncio
import json
from typing import Any

import pytest
from tests.waiting import PATIENCE_SECONDS, until

from cotenant.web.stream import QUEUE_LIMIT, Broadcast, event_of


class Peer:
    """One ASGI client. ``blocked``: the socket takes nothing more, like a page in a suspended laptop."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.blocked = asyncio.Event()
        self.left = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        if self.blocked.is_set():
            await asyncio.Event().wait()
        self.messages.append(message)

    @property
    def text(self) -> str:
        return b"".join(message.get("body", b"") for message in self.messages).decode()


async def first() -> bytes:
    return event_of("tick", b"{}")


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def open_stream(broadcast: Broadcast, peer: Peer) -> "asyncio.Task[None]":
    return asyncio.create_task(broadcast.serve({"type": "http"}, peer.receive, peer.send, first))


async def test_events_arrive_in_order_and_the_client_is_forgotten_when_it_leaves() -> None:
    broadcast, peer = Broadcast(), Peer()
    task = open_stream(broadcast, peer)
    await settled()
    broadcast.publish(event_of("tick", b'{"n":1}'))
    await settled()
    assert peer.text == 'event: tick\ndata: {}\n\nevent: tick\ndata: {"n":1}\n\n'
    assert broadcast.clients == 1
    peer.left.set()
    await asyncio.wait_for(task, PATIENCE_SECONDS)
    assert broadcast.clients == 0
    assert broadcast.dropped == 0


async def test_a_client_that_does_not_keep_up_is_dropped() -> None:
    broadcast, slow, quick = Broadcast(send_timeout_s=0.05), Peer(), Peer()
    tasks = [open_stream(broadcast, slow), open_stream(broadcast, quick)]
    await settled()
    slow.blocked.set()
    for number in range(QUEUE_LIMIT + 3):
        broadcast.publish(event_of("tick", json.dumps({"n": number}).encode()))
        await settled()
    assert broadcast.clients == 1
    assert broadcast.dropped >= 1
    assert f'{{"n": {QUEUE_LIMIT + 2}}}' in quick.text
    await asyncio.wait_for(tasks[0], PATIENCE_SECONDS)
    broadcast.close()
    await asyncio.wait_for(tasks[1], PATIENCE_SECONDS)


async def test_clients_are_bounded() -> None:
    broadcast = Broadcast(clients_limit=1)
    one, two = Peer(), Peer()
    task = open_stream(broadcast, one)
    await settled()
    await open_stream(broadcast, two)
    assert two.messages[0]["status"] == 503
    broadcast.close()
    await asyncio.wait_for(task, PATIENCE_SECONDS)
    assert one.messages[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


async def test_closing_ends_streams_and_refuses_new_ones() -> None:
    broadcast, peer = Broadcast(), Peer()
    broadcast.close()
    await open_stream(broadcast, peer)
    assert peer.messages[0]["status"] == 503


@pytest.mark.parametrize("hurt_now", [False, True])
async def test_an_event_holds_only_the_parts_that_changed(site, feed, hurt_now: bool) -> None:  # type: ignore[no-untyped-def]
    peer = Peer()
    task = asyncio.create_task(site.broadcast.serve({"type": "http"}, peer.receive, peer.send, site.first_event))
    await until(lambda: peer.text.count("\n\n"))
    whole = json.loads(peer.text.split("data: ", 1)[1])
    assert set(whole["html"]) == {
        "now",
        "services",
        "groups",
        "incidents",
        "protection",
        "ledger",
        "unavailable",
        "agent",
    }
    assert whole["values"]["block.p99_usec"] == 65000
    for expected in (1, 2):
        site.publish(feed.moment)
        await until(lambda wanted=expected: peer.text.count("\n\n") > wanted)
    last = json.loads(peer.text.rstrip().rsplit("data: ", 1)[1])
    assert last["html"] == {}
    site.broadcast.close()
    await asyncio.wait_for(task, PATIENCE_SECONDS)
