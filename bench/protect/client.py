"""An open-loop HTTP client: requests leave on a fixed timetable whatever the answers do, and each latency counts from
the time at which its request was due. So a server that stops for a second is charged for every request of that second
(no coordinated omission).

``python client.py HOST PORT PATH RATE`` prints one line of JSON a second: ``{"t": …, "due": n, "latency_usec": […]}``.
"""

import asyncio
import contextlib
import json
import os
import sys
import time

CONNECTIONS_MAX = 512
TIMEOUT_SECONDS = 20.0


class Client:
    def __init__(self, host: str, port: int, path: str) -> None:
        self._host, self._port = host, port
        self._request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept-Encoding: gzip\r\n\r\n".encode()
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._open = 0
        self.done: list[int] = []
        self.failed = 0

    async def request(self, due: float) -> None:
        """Send one request that was due at a time, and note how long after it the answer was complete."""
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                connection = self._free.pop() if self._free else await self._connect()
                await self._exchange(*connection)
                self._free.append(connection)
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            self.failed += 1
            self.done.append(int(TIMEOUT_SECONDS * 1e6))
            return
        self.done.append(int((time.monotonic() - due) * 1e6))

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._open >= CONNECTIONS_MAX:
            raise OSError("too many connections")
        self._open += 1
        return await asyncio.open_connection(self._host, self._port)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self._request)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise ValueError(head[:40])
        lines = [line.lower() for line in head.split(b"\r\n")]
        length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), None)
        if length is not None:
            await reader.readexactly(length)
            return
        while size := int(await reader.readline(), 16):
            await reader.readexactly(size + 2)
        await reader.readexactly(2)


async def drive(host: str, port: int, path: str, rate: float) -> None:
    client, pending, number = Client(host, port, path), set(), 0
    start = time.monotonic()
    told = 0.0
    while True:
        due = start + number / rate
        number += 1
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        task = asyncio.create_task(client.request(due))
        pending.add(task)
        task.add_done_callback(pending.discard)
        if due - start - told >= 1.0:
            told = due - start
            done, client.done = client.done, []
            print(json.dumps({"t": time.monotonic(), "failed": client.failed, "latency_usec": done}), flush=True)


if __name__ == "__main__":
    with contextlib.suppress(OSError):
        # The client stands for other machines: it must not wait for a CPU of this one.
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    asyncio.run(drive(sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])))
