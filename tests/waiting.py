"""Waiting for what another task or process does, and ending tasks."""

import asyncio
import contextlib
import time
from collections.abc import Callable


def await_true(condition: Callable[[], object], what: str, seconds: float = 20.0) -> None:
    """Wait for another process; a file that it has not made, or has removed, counts as not yet."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(FileNotFoundError):
            if condition():
                return
        assert time.monotonic() < deadline, f"waited {seconds} s: {what}"
        time.sleep(0.02)


async def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait for another task."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


async def ended(*tasks: "asyncio.Task[None]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
