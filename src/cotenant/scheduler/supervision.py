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

from cotenant.kernel import paths, tasks
from cotenant.units.errors import CotenantError

_log = logging.getLogger(__name__)

BEAT_SECONDS = 0.05
HUNG_SECONDS = 0.2
"""Without a heartbeat for so long, at two looks, a worker hangs that wants neither processor nor disk: it was stopped,
or waits for something that does not come."""
BUSY_SECONDS = 2.0
"""So much processor time without a heartbeat is a hang, too: a large request takes less. Time in which others have the
processor does not count, or a busy machine would see its workers ended over and over. Waiting for a disk (a page that
comes back in, a line of a log) is none before it takes so long."""
START_SECONDS = 30.0
"""From the start to the first heartbeat."""
LOOK_SECONDS = 0.05
STOP_SECONDS = 4.0
DYING_SECONDS = 1.0
"""How long a killed worker is waited for; one that is held by the kernel goes later, and the next starts without it."""
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
    busy_seconds: float = BUSY_SECONDS
    pid: int = 0
    dying: int = 0
    """The process before, which was killed and is still there; 0: none."""
    beats: int = -1
    starts: int = 0
    started_at: float = 0.0
    beat_at: float = 0.0
    has_beaten: bool = False
    suspect: bool = False
    looks: list[tasks.Activity] = dataclasses.field(default_factory=list)
    """What it did at the first and at the last look that missed its heartbeat."""
    wait_until: float = 0.0

    def beat(self, now: float) -> None:
        """Note a heartbeat."""
        self.beat_at, self.has_beaten = now, True
        self.listen()

    def listen(self) -> None:
        """Suspect it of nothing."""
        self.suspect = False
        self.looks.clear()

    def is_busy(self, silent_seconds: float) -> bool:
        """Tell whether a silent worker computes or waits for its turn or a disk, and not for too long."""
        now = tasks.activity(paths.Root(), self.pid)
        if now is None:
            return False
        first, last = self.looks or (now, now)
        self.looks = [first, now]
        if now.processor_seconds - first.processor_seconds >= self.busy_seconds:
            return False
        if now.state == tasks.WAITS_FOR_DISK:
            return silent_seconds < self.hung_seconds + self.busy_seconds
        # Another thread that computes keeps the first one, whose state this is, from running.
        return now.state == tasks.RUNS or now.processor_seconds > last.processor_seconds


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
                beats[pipe].beat(now)
        for worker in beats.values():
            self._check(worker, now)

    def _start(self, worker: Worker) -> None:
        reading, writing = os.pipe()
        sys.stdout.flush()
        try:
            pid = os.fork()
        except OSError as error:  # no memory or no process left just now
            os.close(reading)
            os.close(writing)
            worker.wait_until = self._clock() + FAST_WAIT_SECONDS
            _log.warning("%s cannot be started: %s", worker.name, error.strerror)
            return
        if pid == 0:
            self._run_worker(worker, reading, writing)
        os.close(writing)
        now = self._clock()
        worker.pid, worker.beats, worker.started_at, worker.beat_at = pid, reading, now, now
        worker.has_beaten = False
        worker.listen()
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
        if worker.dying and _is_gone(worker.dying):
            worker.dying = 0
        pid, status = os.waitpid(worker.pid, os.WNOHANG)
        if pid:
            self._ended(worker, os.waitstatus_to_exitcode(status), now)
            return
        silent = now - worker.beat_at
        if silent < (worker.hung_seconds if worker.has_beaten else START_SECONDS):
            worker.listen()
            return
        # While the kernel still holds the one before, a third would fare no better than this second.
        if worker.dying or (worker.has_beaten and worker.is_busy(silent)):
            worker.suspect = False
            return
        if not worker.suspect:
            worker.suspect = True  # a heartbeat that came while we were waiting for our own turn is seen first
            return
        name = f"{worker.name} (process {worker.pid})"
        _log.warning("%s gave no sign of life for %.2f s: ended, started again", name, silent)
        os.kill(worker.pid, signal.SIGKILL)
        worker.dying = 0 if self._are_gone([worker.pid], DYING_SECONDS) else worker.pid
        self._forget(worker)

    def _ended(self, worker: Worker, code: int, now: float) -> None:
        self._forget(worker)
        if self._ending:
            return
        # What a person has to mend is said once, not for ever; on a busy machine it takes a while to come out.
        first_seconds = START_SECONDS if code == CotenantError.exit_status else FAST_SECONDS
        if worker.starts == 1 and code > 0 and now - worker.started_at < first_seconds:
            self._status, self._ending = code, True
            return
        if now - worker.started_at < FAST_SECONDS:
            worker.wait_until = now + FAST_WAIT_SECONDS
        _log.warning("%s ended with status %d: started again", worker.name, code)

    def _forget(self, worker: Worker) -> None:
        os.close(worker.beats)
        worker.pid, worker.beats = 0, -1

    def _stop(self) -> None:
        running = [worker.pid for worker in self._workers if worker.pid]
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
                os.kill(pid, signal.SIGCONT)
        if self._are_gone(running, STOP_SECONDS):
            return
        for pid in running:
            os.kill(pid, signal.SIGKILL)
        self._are_gone(running, DYING_SECONDS)

    def _are_gone(self, pids: list[int], seconds: float) -> bool:
        """Wait for the end of processes, at most for so long; those that have ended are taken from the list."""
        deadline = self._clock() + seconds
        while True:
            pids[:] = [pid for pid in pids if not _is_gone(pid)]
            if not pids or self._clock() >= deadline:
                return not pids
            time.sleep(0.005)


def _is_gone(pid: int) -> bool:
    """Reap a process if it has ended, and tell whether it has."""
    return os.waitpid(pid, os.WNOHANG)[0] == pid


def _tell(error: BaseException) -> int:
    """Say what ended a worker, and return its exit status."""
    if isinstance(error, BaseExceptionGroup):
        return max((_tell(one) for one in error.exceptions), default=1)
    if isinstance(error, CotenantError):
        sys.stderr.write(f"cotenant: {error}\n")
        return error.exit_status
    if isinstance(error, KeyboardInterrupt | asyncio.CancelledError):
        return 0
    _log.error("a worker failed", exc_info=error)
    return 1
