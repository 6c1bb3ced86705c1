"""What a server does with the connections that it accepts."""

import asyncio
import socket

from tests.waiting import PATIENCE_SECONDS


async def without_delay(listener: socket.socket) -> bool:
    """Return whether what asyncio writes to a connection of this listener is sent at once (no Nagle's delay)."""
    accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found = writer.get_extra_info("socket")
        accepted.set_result(found.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async with await asyncio.start_server(connected, sock=listener):
        _, writer = await asyncio.open_connection(*listener.getsockname()[:2])
        writer.close()
        return bool(await asyncio.wait_for(accepted, PATIENCE_SECONDS))
