"""From overload to the first write: online work that was idle starts to fill the CPUs beside busy offline work.

Run as root: ``python bench/reaction/run.py [--trials 20] [--json]``. Offline work is in an ordinary group that a match
names (no idle priority, so that online work really waits), suppressed by quota at 65 %. Half of the trials are with
the loop alone (one round a second, usage a mean of five), half with the fast path too. ``ms`` is from the moment at
which the online work is let go until the quota file holds less than before. For the fast path alone offline work rests
at 75 % of the CPUs whatever others use; the loop has nothing to tighten on a machine that is busy already.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import threading
import time
from typing import NamedTuple

from cotenant.detect import engine, presets
from cotenant.kernel import paths
from cotenant.kernel.cgroup.classes import Match
from cotenant.kernel.sampler import Sampler, open_sampler
from cotenant.local import enforcement, groups, workload
from cotenant.model.evaluation import Evaluation
from cotenant.model.policy import NodeSlo, ThresholdStrategy
from cotenant.model.sample import Sample

WAIT_SECONDS = 15.0
SETTLED_USEC = 0.02


class Tick(NamedTuple):
    sample: Sample
    evaluation: Evaluation


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


def steady(file: pathlib.Path) -> int:
    """Wait until a quota has not changed for three seconds; return it."""
    held, since = -1, time.monotonic()
    deadline = since + 40
    while time.monotonic() - since < 3 and time.monotonic() < deadline:
        now = int(file.read_text().split()[0].replace("max", "-1"))
        if now != held or now < 0:
            held, since = now, time.monotonic()
        time.sleep(0.05)
    return held


def trial(own: groups.Groups, file: pathlib.Path, loads: workload.Workloads) -> float | None:
    """Return milliseconds from overload to the first lower quota, or None when there was none in time."""
    before = steady(file)
    online = [loads.start("LS") for _ in range((os.cpu_count() or 1) * 2)]
    start = time.monotonic()
    found = None
    while found is None and time.monotonic() - start < WAIT_SECONDS:
        if int(file.read_text().split()[0]) < before:
            found = (time.monotonic() - start) * 1000
        time.sleep(0.002)
    for process in online:
        process.end()
    print(f"{found} ms from {before}", file=sys.stderr, flush=True)
    return found


def run(trials: int, fast: bool) -> list[float | None]:
    root = paths.Root()
    own = groups.Groups(root)
    cpu = root.hierarchy("cpu")
    assert cpu is not None
    with workload.workloads(own, f"reaction{fast:d}") as loads:
        loads.start("SYSTEM")  # an ordinary group; the match makes it offline work
        for _ in range((os.cpu_count() or 1) - 1):
            loads.start("SYSTEM")
        path = loads.path("SYSTEM")
        matches = (Match.parse(f"{path}=BE"),)
        slo = NodeSlo(
            threshold=ThresholdStrategy(
                enable=True,
                cpu_suppress_threshold_percent=65,
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
            return [trial(own, file, loads) for _ in range(trials)]
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
    found = {name: run(options.trials // 2, name == "fast path") for name in options.only.split(",")}
    if options.json:
        print(json.dumps(found))
        return 0
    print("| path | trials | written | median ms | worst ms |\n|---|---|---|---|---|")
    for name, values in found.items():
        known = sorted(value for value in values if value is not None)
        middle, worst = (f"{statistics.median(known):.0f}", f"{known[-1]:.0f}") if known else ("–", "–")
        print(f"| {name} | {len(values)} | {len(known)} | {middle} | {worst} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
