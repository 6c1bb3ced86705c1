"""Real noise beside online work: is it detected, how fast, as what, and is the right group named?

Run as root: ``python bench/noise/run.py [--repeat 5] [--only io,cpu] [--json] [--record DIR]``. Each run goes from calm
to noise to calm. Online work (``online.py``: one small server for each CPU, which wakes each 8 ms, touches memory and
reads a little from the disk) is in one control group, noise in another, both below one that outweighs the rest of the
machine. The sampler and the engine are those of ``cotenant up``, once a second, with the default rules.

``detected`` counts runs in which the right kind triggered within 20 s, and has the largest index then; ``also`` are
other kinds that triggered while the noise ran; ``suspect`` how often the noise's group was named first; ``online p99``
is what the server itself measured, calm and beside the noise. ``--record`` keeps each run's samples for ``cotenant
replay``. A machine that does not get calm by itself within half a minute is said.
"""

import argparse
import dataclasses
import json
import pathlib
import shutil
import signal
import statistics
import sys
import tempfile
import time
from typing import BinaryIO

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import loads

from cotenant.detect import presets
from cotenant.detect.engine import Engine
from cotenant.kernel import paths, ticking
from cotenant.kernel.cgroup.classes import Match
from cotenant.kernel.sampler import Sampler, open_sampler
from cotenant.model import sample as samples
from cotenant.model.evaluation import Evaluation

CALM_WAIT_SECONDS = 30
CALM_FOR_SECONDS = 8
DETECT_WAIT_SECONDS = 20
LINGER_SECONDS = 6
HARMLESS_SECONDS = 20
CLEAR_WAIT_SECONDS = 60
CALM_INDEX = 0.2
TARGET_SECONDS = {"strong": 3.0, "moderate": 6.0}


@dataclasses.dataclass
class Run:
    """One run. Seconds are None where it did not happen in time."""

    noise: str
    kind: str | None
    strength: str
    calm_before: bool = True
    detect_s: float | None = None
    clear_s: float | None = None
    also: tuple[str, ...] = ()
    dominant: bool = False
    suspect: str | None = None
    evidence: str | None = None
    right_suspect: bool = False
    level: float = 0.0
    calm_p99_ms: float | None = None
    noise_p99_ms: float | None = None


class Watch:
    """The sampler and the engine, once a second."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._engine = Engine(presets.get("default"))
        self._due = time.monotonic()
        self.file: BinaryIO | None = None
        sampler.prime()

    def tick(self) -> Evaluation:
        """Wait for the next second and return how things stand."""
        self._due = max(self._due + 1, time.monotonic())
        time.sleep(max(0.0, self._due - time.monotonic()))
        taken = self._sampler.sample()
        if self.file:
            self.file.write(samples.encode(taken) + b"\n")
        return self._engine.evaluate(taken)


def triggered(evaluation: Evaluation) -> set[str]:
    """Return the kinds that are triggered."""
    return {name for name, detection in evaluation.detections.items() if detection.triggered}


def dominant(evaluation: Evaluation, kind: str) -> bool:
    """Return whether a kind's index is the largest of those triggered."""
    found = {name: evaluation.detections[name].index or 0.0 for name in triggered(evaluation)}
    return kind in found and found[kind] >= max(found.values())


def is_calm(evaluation: Evaluation) -> bool:
    """Return whether nothing is triggered, nor about to be."""
    return not triggered(evaluation) and all((d.index or 0.0) < CALM_INDEX for d in evaluation.detections.values())


def wait_for_calm(watch: Watch) -> bool:
    """Return whether the machine has been calm for some seconds."""
    started, calm_since = time.monotonic(), None
    while time.monotonic() - started < CALM_WAIT_SECONDS:
        if not is_calm(watch.tick()):
            calm_since = None
        elif calm_since is None:
            calm_since = time.monotonic()
        elif time.monotonic() - calm_since >= CALM_FOR_SECONDS:
            return True
    return False


def run_once(watch: Watch, noise: loads.Noise, strength: int, stage: loads.Stage, logs: list[pathlib.Path]) -> Run:
    """Go from calm to noise to calm."""
    run = Run(noise.name, noise.kind, loads.STRENGTHS[strength], calm_before=wait_for_calm(watch))
    started = time.monotonic()
    run.calm_p99_ms = served_p99_ms(logs, started - CALM_FOR_SECONDS, started)
    noise.start(stage, strength)
    try:
        also: set[str] = set()
        stop_at = started + (DETECT_WAIT_SECONDS if noise.kind else HARMLESS_SECONDS)
        while time.monotonic() < stop_at:
            evaluation = watch.tick()
            kinds = triggered(evaluation)
            run.level = max(run.level, evaluation.interference_level or 0.0)
            also |= kinds - {noise.kind}
            if noise.kind is None:
                run.right_suspect = run.right_suspect or any(
                    suspect.name == stage.offline.path
                    for kind in kinds
                    for suspect in evaluation.detections[kind].suspects[:1]
                )
            if noise.kind not in kinds:
                continue
            if run.detect_s is None:
                run.detect_s = time.monotonic() - started
                stop_at = min(stop_at, time.monotonic() + LINGER_SECONDS)
            run.dominant = dominant(evaluation, noise.kind)
            suspects = evaluation.detections[noise.kind].suspects
            if suspects:
                run.suspect, run.evidence = suspects[0].name, suspects[0].evidence
                run.right_suspect = suspects[0].name == stage.offline.path
        run.also = tuple(sorted(also))
        run.noise_p99_ms = served_p99_ms(logs, started + 1, time.monotonic())
    finally:
        stage.stop_noise()
    started = time.monotonic()
    while run.detect_s is not None and time.monotonic() - started < CLEAR_WAIT_SECONDS:
        if noise.kind not in triggered(watch.tick()):
            run.clear_s = time.monotonic() - started
            break
    return run


