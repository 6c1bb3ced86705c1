"""The command line from outside: to its end within this process, or in one of its own while things change."""

import contextlib
import dataclasses
import io
import os
import sys
from typing import Any

from cotenant.cli import app


@dataclasses.dataclass(frozen=True)
class Done:
    """What a command line left behind."""

    returncode: int
    stdout: str
    stderr: str


def cotenant(*words: Any) -> Done:
    """Run one command line to its end."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = app.run([str(word) for word in words])
    return Done(status, out.getvalue(), err.getvalue())


def cotenant_text(*words: Any) -> str:
    """Return what a command that must succeed prints."""
    done = cotenant(*words)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def command(*words: Any) -> list[str]:
    """Return the arguments of a process that runs this command line."""
    return [os.path.join(os.path.dirname(sys.executable), "cotenant"), *map(str, words)]
