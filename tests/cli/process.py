"""Programs in processes of their own."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

START = (sys.executable, "-m", "cotenant")
END_SECONDS = 10


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[str]:
    """Run a program that works until told to end; yields the first line that it prints. SIGTERM must end it well."""
    with subprocess.Popen([*START, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline()
        finally:
            process.terminate()
            try:
                status = process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
    assert status == 0
