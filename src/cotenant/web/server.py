"""The HTTP server: one event loop in the main thread, told to stop from outside."""

import asyncio
import socket
from collections.abc import Callable

from cotenant.web import serving
from cotenant.web.application import Site
from cotenant.web.feed import Moment

CONCURRENCY_LIMIT = 128
"""Connections at once; more are answered 503."""

STOP_TIMEOUT_SECONDS = 2


class WebServer:
    """Serves a site on a bound socket until :meth:`stop`."""

    def __init__(self, site: Site, listening: socket.socket) -> None:
        self._site = site
        self._listening = listening
        config = serving.configuration(
            site.application, concurrency=CONCURRENCY_LIMIT, shutdown_seconds=STOP_TIMEOUT_SECONDS
        )
        self._server = serving.Server(config)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def serve(self, started: Callable[[], None]) -> None:
        """Serve until stopped; ``started`` is called once requests are answered."""
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(started)
        await self._server.serve(sockets=[self._listening])
        self._loop = None

    def publish(self, moment: Moment) -> None:
        """Hand over a tick; may be called from any thread."""
        loop = self._loop
        if loop is not None and not self._server.should_exit:
            loop.call_soon_threadsafe(self._site.publish, moment)

    def stop(self) -> None:
        """End the streams, then the server; call it in the event loop's thread."""
        self._site.broadcast.close()
        self._server.should_exit = True
