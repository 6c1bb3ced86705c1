"""Core-scheduling cookies (prctl PR_SCHED_CORE, 5.14 and later): tasks share a core only with their own group's.

A cookie is carried from task to task by a thread made for it, whose own cookie goes with it.
"""

import contextlib
import ctypes
import errno
import functools
import os
import threading
from collections.abc import Callable, Container

from cotenant.kernel import paths

PR_SCHED_CORE = 62
_GET, _CREATE, _SHARE_TO, _SHARE_FROM = range(4)
_THREAD, _THREAD_GROUP = 0, 1
_INIT = 1
_FORK_ROUNDS = 5
"""How often processes are looked for that inherited a cookie while those of the last look lost theirs."""


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _prctl(operation: int, pid: int, scope: int, cookie: int = 0) -> None:
    if _libc().prctl(PR_SCHED_CORE, operation, pid, scope, ctypes.c_void_p(cookie)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def read(pid: int) -> int:
    """Return a task's cookie; 0 is none.

    :raises OSError: EINVAL where the kernel has no core scheduling, ENODEV where no sibling threads are in use.
    """
    value = ctypes.c_uint64()
    _prctl(_GET, pid, _THREAD, ctypes.addressof(value))
    return value.value


def is_available() -> bool:
    """Return whether this kernel has core scheduling, whether or not sibling threads are in use now."""
    try:
        read(0)
    except OSError as error:
        return error.errno == errno.ENODEV
    return True


def create(pid: int) -> None:
    """Give a process a cookie of its own."""
    _prctl(_CREATE, pid, _THREAD_GROUP)


def share(leader: int, pid: int) -> None:
    """Give a process the cookie of another."""

    def carry() -> None:
        _prctl(_SHARE_FROM, leader, _THREAD)
        _prctl(_SHARE_TO, pid, _THREAD_GROUP)

    _in_a_thread(carry)


def clear(pid: int) -> None:
    """Take a process's cookie away: it gets the nothing that a thread of ours has.

    A thread has the cookie of who made it, so where this process has one itself, the thread takes over init's first.
    """

    def carry() -> None:
        if read(0):
            _prctl(_SHARE_FROM, _INIT, _THREAD)
        _prctl(_SHARE_TO, pid, _THREAD_GROUP)

    _in_a_thread(carry)


def held(root: paths.Root) -> dict[int, int]:
    """Return the processes that have a cookie, with it; none where the kernel has no core scheduling."""
    found = {}
    for name in os.listdir(root.proc):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if name.isdigit() and (cookie := read(int(name))):
                found[int(name)] = cookie
    return found


def take(root: paths.Root, cookies: Container[int]) -> tuple[list[int], dict[int, str]]:
    """Take some cookies from every process that has one; return those processes, and whose stays with the reason."""
    taken: list[int] = []
    refused: dict[int, str] = {}
    for _ in range(_FORK_ROUNDS):
        holders = [pid for pid, cookie in held(root).items() if cookie in cookies]
        if not holders:
            return taken, {}
        refused = {}
        for pid in holders:
            try:
                clear(pid)
                taken.append(pid)
            except OSError as error:
                refused[pid] = error.strerror or str(error)
    return taken, refused


def _in_a_thread(work: Callable[[], None]) -> None:
    failures: list[OSError] = []

    def run() -> None:
        try:
            work()
        except OSError as error:
            failures.append(error)

    thread = threading.Thread(target=run, name="core-cookie")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
