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
from cotenant.scheduler.server import BodyReader, Endpoints
from cotenant.scheduler.source import Source
from cotenant.units.clock import Clock
from cotenant.units.errors import CotenantError
from cotenant.web.connection import BoundedConnection

BACKLOG = 2048
"""Volcano opens a new connection for about every second request, sixteen at a time."""
KEEP_ALIVE_SECONDS = 120
"""Longer than the 90 s after which Go's client drops an idle connection: it must be the one to close."""
SHUTDOWN_SECONDS = 2


class BadListen(CotenantError):
    """An address that cannot be listened on."""


def split_address(listen: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT`` (``[::1]:80`` too).

    :raises BadListen: if it is something else.
    """
    host, colon, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise BadListen(f"--listen {listen}: not HOST:PORT, for example 127.0.0.1:8088")
    return host, int(port)


def bind(listen: str) -> socket.socket:
    """Return a listening socket.

    :raises BadListen: if the address is malformed or cannot be bound.
    """
    host, port = split_address(listen)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise BadListen(f"--listen {listen}: {error.strerror or error}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise BadListen(f"--listen {listen}: {error.strerror}; choose another address or port") from None
    return listener


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
) -> None:
    """Answer until the process is told to end; ``started`` gets the URL once connections are accepted."""
    metrics = Metrics()
    metrics.watch(source, clock)
    extender = Extender(source, rules, clock, metrics)
    config = uvicorn.Config(
        Endpoints(extender, reader).application(),
        http=Connection,
        ws="none",
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        server_header=False,
    )
    server = _Server(config)
    host, port = listener.getsockname()[:2]
    started(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
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
