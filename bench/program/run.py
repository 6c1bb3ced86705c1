"""What ``cotenant up`` costs as a whole: memory, CPU of one core, and whether its ticks come on time under pressure.

Run as root: ``python bench/program/run.py [--seconds 30] [--json]``. Three rows: without and with the web page, beside
150 more control groups; and without it beside noise that keeps memory full and every CPU four times oversubscribed
(``bench/noise``), where the time between two ticks is what counts. The times are those of the history that it writes.
"""

import argparse
import dataclasses
import itertools
import json
import os
import pathlib
import sqlite3
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent.parent))
from bench.agent.run import more_groups
from bench.noise import loads

from cotenant.local.database import TIERS

GROUPS = 150
SETTLE_SECONDS = 5
TARGETS = {
    "up --no-web, 150 groups more": "≤ 64 MiB, ≤ 2 %",
    "up, 150 groups more": "≤ 120 MiB",
    "up --no-web, memory and CPU pressed": "p99 ≤ 1.5 s between ticks",
}


@dataclasses.dataclass
class Row:
    """What one run cost. ``gap`` are the seconds between two ticks."""

    resident_mib: float
    cpu_percent: float
    ticks: int
    gap_p50_s: float
    gap_p99_s: float
    gap_max_s: float


def measure(options: list[str], seconds: float) -> Row:
    """Run ``cotenant up`` for some seconds and return what it cost after it has settled."""
    with tempfile.TemporaryDirectory() as data:
        command = [sys.executable, "-m", "cotenant", "up", *options, "--data", data]
        program = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, preexec_fn=loads.end_with_parent, start_new_session=True
        )
        try:
            time.sleep(SETTLE_SECONDS)
            began, used = time.monotonic(), _cpu_s(program.pid)
            time.sleep(seconds)
            cpu = (_cpu_s(program.pid) - used) / (time.monotonic() - began)
            resident = _resident_mib(program.pid)
        finally:
            program.terminate()
            program.wait(timeout=20)
        times = _times_s(pathlib.Path(data) / "history.sqlite")
    gaps = sorted(after - before for before, after in itertools.pairwise(times))
    place = [gaps[int(len(gaps) * q)] for q in (0.5, 0.99)]
    return Row(resident, cpu * 100, len(times), place[0], place[1], gaps[-1])


def _cpu_s(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mib(pid: int) -> float:
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


def _times_s(history: pathlib.Path) -> list[float]:
    connection = sqlite3.connect(f"file:{history}?mode=ro", uri=True)
    try:
        rows = connection.execute(f"SELECT time_ms FROM point_{TIERS[0].step_s}s ORDER BY time_ms")
        return [time_ms / 1000 for (time_ms,) in rows]
    finally:
        connection.close()


def pressed(seconds: float) -> Row:
    """Measure beside noise that presses memory and CPUs."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory, loads.stage(pathlib.Path(directory)) as stage:
        noises = {noise.name: noise for noise in loads.NOISES}
        noises["memory"].start(stage, 1)
        for _ in range(stage.cpus * 4):
            stage.python(loads.SPIN, loads.LIMIT_SECONDS)
        return measure(["--no-web"], min(seconds, loads.LIMIT_SECONDS - 2 * SETTLE_SECONDS))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if lacking := loads.missing():
        print(f"bench/program: {lacking}", file=sys.stderr)
        return 0
    names, rows = list(TARGETS), {}
    with more_groups(GROUPS):
        rows[names[0]] = measure(["--no-web"], options.seconds)
        rows[names[1]] = measure(["--port", "0"], options.seconds)
    rows[names[2]] = pressed(options.seconds)
    if options.json:
        print(json.dumps({name: dataclasses.asdict(row) for name, row in rows.items()}, indent=2))
        return 0
    print(f"{'':38}{'MiB':>6}{'CPU %':>7}{'ticks':>7}{'gap p50':>9}{'p99':>6}{'max s':>7}  target")
    for name, row in rows.items():
        gaps = f"{row.gap_p50_s:9.2f}{row.gap_p99_s:6.2f}{row.gap_max_s:7.2f}"
        print(f"{name:38}{row.resident_mib:6.0f}{row.cpu_percent:7.2f}{row.ticks:7}{gaps}  {TARGETS[name]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
