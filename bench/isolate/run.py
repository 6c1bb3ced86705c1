"""How soon a victim is well again: per resource, from the onset of the antagonist until the P99 is near alone for good.

Run as root: ``python bench/isolate/run.py [--only cpu,io,memory] [--rounds 1] [--json]``. The online work and the
antagonists are those of ``bench/protect``. ``recovered`` is the time from the antagonist's start to the first of three
windows of 3 s in a row whose P99 is at most 1.25 × the P99 alone; ``worst`` the worst window before.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "protect"))
import scene

ALONE_SECONDS = 15.0
WATCH_SECONDS = 70.0
WINDOW_SECONDS = 3.0
NEAR = 1.25


def follow(kind: str, load: scene.Load, files: pathlib.Path, name: str) -> dict[str, object]:
    acting = scene.enforcing(files / f"data-{name}")
    noise = None
    try:
        start = time.monotonic()
        time.sleep(ALONE_SECONDS)
        alone = scene.percentile(load.between(start + 5, time.monotonic()), 0.99)
        onset = time.monotonic()
        noise = scene.antagonist(kind, "BE", name, files)
        windows: list[float] = []
        while time.monotonic() - onset < WATCH_SECONDS:
            time.sleep(WINDOW_SECONDS)
            now = time.monotonic()
            windows.append(scene.percentile(load.between(now - WINDOW_SECONDS, now), 0.99))
            if len(windows) > 3 and all(value <= NEAR * alone for value in windows[-3:]):
                break
    finally:
        for process in (noise, acting):
            if process is not None:
                scene.end(process)
    near = [value <= NEAR * alone for value in windows]
    first = next((i for i in range(len(near) - 2) if all(near[i : i + 3])), None)
    return {
        "kind": kind,
        "alone_p99_ms": alone,
        "worst_p99_ms": max(windows),
        "recovered_s": None if first is None else first * WINDOW_SECONDS,
        "windows_p99_ms": windows,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="cpu,io,memory")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        files = pathlib.Path(directory)
        scene.write_pages(files)
        with scene.online(files, f"isolate-{os.getpid()}") as (port, nginx):
            load = scene.Load(port, scene.calibrated_rate(port, nginx))
            time.sleep(3)
            try:
                for number in range(options.rounds):
                    for kind in options.only.split(","):
                        rows.append(follow(kind, load, files, f"isolate-{os.getpid()}-{kind}{number}"))
                        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
            finally:
                load.close()
    if options.json:
        print(json.dumps(rows))
        return 0
    print("| antagonist | P99 alone ms | worst P99 ms | recovered after s |\n|---|---|---|---|")
    for row in rows:
        after = "not in 70 s" if row["recovered_s"] is None else f"{row['recovered_s']:.0f}"
        print(f"| {row['kind']} | {row['alone_p99_ms']:.1f} | {row['worst_p99_ms']:.1f} | {after} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
