"""What online work feels and offline work keeps: alone, beside an unprotected antagonist, and beside a protected one.

Run as root: ``python bench/protect/run.py [--rounds 3] [--only cpu,io,memory] [--json]``. nginx (each answer is read
from the disk and compressed) gets an open-loop load that fills 30 % of the CPUs; latency counts from the time a request
was due. Rounds are interleaved: alone, then unprotected (the antagonist in an ordinary group, nobody acts), then
protected (``cotenant run --qos BE`` and ``cotenant up --enforce``, measured after it has settled). ``kept`` is the
antagonist's throughput, protected ÷ unprotected; ``idle CPU used`` what offline work got of what online work left.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import scene

MEASURE_SECONDS = 8.0
PAUSE_SECONDS = 2.0
SETTLE_SECONDS = {"cpu": 5.0, "io": 45.0, "memory": 45.0}


def measured(load: scene.Load, nginx: scene.Counter, kind: str, other: scene.Counter | None) -> dict[str, float]:
    """Return percentiles and throughput over some seconds."""
    cpu, done = nginx.cpu_seconds(), scene.throughput(kind, other) if other else 0.0
    theirs, start = other.cpu_seconds() if other else 0.0, time.monotonic()
    time.sleep(MEASURE_SECONDS)
    stop = time.monotonic()
    seconds = stop - start
    values = load.between(start, stop)
    left = (os.cpu_count() or 1) - (nginx.cpu_seconds() - cpu) / seconds
    return {
        "p50_ms": scene.percentile(values, 0.5),
        "p99_ms": scene.percentile(values, 0.99),
        "p999_ms": scene.percentile(values, 0.999),
        "requests": len(values),
        "throughput": (scene.throughput(kind, other) - done) / seconds if other else 0.0,
        "idle_used": (other.cpu_seconds() - theirs) / seconds / left if other else 0.0,
    }


def one_round(
    kind: str, load: scene.Load, nginx: scene.Counter, files: pathlib.Path, tag: str
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = [{"kind": kind, "case": "alone"} | measured(load, nginx, kind, None)]
    for case, qos in (("unprotected", "LS"), ("protected", "BE")):
        name = f"{tag}-{case}"
        acting = scene.enforcing(files / f"data-{name}") if case == "protected" else None
        noise = None
        try:
            time.sleep(15.0 if acting and kind != "cpu" else PAUSE_SECONDS)  # what is usual is learned in calm times
            noise = scene.antagonist(kind, qos, name, files)
            time.sleep(SETTLE_SECONDS[kind] if acting else PAUSE_SECONDS)
            other = scene.Counter(f"cotenant-{qos.lower()}/{name}")
            rows.append({"kind": kind, "case": case} | measured(load, nginx, kind, other))
        finally:
            for process in (noise, acting):
                if process is not None:
                    scene.end(process)
        time.sleep(PAUSE_SECONDS)
    return rows


def table(rows: list[dict[str, object]]) -> str:
    lines = ["| antagonist | case | P50 ms | P99 ms | P999 ms | P99 ÷ alone | throughput | kept | idle CPU used |"]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for kind in dict.fromkeys(row["kind"] for row in rows):
        found = {case: _median(rows, kind, case) for case in ("alone", "unprotected", "protected")}
        unit = "CPU" if kind == "cpu" else "MiB/s"
        for case, row in found.items():
            beside = [f"{row['throughput']:.1f} {unit}", "–", f"{row['idle_used']:.0%}"]
            if case == "protected":
                beside[1] = f"{row['throughput'] / found['unprotected']['throughput']:.0%}"
            cells = [str(kind), case, *(f"{row[key]:.1f}" for key in ("p50_ms", "p99_ms", "p999_ms"))]
            cells += [f"{row['p99_ms'] / found['alone']['p99_ms']:.2f}", *(["–"] * 3 if case == "alone" else beside)]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _median(rows: list[dict[str, object]], kind: object, case: str) -> dict[str, float]:
    mine = [row for row in rows if row["kind"] == kind and row["case"] == case]
    keys = [key for key in mine[0] if key not in ("kind", "case")]
    return {key: statistics.median(float(str(row[key])) for row in mine) for key in keys}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="cpu,io,memory")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        files = pathlib.Path(directory)
        scene.write_pages(files)
        with scene.online(files, f"bench-{os.getpid()}") as (port, nginx):
            rate = scene.calibrated_rate(port, nginx)
            print(f"{rate:.0f} requests a second", file=sys.stderr, flush=True)
            load = scene.Load(port, rate)
            time.sleep(3)
            try:
                for number in range(options.rounds):
                    for kind in options.only.split(","):
                        found = one_round(kind, load, nginx, files, f"bench-{os.getpid()}-{kind}{number}")
                        rows += found
                        print("\n".join(json.dumps(row) for row in found), file=sys.stderr, flush=True)
            finally:
                load.close()
    print(json.dumps(rows) if options.json else table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
