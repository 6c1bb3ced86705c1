"""A connection that a client cannot hold for ever: a request arrives, and its answer is taken, within a time.

uvicorn bounds the time between two requests only. A client that sends a request byte by byte, or does not read the
answer, would keep its place among the bounded number of connections, and a few of them would shut out everybody.
"""

import asyncio

import h11
from uvicorn.protocols.http import h11_impl

ARRIVAL_SECONDS = 10.0
TAKING_SECONDS = 30.0


class BoundedConnection(h11_impl.H11Protocol):
    """One HTTP/1.1 connection; ended when a request has not arrived, or written bytes are not taken, in time."""

    arrival_s = ARRIVAL_SECONDS
    """From the first byte of a request (for the first one: from the connection) to its last."""
    taking_s = TAKING_SECONDS
    """How long written bytes may wait for a client that does not read."""

    _arriving: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._follow_arrival()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._follow_arrival()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_arrival()
        self._stop_stall()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(self.taking_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_stall()

    def _follow_arrival(self) -> None:
        """Have the time run while a request is incomplete."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._stop_arrival()
        elif self._arriving is None:
            self._arriving = self.loop.call_later(self.arrival_s, self.transport.close)

    def _stop_arrival(self) -> None:
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None

    def _stop_stall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
