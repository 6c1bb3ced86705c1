"""One writer at a time on one machine: ``run``, ``up --enforce``, ``node``, ``enforce`` and ``restore`` take turns."""

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator

from cotenant.kernel import errors, paths

WAIT_SECONDS = 10.0
POLL_SECONDS = 0.02


class Locked(errors.KernelError):
    """Somebody else is writing."""


class RunDirectoryUnusable(errors.KernelError):
    """There is no place for the lock and the journal, so nothing may be written."""


@contextlib.contextmanager
def writing(
    root: paths.Root, wait_seconds: float = WAIT_SECONDS, sleep: Callable[[float], None] = time.sleep
) -> Iterator[None]:
    """Hold the right to write to this root's kernel files. The kernel drops it when the process dies.

    :raises Locked: if another process still has it after ``wait_seconds``.
    :raises RunDirectoryUnusable: if the run directory cannot be made or written.
    """
    path = root.run_dir / "lock"
    if root.run_dir.is_symlink():
        raise RunDirectoryUnusable(f"{root.run_dir}: a link: lock and journal are kept in a directory of their own")
    try:
        root.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        remedy = "run as root" if isinstance(error, PermissionError) else "make the directory writable"
        raise RunDirectoryUnusable(
            f"{path}: {error.strerror}: nothing is written without a journal; {remedy}"
        ) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise RunDirectoryUnusable(f"{path}: not a plain file: move it away")
        _acquire(descriptor, str(path), wait_seconds, sleep)
        # For the message to whoever waits, no more: a full disk must not keep `restore` from its work.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, path: str, wait_seconds: float, sleep: Callable[[float], None]) -> None:
    for _ in range(int(wait_seconds / POLL_SECONDS) + 1):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sleep(POLL_SECONDS)
        else:
            return
    holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
    raise Locked(f"{path}: process {holder} has been writing for {wait_seconds:g} s: stop it, or try again")