def served_p99_ms(logs: list[pathlib.Path], begin: float, end: float) -> float | None:
    """Return the worst server's median of its p99 of each second between two times, in milliseconds."""
    worst = []
    for log in logs:
        rows = [line.split() for line in log.read_text().splitlines()]
        p99s = [float(row[3]) for row in rows if len(row) == 4 and begin <= float(row[0]) <= end]
        if p99s:
            worst.append(statistics.median(p99s))
    return max(worst, default=None)


def table(runs: list[Run]) -> str:
    """Return the runs as a table for people."""
    lines = [
        "| noise | strength | detected | largest index | seconds to detect | target | to clear | also triggered "
        "| right suspect | online p99, calm → noise |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for noise, strength in dict.fromkeys((run.noise, run.strength) for run in runs if run.kind):
        mine = [run for run in runs if (run.noise, run.strength) == (noise, strength)]
        found = [run for run in mine if run.detect_s is not None]
        also = {kind: sum(kind in run.also for run in mine) for kind in sorted({k for run in mine for k in run.also})}
        lines.append(
            f"| {noise} | {strength} | {len(found)}/{len(mine)} | {sum(run.dominant for run in mine)}/{len(mine)} "
            f"| {_span([run.detect_s for run in mine])} | {TARGET_SECONDS[strength]:.0f} "
            f"| {_span([run.clear_s for run in mine])} "
            f"| {', '.join(f'{kind} {count}/{len(mine)}' for kind, count in also.items()) or '–'} "
            f"| {sum(run.right_suspect for run in mine)}/{len(mine)} | {_served(mine)} |"
        )
    harmless = [run for run in runs if not run.kind]
    if harmless:
        lines += [
            "",
            "| hurts nobody | runs | triggered | named as suspect | largest level | online p99, calm → then |",
            "|---|---|---|---|---|---|",
        ]
    for noise in dict.fromkeys(run.noise for run in harmless):
        mine = [run for run in harmless if run.noise == noise]
        also = ", ".join(sorted({kind for run in mine for kind in run.also})) or "–"
        worst, blamed = max(run.level for run in mine), sum(run.right_suspect for run in mine)
        lines.append(f"| {noise} | {len(mine)} | {also} | {blamed}/{len(mine)} | {worst:.3f} | {_served(mine)} |")
    restless = sum(not run.calm_before for run in runs)
    return "\n".join([*lines, "", f"{restless} of {len(runs)} runs began on a machine that did not get calm."])


def _served(runs: list[Run]) -> str:
    calm = [run.calm_p99_ms for run in runs if run.calm_p99_ms is not None]
    noisy = [run.noise_p99_ms for run in runs if run.noise_p99_ms is not None]
    return f"{statistics.median(calm):.1f} → {statistics.median(noisy):.1f} ms" if calm and noisy else "–"


def _span(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):.1f} (≤ {max(known):.1f})" if known else "–"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", default=",".join(noise.name for noise in loads.NOISES))
    parser.add_argument("--strength", choices=loads.STRENGTHS, help="only this one")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--record", metavar="DIR", type=pathlib.Path, help="keep each run's samples there")
    options = parser.parse_args()
    if lacking := loads.missing("fio", "ip", "iperf3"):
        print(f"bench/noise: {lacking}", file=sys.stderr)
        return 0
    # An end that is asked for cleans up too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    plan = [
        (noise, strength)
        for _ in range(options.repeat)
        for noise in loads.NOISES
        if noise.name in options.only.split(",")
        for strength in range(len(loads.STRENGTHS) if noise.kind else 1)
        if options.strength in (None, loads.STRENGTHS[strength])
    ]
    runs: list[Run] = []
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp") as directory,
        loads.Network() as network,
        loads.stage(pathlib.Path(directory), network) as stage,
    ):
        matches = [Match.parse(f"{stage.online.path}=LS"), Match.parse(f"{stage.offline.path}=BE")]
        sampler = open_sampler(paths.Root(), matches=matches)
        logs: list[pathlib.Path] = []
        try:
            logs = stage.start_online(len(plan) * 150)
            ticking.go_first()  # as the thread does that samples for ``cotenant up``
            watch = Watch(sampler)
            for number, (noise, strength) in enumerate(plan):
                if options.record:
                    options.record.mkdir(parents=True, exist_ok=True)
                    watch.file = (options.record / f"{number:02d}-{noise.name}-{loads.STRENGTHS[strength]}.jsonl").open(
                        "wb"
                    )
                runs.append(run_once(watch, noise, strength, stage, logs))
                if watch.file:
                    watch.file.close()
                    watch.file = None
                print(json.dumps(dataclasses.asdict(runs[-1])), file=sys.stderr, flush=True)
        finally:
            sampler.close()
            for log in logs if options.record else ():
                shutil.copy(log, options.record)
    print(json.dumps([dataclasses.asdict(run) for run in runs]) if options.json else table(runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
