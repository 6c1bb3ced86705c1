import asyncio
import os
import signal

import pytest

from cotenant.kube import ending


@pytest.mark.parametrize("number", ending.SIGNALS)
async def test_a_signal_cancels_the_work_and_lets_it_finish_what_it_must(number: signal.Signals) -> None:
    done: list[str] = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            done.append("put away")

    await ending.until_told(work())
    assert done == ["put away"]
    assert signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)


async def test_an_error_of_the_work_is_raised() -> None:
    async def work() -> None:
        raise ValueError("the work's own")

    with pytest.raises(ValueError, match="own"):
        await ending.until_told(work())


async def test_work_that_ends_by_itself_ends_it() -> None:
    await ending.until_told(asyncio.sleep(0))
