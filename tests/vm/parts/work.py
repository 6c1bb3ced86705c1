"""Processes of a part's own: forked, held at a gate, put into groups, and gone with the script."""

import contextlib
import ctypes
import mmap
import os
import pathlib
import signal
import time
from collections.abc import Callable, Iterator

GUEST = "cotenant.guest"
"""A word of the guest's kernel line."""
SECONDS = 900.0
"""The longest that one works."""
PATIENCE_SECONDS = 300.0
"""The longest that a state is waited for: what stops the machine stops its guest, whose clock then jumps."""


class Worker:
    """A forked process that waits for :meth:`begin`; it ends with its parent."""

    def __init__(self, job: Callable[[], None], cpus: set[int] | None = None) -> None:
        gate, self._gate = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._gate)
                ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
                if cpus is not None:
                    os.sched_setaffinity(0, cpus)
                if os.read(gate, 1):
                    job()
            finally:
                os._exit(0)
        os.close(gate)

    def enter(self, *groups: pathlib.Path) -> "Worker":
        for group in groups:
            (group / "cgroup.procs").write_text(str(self.pid))
        return self

    def begin(self) -> None:
        os.write(self._gate, b"g")

    def schedstat(self) -> list[int]:
        """Return nanoseconds run, nanoseconds waited, times run."""
        return [int(word) for word in pathlib.Path(f"/proc/{self.pid}/schedstat").read_text().split()]

    def wait(self) -> None:
        """Let it end by itself."""
        os.close(self._gate)
        os.waitpid(self.pid, 0)

    def kill(self) -> None:
        os.close(self._gate)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def spin() -> None:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        pass


def sleep() -> None:
    time.sleep(SECONDS)


@contextlib.contextmanager
def spinning(number: int, cpu: int, *groups: pathlib.Path) -> Iterator[list[Worker]]:
    """Let some processes in a group want one CPU."""
    workers = [Worker(spin, {cpu}).enter(*groups) for _ in range(number)]
    try:
        for worker in workers:
            worker.begin()
        yield workers
    finally:
        for worker in workers:
            worker.kill()


def direct_io(device: str, number: int, size: int, *, write: bool) -> None:
    """Read or write so many blocks of the guest's disk, past the page cache."""
    # On any other machine this would be somebody's file system.
    assert GUEST in pathlib.Path("/proc/cmdline").read_text().split(), "not in a guest"
    block = mmap.mmap(-1, size)
    file = os.open(device, os.O_RDWR | os.O_DIRECT)
    for at in range(number):
        if write:
            os.pwrite(file, block, at * size)
        else:
            os.preadv(file, [block], at * size)
    os.close(file)


@contextlib.contextmanager
def group(*paths: pathlib.Path) -> Iterator[pathlib.Path]:
    """Make groups and remove them; give the first."""
    for path in paths:
        path.mkdir(exist_ok=True)
    try:
        yield paths[0]
    finally:
        for path in paths:
            remove(path)


def remove(path: pathlib.Path) -> None:
    """Remove a group; its last task may be just ending."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            path.rmdir()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def wait(condition: Callable[[], object], pause_seconds: float = 0.02) -> float:
    """Wait until something is so, or for long; return how many seconds it took."""
    begin = time.monotonic()
    while not condition() and time.monotonic() < begin + PATIENCE_SECONDS:
        time.sleep(pause_seconds)
    return time.monotonic() - begin
