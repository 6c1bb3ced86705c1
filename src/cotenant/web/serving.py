"""A server inside a program that has more to do: bound before anything starts, ended by cancellation."""

import contextlib
import errno
import socket
import time
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from cotenant.units import address
from cotenant.web.connection import BoundedConnection

BACKLOG = 2048
"""Volcano opens a new connection for about every second request, sixteen at a time."""
CONCURRENCY_LIMIT = 64
"""Connections at once; more are answered 503."""
RETRY_SECONDS = 0.02


def bind(listen: str, option: str = "--listen", patience_seconds: float = 0.0) -> socket.socket:
    """Return a listening socket; ``option`` is where its address was given.

    An address in use is tried for so long, for those whose killed predecessor may be about to leave it.

    :raises BadAddress: if the address is malformed or cannot be bound.
    """
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            return _bind_once(listen, option)
        except _InUse:
            if time.monotonic() >= deadline:
                raise
        time.sleep(RETRY_SECONDS)


class _InUse(address.BadAddress):
    """Something else listens there."""


def _bind_once(listen: str, option: str) -> socket.socket:
    host, port = address.split(listen, option)
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise address.BadAddress(f"{option} {listen}: {error.strerror or error}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        refused = _InUse if error.errno == errno.EADDRINUSE else address.BadAddress
        raise refused(f"{option} {listen}: {error.strerror}; choose another address or port") from None
    return listener


def url_of(listener: socket.socket, scheme: str = "http") -> str:
    """Return the URL of what a listening socket serves."""
    return f"{scheme}://{address.join(*listener.getsockname()[:2])}"


class Server(uvicorn.Server):
    """uvicorn, without its own signal handlers: the program has them."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def configuration(
    application: ASGIApp,
    *,
    concurrency: int | None = CONCURRENCY_LIMIT,
    keep_alive_seconds: int = 10,
    shutdown_seconds: int = 1,
    connection: type[BoundedConnection] = BoundedConnection,
) -> uvicorn.Config:
    """Return how every server of ours serves: bounded, silent, HTTP/1.1 and nothing else."""
    return uvicorn.Config(
        application,
        http=connection,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=concurrency,
        timeout_keep_alive=keep_alive_seconds,
        timeout_graceful_shutdown=shutdown_seconds,
    )


async def serve(application: ASGIApp, listener: socket.socket) -> None:
    """Serve an application over plain HTTP until cancelled."""
    await Server(configuration(application)).serve(sockets=[listener])
