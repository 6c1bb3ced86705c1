"""Clients that hold on: on a real server, with limits short enough for a test."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import ClassVar

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from tests.waiting import PATIENCE_SECONDS, until

from cotenant.web.connection import BoundedConnection
from cotenant.web.serving import bind

WHOLE = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"
BIG = b"x" * (16 << 20)


class Quick(BoundedConnection):
    arrival_s = 0.15
    taking_s = 0.15
    lost: ClassVar[list[bool]] = []
    """An entry for each connection that has ended."""

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.lost.append(True)


class Patient(BoundedConnection):
    """Gives time to take an answer; ``stalls`` are what it had ended connections by, had nothing been taken."""

    stalls: ClassVar[list[asyncio.TimerHandle]] = []
    ended: ClassVar[list[bool]] = []

    def pause_writing(self) -> None:
        super().pause_writing()
        assert self._stalled is not None
        self.stalls.append(self._stalled)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.ended.append(self.stalls[-1].cancelled())


async def _application(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the body, or with more than a socket's buffers hold; slower than a request may take to arrive."""
    message = await receive()
    while message.get("more_body"):
        message = await receive()
    await asyncio.sleep(0.3 if scope["path"] == "/slow" else 0)
    body = BIG if scope["path"] == "/big" else b"done"
    length = str(len(body)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    await send({"type": "http.response.body", "body": body})


@contextlib.asynccontextmanager
async def _served(connection: type[BoundedConnection]) -> AsyncIterator[tuple[str, int]]:
    listening = bind("127.0.0.1:0")
    config = uvicorn.Config(_application, http=connection, ws="none", lifespan="off", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    yield listening.getsockname()
    server.should_exit = True
    await asyncio.wait_for(serving, PATIENCE_SECONDS)


@pytest.fixture
async def address() -> AsyncIterator[tuple[str, int]]:
    async with _served(Quick) as found:
        yield found


async def _rest_after(address: tuple[str, int], *parts: bytes, pause_s: float = 0.0) -> bytes:
    """Return everything that comes until the server closes, which it must do."""
    reader, writer = await asyncio.open_connection(*address)
    with contextlib.suppress(ConnectionError):
        for part in parts:
            writer.write(part)
            await asyncio.sleep(pause_s)
            if reader.at_eof() or reader.exception():
                break
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n", WHOLE[:-1]])
async def test_a_request_that_does_not_arrive_ends_its_connection(address: tuple[str, int], sent: bytes) -> None:
    assert await _rest_after(address, sent) == b""


async def test_bytes_one_by_one_do_not_win_time(address: tuple[str, int]) -> None:
    parts = [WHOLE[i : i + 1] for i in range(len(WHOLE))]
    assert await _rest_after(address, *parts, pause_s=0.02) == b""


async def _answered(address: tuple[str, int], *parts: bytes, pause_s: float = 0.0) -> bytes:
    """Return everything that comes to a whole request; sent anew where the machine stops longer than it may take."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (answers := await _rest_after(address, *parts, pause_s=pause_s)):
            continue
    return answers


async def test_the_next_request_of_a_connection_is_bounded_too(address: tuple[str, int]) -> None:
    answers = await _answered(address, WHOLE, WHOLE[:20], pause_s=0.02)
    assert answers.count(b"200 OK") == 1


async def test_an_answer_may_take_longer_than_a_request(address: tuple[str, int]) -> None:
    request = b"GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    assert (await _answered(address, request)).endswith(b"done")


async def test_an_answer_that_nobody_reads_ends_its_connection(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Quick, "lost", [])
    reader, writer = await asyncio.open_connection(*address, limit=1024)
    writer.write(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
    await until(lambda: Quick.lost)
    received = 0
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(PATIENCE_SECONDS):
            while chunk := await reader.read(1 << 20):
                received += len(chunk)
    assert received < len(BIG)
    writer.close()


async def test_an_answer_that_is_read_arrives_whole(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Patient, "stalls", [])
    monkeypatch.setattr(Patient, "ended", [])
    with caplog.at_level(logging.WARNING):
        async with _served(Patient) as address:
            answer = await _rest_after(address, b"GET /big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert answer.endswith(BIG)
    assert not caplog.records
    assert Patient.ended, "it had to wait for its reader"
    assert all(Patient.ended)
