"""Asking a server that a test has started."""

import contextlib
import http.client
import json
import random
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from tests.waiting import PATIENCE_SECONDS, await_true

PORTS = range(20_000, 32_000)
"""Below those that the kernel gives to whoever asks for any, so that nobody gets one by chance."""


def get(host: str, port: int, path: str) -> tuple[int, str]:
    """Return the status and the text that a path answers with, over a connection of its own."""
    connection = http.client.HTTPConnection(host, port, timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def posted(host: str, path: str, body: bytes | str) -> tuple[int, bytes]:
    """Return the status and the body that a JSON body is answered with, by a server whose workers come and go.

    A worker that a slow machine kept from running is ended, and its connections with it; the next one answers.
    """
    found: list[tuple[int, bytes]] = []

    def asked() -> bool:
        connection = http.client.HTTPConnection(host, timeout=PATIENCE_SECONDS)
        with contextlib.closing(connection), contextlib.suppress(ConnectionError):
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            found.append((answer.status, answer.read()))
        return bool(found)

    await_true(asked, f"an answer from {host}{path}")
    return found[0]


def answered(url: str, said: Callable[[], str] = lambda: "") -> Any:
    """Return the JSON that an address answers with, once it does not say 503: no sample yet, or a disk that hangs."""
    found: list[Any] = []

    def asked() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
                found.append(json.load(answer))
        except urllib.error.HTTPError as error:
            with error:
                if error.code != http.HTTPStatus.SERVICE_UNAVAILABLE:
                    raise
        return bool(found)

    await_true(asked, f"an answer from {url}", said=said, pause_seconds=0.1)
    return found[0]


def free_port() -> int:
    """Return a port of loopback that nobody listens on, for a program that must be told one."""
    while True:
        port = random.SystemRandom().choice(PORTS)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
