"""How a program ends: SIGTERM or SIGINT cancels its work, which then puts away what it holds."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


async def until_told(work: Coroutine[Any, Any, None]) -> None:
    """Do the work until it ends by itself or the process is told to end; an error of the work is raised."""
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, ending.set)
    working = asyncio.ensure_future(work)
    waiting = asyncio.create_task(ending.wait())
    try:
        done, _ = await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if working in done:
            working.result()
    finally:
        for task in (working, waiting):
            task.cancel()
        await asyncio.gather(working, waiting, return_exceptions=True)
        for number in SIGNALS:
            loop.remove_signal_handler(number)
