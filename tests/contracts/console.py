"""The command line from outside, in a process of its own."""

import os
import subprocess
import sys
from typing import Any

TIMEOUT_S = 60


def cotenant(*words: Any) -> subprocess.CompletedProcess[str]:
    """Run one command line to its end."""
    return subprocess.run(command(*words), capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def cotenant_text(*words: Any) -> str:
    """Return what a command that must succeed prints."""
    done = cotenant(*words)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def command(*words: Any) -> list[str]:
    """Return the arguments of a process that runs this command line."""
    return [os.path.join(os.path.dirname(sys.executable), "cotenant"), *map(str, words)]
