"""A service and its client in one process, for pictures and trials: a millisecond of work, each duration in a log.

usage: served.py LOG [cgroup.procs …]: enters the groups, then writes ``rt=SECONDS`` a line until it is ended. Requests
come at fixed times, so that one that has to wait for a CPU counts its wait.
"""

import contextlib
import ctypes
import pathlib
import signal
import sys
import time

EVERY_SECONDS = 0.005
WORK_SECONDS = 0.001
PR_SET_PDEATHSIG = 1


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    log, *groups = sys.argv[1:]
    for group in groups:
        with contextlib.suppress(OSError):
            pathlib.Path(group).write_text("0")
    due = time.monotonic()
    with open(log, "a", buffering=1) as out:
        while True:
            time.sleep(max(due - time.monotonic(), 0))
            begun = time.thread_time()
            while time.thread_time() - begun < WORK_SECONDS:
                pass
            out.write(f"GET / 200 rt={time.monotonic() - due:.6f}\n")
            due = max(due + EVERY_SECONDS, time.monotonic() - 1)


if __name__ == "__main__":
    main()
