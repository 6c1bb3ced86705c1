"""Programs in processes of their own."""

import contextlib
import os
import pathlib
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import IO, Any

import pytest
from tests.waiting import PATIENCE_SECONDS

COTENANT = (sys.executable, "-m", "cotenant")
TAIL_CHARACTERS = 4000


def run(command: Sequence[object], **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end and return what it printed; the test fails, and shows that, if it does not end."""
    options = {"capture_output": True, "text": True, "check": False, **options}
    try:
        return subprocess.run([str(word) for word in command], timeout=PATIENCE_SECONDS, **options)
    except subprocess.TimeoutExpired as error:
        said = b"".join(text for text in (error.stdout, error.stderr) if text).decode(errors="replace")
        pytest.fail(f"{command} did not end within {PATIENCE_SECONDS:.0f} s; it said:\n{said[-TAIL_CHARACTERS:]}")


def cotenant(*arguments: object, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run ``cotenant`` with these arguments to its end."""
    return run([*COTENANT, *arguments], **options)


def next_line(process: "subprocess.Popen[Any]", log: pathlib.Path | None = None) -> str:
    """Return the next line that a program prints, or what it printed since the last one and before its end.

    :param log: where its standard error goes, shown if no line comes; by default pytest has it.
    """
    assert process.stdout is not None
    line, deadline = b"", time.monotonic() + PATIENCE_SECONDS
    while not line.endswith(b"\n"):
        # Byte by byte, past Python's buffer: what that holds would be waited for in vain.
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"{process.args!r} printed no line within {PATIENCE_SECONDS:.0f} s\n{tail(log)}"
        byte = os.read(process.stdout.fileno(), 1)
        if not byte:
            break
        line += byte
    return line.decode(errors="replace")


def tail(log: pathlib.Path | None) -> str:
    """Return the end of what a program wrote to a file."""
    return log.read_text(errors="replace")[-TAIL_CHARACTERS:] if log is not None else ""


def end(process: "subprocess.Popen[Any]", number: int = signal.SIGTERM, log: pathlib.Path | None = None) -> int:
    """Send a program a signal and return the status it ends with; what does not end is killed, and the test fails."""
    process.send_signal(number)
    try:
        return process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        pytest.fail(f"{process.args!r} did not end on signal {number}\n{tail(log)}")


@contextlib.contextmanager
def running(*arguments: str, stderr: IO[Any] | int | None = None) -> Iterator[str]:
    """Run a program that works until told to end; yields the first line that it prints. SIGTERM must end it well."""
    with subprocess.Popen([*COTENANT, *arguments], stdout=subprocess.PIPE, stderr=stderr, text=True) as process:
        try:
            yield next_line(process)
        finally:
            status = end(process)
    assert status == 0
