"""Waiting for what another task or process does, and ending tasks.

A wait costs nothing once what it waits for has come: its deadline is for a machine that stops for a minute.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable

PATIENCE_SECONDS = 180.0


def await_true(
    condition: Callable[[], object],
    what: str,
    seconds: float = PATIENCE_SECONDS,
    *,
    said: Callable[[], str] = lambda: "",
    pause_seconds: float = 0.02,
) -> None:
    """Wait for another process; a file that it has not made, or has removed, counts as not yet.

    ``said`` is what a wait in vain shows: the end of what the other process has printed.
    """
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(FileNotFoundError):
            if condition():
                return
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s: {what}\n{said()}"
        time.sleep(pause_seconds)


async def until(condition: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for another task."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


async def turns(number: int = 20) -> None:
    """Give every task of this loop, and what it has at its sockets, so many turns.

    What moves a clock on by itself awaits them: on a slow machine it would overtake those who go by that clock.
    """
    for _ in range(number):
        await asyncio.sleep(0)


async def ended(*tasks: "asyncio.Task[None]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
