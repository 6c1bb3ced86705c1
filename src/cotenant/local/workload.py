"""Throw-away load for verifications: spinning processes in groups of their own, gone whatever happens."""

import contextlib
import ctypes
import datetime
import mmap
import os
import pathlib
import signal
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import NoReturn

from cotenant.kernel import paths, tasks
from cotenant.local import groups

_PR_SET_PDEATHSIG = 1
_UNIT = struct.Struct("<Q")
UNIT_ITERATIONS = 20_000
REMOVAL_TRIES = 250
"""Not a time: a machine that stands still for a while does not use them up."""


class Process:
    """A forked process of ours in a group. ``units`` counts the equal pieces of work that it has done."""

    def __init__(self, job: Callable[[mmap.mmap], None], cpus: Sequence[int] | None = None) -> None:
        self._units = mmap.mmap(-1, mmap.PAGESIZE)
        gate, self._gate = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._gate)
            _child(job, self._units, cpus, gate, parent)
        os.close(gate)
        self.ended: int | None = None

    @property
    def units(self) -> int:
        return int(_UNIT.unpack_from(self._units)[0])

    def begin(self) -> None:
        """Let it start to work."""
        os.write(self._gate, b"g")
        os.close(self._gate)
        self._gate = -1

    def run_ns(self) -> int:
        """Return the CPU time that it has had."""
        text = pathlib.Path(paths.Root().proc, str(self.pid), "schedstat").read_text()
        return int(text.split()[0])

    def wait(self, seconds: float) -> int | None:
        """Return the wait status within some seconds, or None while it still runs."""
        deadline = time.monotonic() + seconds
        while self.ended is None:
            late = time.monotonic() >= deadline  # looked at before: a machine that stood still is asked once more
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.ended = status
            elif late:
                break
            else:
                time.sleep(0.01)
        return self.ended

    def end(self) -> None:
        """Kill it, if it still runs, and reap it."""
        if self._gate >= 0:
            os.close(self._gate)
            self._gate = -1
        if self.ended is None:
            os.kill(self.pid, signal.SIGKILL)
            self.ended = os.waitpid(self.pid, 0)[1]
        self._units.close()


def _child(
    job: Callable[[mmap.mmap], None], units: mmap.mmap, cpus: Sequence[int] | None, gate: int, parent: int
) -> NoReturn:
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        if os.getppid() == parent and os.read(gate, 1) == b"g":
            if cpus is not None:
                os.sched_setaffinity(0, cpus)
            job(units)
    finally:
        os._exit(0)


def spin(units: mmap.mmap) -> None:
    """Work for ever, one unit after the other."""
    done = 0
    while True:
        for _ in range(UNIT_ITERATIONS):
            pass
        done += 1
        _UNIT.pack_into(units, 0, done)


class Workloads:
    """Processes by group; leaving the context ends them all and removes the groups."""

    def __init__(self, managed: groups.Groups, purpose: str) -> None:
        self.managed = managed
        self._name = f"verify-{purpose}-{os.getpid()}"
        self._processes: list[Process] = []
        self._records: dict[groups.Qos, groups.Record] = {}

    def path(self, qos: groups.Qos) -> str:
        return f"cotenant-{qos.lower()}/{self._name}-{qos.lower()}"

    def start(
        self,
        qos: groups.Qos,
        job: Callable[[mmap.mmap], None] = spin,
        *,
        cpus: Sequence[int] | None = None,
        limits: groups.Limits = groups.UNLIMITED,
    ) -> Process:
        """Start a process in the group of its class; it works from now on."""
        process = Process(job, cpus)
        self._processes.append(process)
        if qos not in self._records:
            record = groups.Record(
                path=self.path(qos),
                qos=qos,
                name=self.path(qos).rpartition("/")[2],
                pid=process.pid,
                owner=os.getpid(),
                owner_started=tasks.start_time(paths.Root(), str(os.getpid())),
                command=("cotenant", "verify"),
                started=datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            )
            self.managed.reserve(record)
            self._records[qos] = record
            self.managed.create(record.path, qos, limits, str(process.pid))
        else:
            self.managed.apply(self.managed.entry(self.path(qos), qos, str(process.pid)))
        process.begin()
        return process

    def stop(self) -> None:
        """End every process; the groups stay for the next ones."""
        for process in self._processes:
            process.end()
        self._processes.clear()

    def close(self) -> None:
        """End everything and remove the groups."""
        self.stop()
        for record in self._records.values():
            for _ in range(REMOVAL_TRIES):
                if self.managed.remove(record.path):
                    break
                time.sleep(0.02)
            self.managed.forget(record.name)
        self._records.clear()


@contextlib.contextmanager
def workloads(managed: groups.Groups, purpose: str) -> Iterator[Workloads]:
    """Give workloads that end with the block, also on ctrl-C and SIGTERM."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    found = Workloads(managed, purpose)
    try:
        yield found
    finally:
        signal.signal(signal.SIGTERM, before)
        found.close()
