"""Start programs in sessions of their own, remember them by id and start time, end exactly those."""

import json
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

_children: dict[int, subprocess.Popen[bytes]] = {}
"""The programs that this very process started, which it must reap."""


class Processes:
    """The programs of one cluster. Their ids are kept in a file, so that another call can end them."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self._file = directory / "processes.json"

    def start(self, name: str, command: Sequence[str], env: Mapping[str, str] | None = None) -> int:
        """Start one program with its output in ``NAME.log`` and return its process id."""
        log = (self._directory / f"{name}.log").open("ab")
        with log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **(env or {})},
            )
        _children[process.pid] = process
        known = self._read()
        known[name] = {"pid": process.pid, "started": _start_time(process.pid)}
        self._file.write_text(json.dumps(known))
        return process.pid

    def pid(self, name: str) -> int | None:
        """Return the id of a program that still runs, or None."""
        entry = self._read().get(name)
        if entry and _start_time(entry["pid"]) == entry["started"]:
            return int(entry["pid"])
        return None

    def log_tail(self, name: str, lines: int = 15) -> str:
        """Return the end of a program's output."""
        path = self._directory / f"{name}.log"
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) if path.exists() else ""

    def stop(self, name: str, timeout_seconds: float = 60) -> None:
        """Ask one program to end, wait, and insist."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            pid = self.pid(name)
            if pid is None:
                break
            os.kill(pid, number)
            deadline = time.monotonic() + timeout_seconds
            while self.pid(name) is not None and time.monotonic() < deadline:
                if child := _children.get(pid):
                    child.poll()
                time.sleep(0.05)
        known = self._read()
        known.pop(name, None)
        self._file.write_text(json.dumps(known))

    def kill(self, name: str, timeout_seconds: float = 60) -> None:
        """End one program at once, and wait until nothing of it is left: a zombie's threads may still hold its port.

        :raises TimeoutError: if it is still there.
        """
        pid = self.pid(name)
        if pid is None:
            return
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + timeout_seconds
        while pathlib.Path(f"/proc/{pid}").exists():
            if child := _children.get(pid):
                child.poll()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} does not end")
            time.sleep(0.05)

    def stop_all(self) -> None:
        """End every program, the newest first."""
        for name in reversed(list(self._read())):
            self.stop(name)

    def _read(self) -> dict[str, dict[str, int]]:
        return json.loads(self._file.read_text()) if self._file.exists() else {}


def _start_time(pid: int) -> int | None:
    """Return a process's start in clock ticks since boot, or None where it is gone or a zombie."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else int(fields[19])
