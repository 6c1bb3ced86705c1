"""From overload to the first write: online work that was idle starts to fill the CPUs beside busy offline work.

Run as root: ``python bench/reaction/run.py [--trials 20] [--json]``. Offline work is in an ordinary group that a match
names (no idle priority, so that online work really waits), suppressed by quota. Half of the trials are with the loop
alone (one round a second, usage a mean of five), half with the fast path too. ``ms`` is from the moment at which the
online work is let go until the quota file holds less than it did in the seconds before, by more than those seconds'
own changes: the quota follows each second what the node uses, so it never stands still. A trial begins when the quota
has stayed within a tenth of the node's CPUs for five seconds and is far enough above the floor; one that never does is
counted as not calm. For the fast path alone offline work rests at 75 % of the CPUs whatever others use; for the loop
the threshold is 95 %, so that there is something to take on a machine that others use too.
"""

import argparse
import collections
import functools
import json
import mmap
import os
import pathlib
import statistics
import sys
import tempfile
import threading
import time
from typing import NamedTuple

from cotenant.act import offline_quota
from cotenant.act.cgroup import DEFAULT_PERIOD_USEC as PERIOD_USEC
from cotenant.detect import engine, presets
from cotenant.kernel import paths
from cotenant.kernel.cgroup.classes import Match
from cotenant.kernel.sampler import Sampler, open_sampler
from cotenant.local import enforcement, groups, workload
from cotenant.model.evaluation import Evaluation
from cotenant.model.policy import NodeSlo, ThresholdStrategy
from cotenant.model.sample import Sample

WAIT_SECONDS = 15.0
CALM_SECONDS, CALM_WAIT_SECONDS = 5.0, 30.0
BAND_RATIO, FALL_RATIO = 0.1, 0.05
"""Of the node's CPUs: how much the quota may change while calm, and how much less than then counts as tightened."""
POLL_SECONDS = 0.002


class Tick(NamedTuple):
    sample: Sample
    evaluation: Evaluation


class Trial(NamedTuple):
    calm: bool
    milliseconds: float | None


class Loop:
    """The sampler and the loop, once a second, in a thread."""

    def __init__(self, sampler: Sampler, loop: enforcement.Enforcement) -> None:
        self._sampler, self._loop = sampler, loop
        self._engine = engine.Engine(presets.get("default"))
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        sampler.prime()
        self._thread.start()

    def _run(self) -> None:
        due = time.monotonic() + 1
        while not self._stopped.wait(max(0.0, due - time.monotonic())):
            due += 1
            sample = self._sampler.sample()
            self._loop.round(Tick(sample, self._engine.evaluate(sample)))

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(5)


def quota_usec(file: pathlib.Path) -> int:
    """Return what a quota file holds; -1 is none."""
    return int(file.read_text().split()[0].replace("max", "-1"))


def calm_usec(file: pathlib.Path) -> int | None:
    """Return the least that the quota held for some seconds, once it has kept within a band; None if it never does."""
    cpus_usec = (os.cpu_count() or 1) * PERIOD_USEC
    least = (offline_quota.floor_cpus(os.cpu_count() or 1) * PERIOD_USEC) + FALL_RATIO * cpus_usec
    seen: collections.deque[tuple[float, int]] = collections.deque()
    start = time.monotonic()
    while (now := time.monotonic()) - start < CALM_WAIT_SECONDS:
        seen.append((now, quota_usec(file)))
        while seen[0][0] < now - CALM_SECONDS:
            seen.popleft()
        values = [usec for _, usec in seen]
        if now - start >= CALM_SECONDS and min(values) > least and max(values) - min(values) <= BAND_RATIO * cpus_usec:
            return min(values)
        time.sleep(0.05)
    return None


def trial(file: pathlib.Path, loads: workload.Workloads) -> Trial:
    """Return milliseconds from overload to the first lower quota; None where there was none in time."""
    count = (os.cpu_count() or 1) * 2
    gate, let_go = os.pipe()
    online = [loads.start("LS", functools.partial(spin_after, gate)) for _ in range(count)]
    try:
        before = calm_usec(file)
        if before is None:
            print("not calm", file=sys.stderr, flush=True)
            return Trial(calm=False, milliseconds=None)
        most = before - FALL_RATIO * (os.cpu_count() or 1) * PERIOD_USEC
        start = time.monotonic()
        os.write(let_go, b"g" * count)
        found = None
        while found is None and time.monotonic() - start < WAIT_SECONDS:
            if 0 <= quota_usec(file) <= most:
                found = (time.monotonic() - start) * 1000
            time.sleep(POLL_SECONDS)
    finally:
        for process in online:
            process.end()
        os.close(gate)
        os.close(let_go)
    print(f"{found} ms from {before}", file=sys.stderr, flush=True)
    return Trial(calm=True, milliseconds=found)


def spin_after(gate: int, units: mmap.mmap) -> None:
    """Wait until it is let go, then work for ever."""
    os.read(gate, 1)
    workload.spin(units)


def idle(_units: mmap.mmap) -> None:
    """Keep a group in being."""
    time.sleep(3600)


def run(trials: int, fast: bool) -> list[Trial]:
    root, own = paths.Root(), groups.Groups(paths.Root())
    cpu = root.hierarchy("cpu")
    assert cpu is not None
    with tempfile.TemporaryDirectory() as elsewhere, workload.workloads(own, f"reaction{fast:d}") as loads:
        # The record of a started command counts more than a match: the loop is not to see that of its offline work.
        root.run_dir = pathlib.Path(elsewhere)
        loads.start("SYSTEM")  # an ordinary group; the match makes it offline work
        for _ in range((os.cpu_count() or 1) - 1):
            loads.start("SYSTEM")
        loads.start("LS", idle)  # the group of online work is there and watched before it is busy
        path = loads.path("SYSTEM")
        matches = (Match.parse(f"{path}=BE"),)
        slo = NodeSlo(
            threshold=ThresholdStrategy(
                enable=True,
                cpu_suppress_threshold_percent=65 if fast else 95,
                cpu_suppress_min_percent=75 if fast else None,
                cpu_suppress_policy="cfsQuota",
            )
        )
        loop = enforcement.Enforcement(root, enforcement.Settings(slo=slo, matches=matches, policy="reaction"))
        sampler = open_sampler(root, matches=matches)
        looping = Loop(sampler, loop)
        if fast:
            loop.fast_path.start()
        file = cpu.path / path / ("cpu.cfs_quota_us" if cpu.version == 1 else "cpu.max")
        try:
            return [trial(file, loads) for _ in range(trials)]
        finally:
            loop.fast_path.stop()
            looping.stop()
            sampler.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default="fast path,loop")
    options = parser.parse_args()
    try:
        found = {name: run(options.trials // 2, name == "fast path") for name in options.only.split(",")}
    except FileNotFoundError as error:
        print(f"{error.filename} is gone: somebody restored this machine meanwhile; run it again", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps({name: [each._asdict() for each in trials] for name, trials in found.items()}))
        return 0
    print("| path | trials | calm before | tightened | median ms | worst ms |\n|---|---|---|---|---|---|")
    for name, trials in found.items():
        calm = [each.milliseconds for each in trials if each.calm]
        known = sorted(value for value in calm if value is not None)
        middle, worst = (f"{statistics.median(known):.0f}", f"{known[-1]:.0f}") if known else ("–", "–")
        print(f"| {name} | {len(trials)} | {len(calm)} | {len(known)} | {middle} | {worst} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
