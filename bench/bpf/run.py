"""What the BPF programs cost, by the kernel's own account of their run time and by what the work loses.

Run as root: ``python bench/bpf/run.py [--seconds 5] [--json]``. Each load runs without and with the programs in turn,
three times; the figures are the medians. ``share`` is the programs' run time as a share of all CPUs and must stay
within 0.1 % in normal use (the first three loads); the last two are the worst that this machine can make. The kernel's
accounting itself adds a few tens of nanoseconds to each run, and is part of ``share`` but off in normal use.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from cotenant.kernel import paths
from cotenant.kernel.bpf.cost import Meter
from cotenant.kernel.bpf.tracer import BpfTracer

TARGET_SHARE = 0.001
ROUNDS = 3
PING_PONG = """
import os, sys, time
to, back = os.pipe(), os.pipe()
if os.fork() == 0:
    os.close(to[1])
    while os.read(to[0], 1):
        os.write(back[1], b"x")
    os._exit(0)
end, pause, rounds = time.monotonic() + float(sys.argv[1]), float(sys.argv[2]), 0
while time.monotonic() < end:
    os.write(to[1], b"x")
    os.read(back[0], 1)
    rounds += 1
    if pause:
        time.sleep(pause)
print(rounds)
"""

Load = Callable[[float], float | None]


def idle(seconds: float) -> None:
    """Do nothing; what else the machine does is on the clock."""
    time.sleep(seconds)


def switches(pause_s: float) -> Load:
    """Return a load of two tasks that wake each other, with a pause after each round."""

    def run(seconds: float) -> float:
        command = [sys.executable, "-c", PING_PONG, str(seconds), str(pause_s)]
        return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout) / seconds

    return run


def requests(file: pathlib.Path, *options: str) -> Load:
    """Return a load of direct random reads."""

    def run(seconds: float) -> float:
        command = ["fio", "--name=bench", f"--filename={file}", "--size=256M", "--direct=1", "--ioengine=libaio"]
        command += [
            "--rw=randread",
            "--bs=4k",
            "--time_based",
            f"--runtime={seconds}",
            "--output-format=json",
            *options,
        ]
        done = subprocess.run(command, capture_output=True, check=True, cwd=file.parent)
        return float(json.loads(done.stdout)["jobs"][0]["read"]["iops"])

    return run


def measure(load: Load, seconds: float) -> dict[str, float | None]:
    """Return what the programs used while the load ran, and how much less it did than without them."""
    without, with_, shares, runs, lengths = [], [], [], [], []
    for _ in range(ROUNDS):
        without.append(load(seconds))
        tracer = BpfTracer(paths.Root())
        try:
            for program in tracer.programs:
                if program.missing:
                    sys.exit(f"bench/bpf: {program.detail}")
            tracer.read()
            with_.append(load(seconds))
            tracer.read()  # sets how much is sampled
            with_[-1] = load(seconds)
            cost = accounted(tracer, load, seconds)
        finally:
            tracer.close()
        shares.append(cost[0])
        runs.append(cost[1])
        lengths.append(cost[2])
    rate = None if without[0] is None else statistics.median(without)  # type: ignore[type-var]
    return {
        "rate": rate,
        "slower": None if rate is None else 1 - statistics.median(with_) / rate,  # type: ignore[type-var,operator]
        "share": statistics.median(shares),
        "runs_per_sec": statistics.median(runs),
        "mean_ns": statistics.median(lengths),
    }


def accounted(tracer: BpfTracer, load: Load, seconds: float) -> tuple[float, float, float]:
    """Return share of all CPUs, runs per second and length of a run in ns, with the kernel's accounting on."""
    meters = [Meter(part, every=1) for part in tracer.objects]
    for meter in meters:
        meter.tick(None)
    started = time.monotonic()
    load(seconds)
    elapsed = time.monotonic() - started
    for meter in meters:
        meter.tick(elapsed)
        meter.close()
    costs = [meter.cost for meter in meters if meter.cost]
    share, runs = sum(cost.cpu_ratio for cost in costs), sum(cost.runs_per_sec for cost in costs)
    return share, runs, share * (os.cpu_count() or 1) / runs * 1e9 if runs else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if shutil.which("fio") is None:
        sys.exit("bench/bpf: no fio (Debian: fio)")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        file = pathlib.Path(directory) / "data"
        requests(file)(0.5)  # lays the file out
        loads: dict[str, Load] = {
            "nothing of ours": idle,
            "2,000 round trips/s between two tasks": switches(0.0005),
            "1,000 direct reads/s": requests(file, "--rate_iops=1000"),
            "round trips without a pause": switches(0),
            "direct reads, 32 deep, without a pause": requests(file, "--iodepth=32"),
        }
        found = {name: measure(load, options.seconds) for name, load in loads.items()}
    if options.json:
        print(json.dumps({"cpus": os.cpu_count(), "kernel": os.uname().release, "loads": found}))
        return 0
    print(f"{os.cpu_count()} CPUs, Linux {os.uname().release}; normal use: at most {TARGET_SHARE:.1%} of all CPUs\n")
    print("| load | its rate without | slower with | programs' runs/s | one run | share of all CPUs |")
    print("|---|---|---|---|---|---|")
    for name, one in found.items():
        rate = "–" if one["rate"] is None else f"{one['rate']:,.0f}/s"
        slower = "–" if one["slower"] is None else f"{one['slower']:+.1%}"
        cost = f"{one['runs_per_sec']:,.0f} | {one['mean_ns']:.0f} ns | {one['share']:.3%}"
        print(f"| {name} | {rate} | {slower} | {cost} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
