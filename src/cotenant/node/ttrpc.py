"""ttrpc over one socket that is shared by two connections, as the Node Resource Interface asks for it.

The socket carries frames of (connection, length): connection 1 serves us, on connection 2 we are the client. Inside a
connection each message has a header of (length, stream, type, flags). Only unary calls exist here.
"""

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable

from google.protobuf import message

from cotenant.api.v1 import nri_pb2

PLUGIN_CONNECTION, RUNTIME_CONNECTION = 1, 2
REQUEST, RESPONSE = 1, 2
MAX_MESSAGE_BYTES = 4 << 20
"""ttrpc's own limit; a longer message is a broken peer."""
UNIMPLEMENTED = 12

_FRAME = struct.Struct(">II")
_HEADER = struct.Struct(">IIBB")

Serve = Callable[[str, bytes], Awaitable[message.Message | None]]
"""Gets a method's name and payload, returns the answer, or None where the method is not known."""


class ConnectionLost(Exception):
    """The peer has gone, or does not speak ttrpc."""


class Multiplexed:
    """Both ends over one stream. :meth:`run` reads until the peer goes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, serve: Serve) -> None:
        self._reader = reader
        self._writer = writer
        self._serve = serve
        self._buffers = {PLUGIN_CONNECTION: bytearray(), RUNTIME_CONNECTION: bytearray()}
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._next_stream = 1
        self._sending = asyncio.Lock()

    async def call(self, service: str, method: str, request: message.Message, seconds: float) -> bytes:
        """Return the payload of the answer.

        :raises ConnectionLost: if the peer goes, or answers with an error.
        :raises TimeoutError: if it does not answer in time.
        """
        stream, self._next_stream = self._next_stream, self._next_stream + 2  # a client's streams are odd
        waiting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[stream] = waiting
        wrapped = nri_pb2.TtrpcRequest(
            service=service, method=method, payload=request.SerializeToString(), timeout_nano=int(seconds * 1e9)
        )
        try:
            await self._send(RUNTIME_CONNECTION, stream, REQUEST, wrapped)
            async with asyncio.timeout(seconds):
                return await waiting
        finally:
            self._waiting.pop(stream, None)

    async def run(self) -> None:
        """Serve and take answers until the peer goes.

        :raises ConnectionLost: when it does.
        """
        lost = ""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    connection, length = _FRAME.unpack(await self._reader.readexactly(_FRAME.size))
                    if connection not in self._buffers or length > MAX_MESSAGE_BYTES + _HEADER.size:
                        raise ConnectionLost(f"frame of {length} bytes on connection {connection}")
                    buffer = self._buffers[connection]
                    buffer += await self._reader.readexactly(length)
                    for stream, kind, payload in _messages(buffer):
                        if connection == PLUGIN_CONNECTION and kind == REQUEST:
                            tasks.create_task(self._answer(stream, payload))
                        elif connection == RUNTIME_CONNECTION and kind == RESPONSE:
                            self._settle(stream, payload)
        except* (asyncio.IncompleteReadError, OSError, message.DecodeError, ConnectionLost) as group:
            lost = str(group.exceptions[0]) or type(group.exceptions[0]).__name__
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionLost(lost))
        raise ConnectionLost(lost)

    def _settle(self, stream: int, payload: bytes) -> None:
        waiting = self._waiting.get(stream)
        if waiting is None or waiting.done():
            return
        answer = nri_pb2.TtrpcResponse.FromString(payload)
        if answer.status.code:
            waiting.set_exception(ConnectionLost(answer.status.message or f"status {answer.status.code}"))
        else:
            waiting.set_result(answer.payload)

    async def _answer(self, stream: int, payload: bytes) -> None:
        request = nri_pb2.TtrpcRequest.FromString(payload)
        answer = nri_pb2.TtrpcResponse()
        made = await self._serve(request.method, request.payload)
        if made is None:
            answer.status.code, answer.status.message = UNIMPLEMENTED, f"no method {request.method}"
        else:
            answer.payload = made.SerializeToString()
        with contextlib.suppress(OSError):  # the reader notices too, and ends the connection
            await self._send(PLUGIN_CONNECTION, stream, RESPONSE, answer)

    async def _send(self, connection: int, stream: int, kind: int, value: message.Message) -> None:
        body = value.SerializeToString()
        whole = _HEADER.pack(len(body), stream, kind, 0) + body
        async with self._sending:
            self._writer.write(_FRAME.pack(connection, len(whole)) + whole)
            await self._writer.drain()


def _messages(buffer: bytearray) -> list[tuple[int, int, bytes]]:
    """Take the whole messages off a connection's buffer: (stream, type, payload) each."""
    found = []
    while len(buffer) >= _HEADER.size:
        length, stream, kind, _ = _HEADER.unpack_from(buffer)
        if length > MAX_MESSAGE_BYTES:
            raise ConnectionLost(f"message of {length} bytes")
        if len(buffer) < _HEADER.size + length:
            break
        found.append((stream, kind, bytes(buffer[_HEADER.size : _HEADER.size + length])))
        del buffer[: _HEADER.size + length]
    return found
