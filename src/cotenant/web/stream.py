"""Server-sent events: one event a tick to a bounded number of clients; a client that does not keep up is dropped."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from starlette.types import Receive, Scope, Send

from cotenant.web.answer import refusal

CLIENTS_LIMIT = 32
QUEUE_LIMIT = 5
"""Events that wait for one client. One more, and it is dropped; it reconnects by itself and loses nothing it needs."""

SEND_TIMEOUT_SECONDS = 10.0

Event = bytes


class Client:
    """One listener: its waiting events, and whether it was told to go."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[Event | None] = asyncio.Queue(QUEUE_LIMIT)


class Broadcast:
    """Hands events to clients. Everything runs in the event loop's thread."""

    def __init__(self, clients_limit: int = CLIENTS_LIMIT, send_timeout_s: float = SEND_TIMEOUT_SECONDS) -> None:
        self._clients: set[Client] = set()
        self._clients_limit = clients_limit
        self._send_timeout_s = send_timeout_s
        self._closed = False
        self.dropped = 0

    @property
    def clients(self) -> int:
        """How many listen now."""
        return len(self._clients)

    def publish(self, event: Event) -> None:
        """Give an event to every client; drop those whose queue is full."""
        for client in list(self._clients):
            try:
                client.events.put_nowait(event)
            except asyncio.QueueFull:
                self._drop(client)

    def close(self) -> None:
        """End every stream and refuse new ones."""
        self._closed = True
        for client in list(self._clients):
            self._drop(client, count=False)

    def _drop(self, client: Client, *, count: bool = True) -> None:
        self._clients.discard(client)
        while not client.events.empty():
            client.events.get_nowait()
        client.events.put_nowait(None)
        self.dropped += count

    async def serve(self, scope: Scope, receive: Receive, send: Send, first: Callable[[], Awaitable[Event]]) -> None:
        """Answer one request with the event that ``first`` returns and every event after it."""
        if self._closed or len(self._clients) >= self._clients_limit:
            await refusal(503, f"{self._clients_limit} pages are open already")(scope, receive, send)
            return
        client = Client()
        self._clients.add(client)
        leaving = asyncio.create_task(_gone(receive))
        sending = asyncio.create_task(self._sending(client, send, await first()))
        try:
            await asyncio.wait({leaving, sending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._clients.discard(client)
            for task in (leaving, sending):
                task.cancel()
            results = await asyncio.gather(leaving, sending, return_exceptions=True)
            if any(isinstance(result, TimeoutError) for result in results):
                self.dropped += 1

    async def _sending(self, client: Client, send: Send, first: Event) -> None:
        headers = [
            (b"content-type", b"text/event-stream"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        event: Event | None = first
        while event is not None:
            async with asyncio.timeout(self._send_timeout_s):
                await send({"type": "http.response.body", "body": event, "more_body": True})
            event = await client.events.get()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._send_timeout_s):
                await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


def event_of(name: str, data: bytes) -> Event:
    """Return one event whose data is a line of JSON."""
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"
