"""Worker processes that are ended when they hang, and started again.

Schedulers wait for a hung extender at every call, while a refused or ended one costs nothing. The parent holds the
listening socket, imports everything once and does nothing else than wait for heartbeats, so that a new worker answers
some ten milliseconds after the old one was ended.
"""

import asyncio
import contextlib
import dataclasses
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Awaitable, Callable

from cotenant.kernel import paths

_log = logging.getLogger(__name__)

BEAT_SECONDS = 0.05
HUNG_SECONDS = 0.2
"""Without a heartbeat for so long, at two looks, a worker hangs that does not want the processor: stopped, or blocked.
"""
BUSY_SECONDS = 2.0
"""A worker that computes for longer than this without a heartbeat hangs, too; a large request takes less."""
START_SECONDS = 30.0
"""From the start to the first heartbeat."""
LOOK_SECONDS = 0.05
STOP_SECONDS = 4.0
FAST_SECONDS = 1.0
FAST_WAIT_SECONDS = 1.0
"""A worker that ended by itself within the first is started again after the second."""

Work = Callable[[int], Awaitable[None]]
"""Gets the number of earlier starts."""


@dataclasses.dataclass(slots=True)
class Worker:
    """One process: what it does, and for how long it may be silent."""

    name: str
    work: Work
    hung_seconds: float = HUNG_SECONDS
    pid: int = 0
    beats: int = -1
    starts: int = 0
    started_at: float = 0.0
    beat_at: float = 0.0
    has_beaten: bool = False
    suspect: bool = False
    wait_until: float = 0.0


async def _beating(pipe: int) -> None:
    """Write heartbeats until the parent is gone."""
    while True:
        try:
            os.write(pipe, b".")
        except BlockingIOError:
            pass  # the parent is behind; it counts what is there
        except OSError:
            os.kill(os.getpid(), signal.SIGTERM)
            return
        await asyncio.sleep(BEAT_SECONDS)


async def _worker(work: Work, earlier: int, pipe: int) -> None:
    beating = asyncio.create_task(_beating(pipe))
    working = asyncio.ensure_future(work(earlier))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, working.cancel)
    try:
        await working
    except asyncio.CancelledError:
        pass  # told to end
    finally:
        beating.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await beating


def _wants_processor(pid: int) -> bool:
    """Tell whether a process runs or waits for its turn; on a busy machine that may take long, and is no hang."""
    try:
        text = (paths.Root().proc / str(pid) / "stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[:1] == ["R"]


class Supervisor:
    """Runs workers until told to end. Call from a process with one thread and no event loop."""

    def __init__(self, workers: list[Worker], clock: Callable[[], float] = time.monotonic) -> None:
        self._workers = workers
        self._clock = clock
        self._ending = False
        self._status = 0

    def run(self) -> int:
        """Return the exit status: 0 after SIGTERM or SIGINT, else that of a worker which ended in its first second."""
        handlers = {number: signal.signal(number, self._end) for number in (signal.SIGTERM, signal.SIGINT)}
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        try:
            while not self._ending:
                self._look(woken)
            self._stop()
        finally:
            signal.set_wakeup_fd(-1)
            os.close(wake)
            os.close(woken)
            for number, handler in handlers.items():
                signal.signal(number, handler)
        return self._status

    def _end(self, number: int, frame: object) -> None:
        self._ending = True

    def _look(self, woken: int) -> None:
        for worker in self._workers:
            if not worker.pid and self._clock() >= worker.wait_until:
                self._start(worker)
        asked = self._clock()
        beats = {worker.beats: worker for worker in self._workers if worker.pid}
        ready, _, _ = select.select([woken, *beats], [], [], LOOK_SECONDS)
        now = self._clock()
        if now - asked > 2 * LOOK_SECONDS:
            # We were kept from running ourselves; that says nothing of the workers.
            for worker in beats.values():
                worker.beat_at += now - asked
        for pipe in ready:
            if pipe == woken:
                os.read(woken, 4096)
            elif os.read(pipe, 4096):
                beats[pipe].beat_at = now
                beats[pipe].has_beaten, beats[pipe].suspect = True, False
        for worker in beats.values():
            self._check(worker, now)

    def _start(self, worker: Worker) -> None:
        reading, writing = os.pipe()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            self._run_worker(worker, reading, writing)
        os.close(writing)
        now = self._clock()
        worker.pid, worker.beats, worker.started_at, worker.beat_at = pid, reading, now, now
        worker.has_beaten = worker.suspect = False
        worker.starts += 1

    def _run_worker(self, worker: Worker, reading: int, writing: int) -> None:
        """Work in the child, which never returns."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent passes it on
            os.close(reading)
            os.set_blocking(writing, False)
            asyncio.run(_worker(worker.work, worker.starts, writing))
            status = 0
        except BaseException as error:  # noqa: BLE001 - the outermost place of this process
            status = _tell(error)
        finally:
            sys.stdout.flush()
            os._exit(status)

    def _check(self, worker: Worker, now: float) -> None:
        pid, status = os.waitpid(worker.pid, os.WNOHANG)
        if pid:
            self._ended(worker, os.waitstatus_to_exitcode(status), now)
            return
        silent = now - worker.beat_at
        if silent < (worker.hung_seconds if worker.has_beaten else START_SECONDS):
            worker.suspect = False
            return
        patience = max(BUSY_SECONDS, worker.hung_seconds)
        if worker.has_beaten and silent < patience and _wants_processor(worker.pid):
            return
        if not worker.suspect:
            worker.suspect = True  # a heartbeat that came while we were waiting for our own turn is seen first
            return
        name = f"{worker.name} (process {worker.pid})"
        _log.warning("%s gave no sign of life for %.2f s: ended, started again", name, silent)
        os.kill(worker.pid, signal.SIGKILL)
        os.waitpid(worker.pid, 0)
        self._forget(worker)

    def _ended(self, worker: Worker, code: int, now: float) -> None:
        self._forget(worker)
        if self._ending:
            return
        if worker.starts == 1 and code > 0 and now - worker.started_at < FAST_SECONDS:
            self._status, self._ending = code, True  # wrong settings: said once, not for ever
            return
        if now - worker.started_at < FAST_SECONDS:
            worker.wait_until = now + FAST_WAIT_SECONDS
        _log.warning("%s ended with status %d: started again", worker.name, code)

    def _forget(self, worker: Worker) -> None:
        os.close(worker.beats)
        worker.pid, worker.beats = 0, -1

    def _stop(self) -> None:
        running = [worker for worker in self._workers if worker.pid]
        for worker in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGTERM)
                os.kill(worker.pid, signal.SIGCONT)
        deadline = self._clock() + STOP_SECONDS
        while running and self._clock() < deadline:
            for worker in list(running):
                if os.waitpid(worker.pid, os.WNOHANG)[0]:
                    running.remove(worker)
            time.sleep(0.01)
        for worker in running:
            os.kill(worker.pid, signal.SIGKILL)
            os.waitpid(worker.pid, 0)


def _tell(error: BaseException) -> int:
    """Say what ended a worker, and return its exit status."""
    from cotenant.units.errors import CotenantError

    if isinstance(error, BaseExceptionGroup):
        return max((_tell(one) for one in error.exceptions), default=1)
    if isinstance(error, CotenantError):
        sys.stderr.write(f"cotenant: {error}\n")
        return error.exit_status
    if isinstance(error, KeyboardInterrupt | asyncio.CancelledError):
        return 0
    _log.error("a worker failed", exc_info=error)
    return 1
