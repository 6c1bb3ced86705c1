"""The serving process: one event loop that answers, and keeps the table."""

import asyncio
import contextlib
import gc
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn

from cotenant.scheduler.extender import Extender
from cotenant.scheduler.metrics import Metrics
from cotenant.scheduler.rules import Rules
from cotenant.scheduler.server import Endpoints
from cotenant.scheduler.source import Source
from cotenant.units.clock import Clock
from cotenant.web import serving
from cotenant.web.body import BodyReader
from cotenant.web.connection import BoundedConnection
from cotenant.web.guard import AllowedHosts

KEEP_ALIVE_SECONDS = 120
"""Longer than the 90 s after which Go's client drops an idle connection: it must be the one to close."""
SHUTDOWN_SECONDS = 2


class Connection(BoundedConnection):
    """One connection of a scheduler, or of whoever holds on to one; a large request may take a while on a busy node."""

    arrival_s = 30.0


class _Server(uvicorn.Server):
    """A server that leaves the signals to us: uvicorn would end the process by the signal, with a status of failure."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)


@contextlib.contextmanager
def still_heap() -> Iterator[None]:
    """Keep the garbage collector from walking the table and the modules in the middle of an answer."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


async def serve(
    source: Source,
    rules: Rules,
    listener: socket.socket,
    clock: Clock,
    reader: BodyReader,
    started: Callable[[str], None],
    restarts: int = 0,
) -> None:
    """Answer until the process is told to end; ``started`` gets the URL once connections are accepted."""
    metrics = Metrics(restarts)
    metrics.watch(source, clock)
    extender = Extender(source, rules, clock, metrics)
    config = serving.configuration(
        Endpoints(extender, reader, AllowedHosts(listener.getsockname()[0])).application(),
        concurrency=None,
        keep_alive_seconds=KEEP_ALIVE_SECONDS,
        shutdown_seconds=SHUTDOWN_SECONDS,
        connection=Connection,
    )
    server = _Server(config)
    started(serving.url_of(listener))
    keeping = asyncio.create_task(source.keep())
    keeping.add_done_callback(lambda task: None if task.cancelled() else _end(server))
    try:
        with still_heap():
            await server.serve(sockets=[listener])
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping


def _end(server: uvicorn.Server) -> None:
    """End the process when the table is no longer kept, rather than answer from what grows old; a new one starts."""
    server.should_exit = True
