"""A child process that waits before it becomes its command, and a parent that is as good as not there.

The child stays in the parent's process group, so the terminal's signals, its size and the shell's job control reach it
by themselves; what somebody sends to the parent alone is passed on.
"""

import contextlib
import dataclasses
import os
import signal
from collections.abc import Sequence
from typing import NoReturn

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit statuses of a shell for a command that does not exist or cannot be run."""

PASSED_ON = frozenset(
    {
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGTSTP,
        signal.SIGCONT,
        signal.SIGWINCH,
    }
)
_WATCHED = PASSED_ON | {signal.SIGCHLD}
_SI_KERNEL = 0x80
_RESET = (signal.SIGPIPE, signal.SIGXFSZ)
"""What Python ignores and a command expects to end it."""


@dataclasses.dataclass(frozen=True, slots=True)
class End:
    """How a child ended: an exit status, or the signal that killed it."""

    status: int | None
    signal: int | None = None


class Child:
    """A forked child that holds its breath until :meth:`release`; without it the child ends when the parent does."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command = command
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        gate_read, self._gate = os.pipe()
        self._failure, failure_write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._gate)
            os.close(self._failure)
            self._become(gate_read, failure_write)
        os.close(gate_read)
        os.close(failure_write)

    def _become(self, gate: int, failure: int) -> NoReturn:
        """In the child: wait for the gate, then exec. Nothing here may return or raise into the parent's code."""
        try:
            if os.read(gate, 1) != b"g":
                os._exit(NOT_EXECUTABLE)
            for number in _RESET:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            os.execvp(self.command[0], list(self.command))
        except OSError as error:
            os.write(failure, f"{error.errno}:{error.strerror}".encode())
            os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)
        finally:
            os._exit(NOT_EXECUTABLE)

    def release(self) -> str | None:
        """Let the child become its command; return why it could not, or None."""
        os.write(self._gate, b"g")
        os.close(self._gate)
        with os.fdopen(self._failure, "rb") as failure:
            text = failure.read().decode()
        return text.partition(":")[2] or None

    def abandon(self) -> None:
        """End the child before it became its command."""
        os.close(self._gate)
        os.close(self._failure)
        os.waitpid(self.pid, 0)
        self.restore_signals()

    def restore_signals(self) -> None:
        """Give the parent back the signals that it had not blocked before."""
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def wait(self) -> End:
        """Wait for the child's end, pass signals on, stop when it stops and go on when it goes on."""
        while True:
            end = self._reaped()
            if end is not None:
                return end
            info = signal.sigwaitinfo(_WATCHED)
            if info.si_signo == signal.SIGCHLD:
                continue
            if info.si_code != _SI_KERNEL:
                # From the terminal the child got it too; what somebody sent is for the command, not for us.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, info.si_signo)

    def _reaped(self) -> End | None:
        pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
        if pid == 0:
            return None
        if os.WIFSTOPPED(status):
            # Stop as the command did, so that the shell sees its job stopped; SIGCONT wakes this process first.
            os.kill(os.getpid(), signal.SIGSTOP)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGCONT)
            return None
        if os.WIFSIGNALED(status):
            return End(None, os.WTERMSIG(status))
        return End(os.WEXITSTATUS(status))


def die_of(number: int) -> int:
    """End this process by a signal, as the command ended; return the shell's status for it where that fails."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # SIGKILL and SIGSTOP have no handler to reset
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    return 128 + number
