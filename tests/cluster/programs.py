"""Run cotenant's own programs beside the cluster, as a person would, and end them whatever happens.

``/run/cotenant`` is a folder of the test's own there (a mount namespace), so that neither the journal nor the lock of
this machine's own cotenant is touched.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from typing import Any

import cluster
import node

PR_SET_PDEATHSIG = 1
RUN_SECONDS = 240
"""A command that runs to its end takes one or two; a machine that stands still meanwhile is no failure of it."""
STOP_SECONDS = 60
LAST_WORDS = 600
_libc = ctypes.CDLL(None)
_started: "list[Program]" = []


def die_with_parent() -> None:
    """Have the kernel end this process when its parent ends: between fork and exec."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def cotenant() -> str:
    """Return the console script's path."""
    return str(pathlib.Path(sys.executable).parent / "cotenant")


class Program:
    """One running ``cotenant`` command with its output in a file."""

    def __init__(self, arguments: Sequence[str], log: pathlib.Path, *, own_run: pathlib.Path | None = None) -> None:
        self._arguments = arguments
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                in_own_run(arguments, own_run),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment(),
                preexec_fn=die_with_parent,
            )
        _started.append(self)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def output(self) -> str:
        """Return what it has said so far."""
        return self._log.read_text(errors="replace")

    def signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self._process.poll() is None:
            os.kill(self._process.pid, number)

    def workers(self) -> list[int]:
        """Return the processes that it has started."""
        children = pathlib.Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return [int(child) for child in children.read_text().split()] if children.exists() else []

    def stop(self, seconds: float = STOP_SECONDS) -> int:
        """Ask it to end, insist after a while; return its exit status."""
        self._forget()
        for number in (signal.SIGCONT, signal.SIGTERM):
            self.signal(number)
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """End it at once; return its exit status."""
        self._forget()
        self.signal(signal.SIGKILL)
        return self._process.wait(STOP_SECONDS)

    def _forget(self) -> None:
        with contextlib.suppress(ValueError):
            _started.remove(self)

    def last_words(self) -> str:
        """Return what it is, whether it runs, and the end of what it has said."""
        state = "runs" if self.returncode is None else f"ended with {self.returncode}"
        return f"--- cotenant {shlex.join(self._arguments)}: {state}\n{self.output()[-LAST_WORDS:]}"


def last_words() -> str:
    """Return the last words of every program that runs or has ended by itself, and how busy the machine is."""
    pressure = "".join(f"{kind}: {pathlib.Path('/proc/pressure', kind).read_text()}" for kind in ("cpu", "io"))
    return "\n".join([*(program.last_words() for program in _started), pressure])


def run(arguments: Sequence[str], *, own_run: pathlib.Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        in_own_run(arguments, own_run),
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
        env=environment(),
    )


def in_own_run(arguments: Sequence[str], own_run: pathlib.Path | None) -> list[str]:
    """Return the command line, with ``own_run`` in the place of ``/run/cotenant``."""
    command = [cotenant(), *arguments]
    if own_run is None:
        return command
    own_run.mkdir(parents=True, exist_ok=True)
    pathlib.Path("/run/cotenant").mkdir(exist_ok=True)
    script = f"mount --bind {shlex.quote(str(own_run))} /run/cotenant && exec {shlex.join(command)}"
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]


def environment() -> dict[str, str]:
    """Return the environment in which cotenant finds the cluster as its administrator."""
    return {**os.environ, "KUBECONFIG": str(cluster.STATE / "admin.kubeconfig"), "COLUMNS": "160"}


def node_agent(directory: pathlib.Path, *options: str, own_run: pathlib.Path | None = None) -> Program:
    """Start the agent of the real node."""
    arguments = [
        "node",
        f"--node={node.NAME}",
        f"--token-file={cluster.STATE}/pki/admin.token",
        f"--kubelet=https://127.0.0.1:{node.KUBELET_PORT}",
        f"--kubelet-ca={cluster.STATE}/pki/ca.crt",
        f"--state={directory}/state",
        f"--kubelet-dir={cluster.STATE}/kubelet",
        *options,
    ]
    return Program(arguments, directory / "node.log", own_run=own_run)


def get_json(url: str) -> Any:
    """Return the JSON that an address on loopback answers."""
    return json.loads(get_text(url))


def get_text(url: str) -> str:
    """Return what an address on loopback answers."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def answers(url: str) -> bool:
    """Return whether an address on loopback answers."""
    try:
        with urllib.request.urlopen(url, timeout=1):
            return True
    except OSError:
        return False


def settle(seconds: float) -> None:
    """Let time pass in which something must not happen."""
    time.sleep(seconds)
