"""Real noise beside online work: is it detected, how fast, as what, and is the right group named?

Run as root: ``python bench/noise/run.py [--repeat 5] [--only io,cpu] [--json]``. Each run goes from calm to noise to
calm: online work in one control group (for each CPU, 3 ms of work then 5 ms of sleep, and now and then a direct read of
4 KiB), noise in another. The
sampler and the engine are those of ``cotenant up``, once a second, with the default rules. ``detected`` counts runs in
which the right kind triggered within 20 s; ``wrong kinds`` are others that triggered while the noise ran, ``suspect``
how often the noise's group was the first one named. A machine that is not calm by itself is waited for, and said.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import loads

from cotenant.detect import presets
from cotenant.detect.engine import Engine
from cotenant.kernel import paths
from cotenant.kernel.cgroup.classes import Match
from cotenant.kernel.sampler import Sampler, open_sampler
from cotenant.model.evaluation import Evaluation

CALM_WAIT_S = 60
DETECT_WAIT_S = 20
LINGER_S = 5
CLEAR_WAIT_S = 60


@dataclasses.dataclass
class Run:
    """One run. Seconds are None where it did not happen in time."""

    noise: str
    strength: str
    calm_before: bool
    detect_s: float | None = None
    clear_s: float | None = None
    wrong: tuple[str, ...] = ()
    suspect: str | None = None
    evidence: str | None = None
    right_suspect: bool = False


class Watch:
    """The sampler and the engine, once a second."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._engine = Engine(presets.get("default"))
        self._due = time.monotonic()
        sampler.prime()

    def tick(self) -> Evaluation:
        """Wait for the next second and return how things stand."""
        self._due = max(self._due + 1, time.monotonic())
        time.sleep(max(0.0, self._due - time.monotonic()))
        return self._engine.evaluate(self._sampler.sample())


def triggered(evaluation: Evaluation) -> set[str]:
    """Return the kinds that are triggered."""
    return {name for name, detection in evaluation.detections.items() if detection.triggered}


def run_once(watch: Watch, noise: loads.Noise, strength: int, group: loads.Group, files: pathlib.Path) -> Run:
    """Go from calm to noise to calm."""
    started = time.monotonic()
    while (before := triggered(watch.tick())) and time.monotonic() - started < CALM_WAIT_S:
        pass
    run = Run(noise.name, loads.STRENGTHS[strength], not before)
    started = time.monotonic()
    processes = noise.start(group, strength, files)
    try:
        wrong: set[str] = set()
        stop_at = started + DETECT_WAIT_S
        while time.monotonic() < stop_at:
            evaluation = watch.tick()
            kinds = triggered(evaluation)
            wrong |= kinds - {noise.kind} - before
            if noise.kind not in kinds:
                continue
            if run.detect_s is None:
                run.detect_s = time.monotonic() - started
                stop_at = min(stop_at, time.monotonic() + LINGER_S)
            suspects = evaluation.detections[noise.kind].suspects
            if suspects:
                run.suspect, run.evidence = suspects[0].name, suspects[0].evidence
                run.right_suspect = suspects[0].name.strip("/").endswith(group.path)
        run.wrong = tuple(sorted(wrong))
    finally:
        loads.stop(group, processes)
        group.limit_memory(-1)
    started = time.monotonic()
    while run.detect_s is not None and time.monotonic() - started < CLEAR_WAIT_S:
        if noise.kind not in triggered(watch.tick()):
            run.clear_s = time.monotonic() - started
            break
    return run


def table(runs: list[Run]) -> str:
    """Return the runs as a table for people."""
    lines = [
        "| noise | strength | detected | seconds to detect | to clear | wrong kinds | right suspect | calm before |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|")
    for noise, strength in dict.fromkeys((run.noise, run.strength) for run in runs):
        mine = [run for run in runs if (run.noise, run.strength) == (noise, strength)]
        found = [run for run in mine if run.detect_s is not None]
        right, calm = sum(run.right_suspect for run in mine), sum(run.calm_before for run in mine)
        wrong = ", ".join(sorted({kind for run in mine for kind in run.wrong})) or "–"
        lines.append(
            f"| {noise} | {strength} | {len(found)}/{len(mine)} | {_span([run.detect_s for run in mine])} "
            f"| {_span([run.clear_s for run in mine])} | {wrong} | {right}/{len(mine)} "
            f"| {calm}/{len(mine)} |"
        )
    return "\n".join(lines)


def _span(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):.1f} (≤ {max(known):.1f})" if known else "–"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", default=",".join(noise.name for noise in loads.NOISES))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    # An end that is asked for cleans up too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    wanted = [noise for noise in loads.NOISES if noise.name in options.only.split(",")]
    top = f"cotenant-noise-{int(time.time())}"
    matches = [Match.parse(f"{top}-online=LS"), Match.parse(f"{top}-offline=BE")]
    groups: list[loads.Group] = []
    online: list[subprocess.Popen[bytes]] = []
    runs: list[Run] = []
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory, loads.network():
        files = pathlib.Path(directory)
        for name in ("noise", "online"):
            with (files / name).open("wb") as file:
                for _ in range(512 if name == "noise" else 32):
                    file.write(bytes(range(256)) * 4096)
        sampler = open_sampler(paths.Root(), matches=matches)
        try:
            groups += [loads.Group(f"{top}-online"), loads.Group(f"{top}-offline")]
            for _ in range(os.cpu_count() or 1):
                online.append(groups[0].spawn(sys.executable, "-c", loads.ONLINE, str(files / "online")))
            watch = Watch(sampler)
            for _ in range(options.repeat):
                for noise in wanted:
                    for strength in range(len(loads.STRENGTHS)):
                        runs.append(run_once(watch, noise, strength, groups[1], files))
                        print(json.dumps(dataclasses.asdict(runs[-1])), file=sys.stderr, flush=True)
        finally:
            sampler.close()
            if online:
                loads.stop(groups[0], online)
            for group in reversed(groups):
                group.remove()
    print(json.dumps([dataclasses.asdict(run) for run in runs]) if options.json else table(runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
