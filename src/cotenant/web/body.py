"""Requests' bodies, within bounds: of one, and of all that are being read."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from starlette.requests import Request

DISCARDED_BODIES = 8
"""How much of a body that is too large is read before it is refused, in bodies of the largest size."""
DISCARD_SECONDS = 5.0
QUIET_SECONDS = 0.3
"""A client that sends nothing for as long waits for the answer."""


class RefusedRequest(Exception):
    """A request that is answered with a status and one line of text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class BodyReader:
    """Reads bodies within the two bounds."""

    def __init__(self, max_body_bytes: int, max_inflight_bytes: int) -> None:
        self.max_body_bytes = max_body_bytes
        self.max_inflight_bytes = max(max_inflight_bytes, max_body_bytes)
        self.inflight_bytes = 0

    async def read(self, request: Request) -> bytes:
        """Return the whole body.

        :raises RefusedRequest: if it is not JSON by its content type, or too large, or too much is being read already.
        """
        content_type = request.headers.get("content-type", "application/json").split(";")[0].strip().lower()
        if content_type != "application/json":
            raise RefusedRequest(415, f"content type {content_type[:80]!r}: send application/json")
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise RefusedRequest(415, "content encoding: send the body as it is")
        stream = request.stream()
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > self.max_body_bytes:
            await self._discard(stream)
            raise RefusedRequest(413, self._too_large())
        chunks: list[bytes] = []
        size = 0
        try:
            async for chunk in stream:
                size += len(chunk)
                self.inflight_bytes += len(chunk)
                if size > self.max_body_bytes:
                    chunks.clear()
                    await self._discard(stream)
                    raise RefusedRequest(413, self._too_large())
                if self.inflight_bytes > self.max_inflight_bytes:
                    raise RefusedRequest(429, f"{self.max_inflight_bytes} bytes of requests are being read already")
                chunks.append(chunk)
        finally:
            self.inflight_bytes -= size
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def _discard(self, stream: AsyncIterator[bytes]) -> None:
        """Read on without keeping, up to a bound: a client that is still sending would not see the answer."""
        left = self.max_body_bytes * DISCARDED_BODIES
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_SECONDS):
                while left >= 0:
                    async with asyncio.timeout(QUIET_SECONDS):
                        chunk = await anext(stream, None)
                    if chunk is None:
                        return
                    left -= len(chunk)

    def _too_large(self) -> str:
        return f"request body: larger than {self.max_body_bytes} bytes"
