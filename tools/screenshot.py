"""Write docs/images: the page of this machine, under some noise that this script makes and ends.

An online group of one busy task and a small service whose latency is read, and offline work of four times as many tasks
as CPUs: CPU contention, on real numbers. As root with the cpu controller the two are groups of their own; else the page
shows the machine alone.
"""

import argparse
import contextlib
import os
import pathlib
import re
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import chromium
from cotenant.kernel import paths

IMAGES = pathlib.Path(__file__).resolve().parent.parent / "docs" / "images"
VIEWS = ((1440, 980, "light"), (1440, 980, "dark"))
WEIGHT = {1: ("cpu.shares", "10240"), 2: ("cpu.weight", "1000")}
"""By version of cgroup: ten times what any other group has."""
LOOP = "while :; do :; done"


@contextlib.contextmanager
def group(name: str) -> Iterator[list[pathlib.Path]]:
    """Yield the process-list files of a new group of that name in each hierarchy; it is gone afterwards."""
    made = []
    for mount in paths.Root().cgroup_mounts():
        place = mount.path / name
        if mount.version == 2 or {"cpu", "cpuacct", "memory", "blkio"} & mount.controllers:
            with contextlib.suppress(OSError):
                place.mkdir(parents=True)
                made.append(place)
                # Other work on this machine must not blur who hurts whom.
                (place.parent / WEIGHT[mount.version][0]).write_text(WEIGHT[mount.version][1])
    try:
        yield [place / "cgroup.procs" for place in made]
    finally:
        for place in made:
            with contextlib.suppress(OSError):
                place.rmdir()
                place.parent.rmdir()


@contextlib.contextmanager
def loops(count: int, seconds: int, files: list[pathlib.Path]) -> Iterator[None]:
    """Keep some CPUs busy from within a group."""
    # The shell moves itself before it starts to work.
    entering = 'for file; do echo $$ > "$file" || true; done 2>/dev/null; '
    command = ["sh", "-c", f"{entering} exec timeout {seconds} sh -c '{LOOP}'", "sh", *map(str, files)]
    running = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait()


@contextlib.contextmanager
def served(log: pathlib.Path, files: list[pathlib.Path]) -> Iterator[None]:
    """Serve a small page from within a group and ask for it again and again; its access log gets each duration."""
    script = pathlib.Path(__file__).with_name("served.py")
    running = subprocess.Popen([sys.executable, str(script), str(log), *map(str, files)])
    try:
        yield
    finally:
        running.terminate()
        running.wait()


@contextlib.contextmanager
def up(data: str, log: pathlib.Path) -> Iterator[str]:
    """Yield the address of a running ``cotenant up``."""
    command = [sys.executable, "-m", "cotenant", "up", "--port", "0", "--data", data, "--match", "cotenant-shop/*=LS"]
    command += ["--match", "cotenant-batch/*=BE", "--latency-log", f"shop={log}:rt={{seconds}}$"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], 30)
        found = re.search(r"http://\S+", process.stdout.readline() if ready else "")
        if not found:
            raise SystemExit("cotenant up did not start")
        yield found[0]
    finally:
        process.terminate()
        process.wait(15)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calm-seconds", type=int, default=60, help="time before the noise")
    parser.add_argument("--directory", type=pathlib.Path, default=IMAGES)
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    cpus = os.cpu_count() or 1
    with contextlib.ExitStack() as stack:
        shop = stack.enter_context(group("cotenant-shop/web"))
        batch = stack.enter_context(group("cotenant-batch/build"))
        data = stack.enter_context(tempfile.TemporaryDirectory())
        log = pathlib.Path(data, "access.log")
        log.touch()
        stack.enter_context(served(log, shop))
        address = stack.enter_context(up(data, log))
        stack.enter_context(loops(1, 300, shop))
        tab = stack.enter_context(chromium.running())
        tab.size(*VIEWS[0][:2])
        tab.open(address)  # in calm: beside the noise, whose groups weigh so much, a browser loads nothing for minutes
        time.sleep(arguments.calm_seconds)
        stack.enter_context(loops(4 * cpus, 240, batch))
        time.sleep(15)
        for width, height, scheme in VIEWS:
            tab.size(width, height)
            tab.scheme(scheme)
            tab.wait("document.getElementById('live').className.includes('on')")
            time.sleep(3)
            tab.picture(arguments.directory / f"page-{width}-{scheme}.png")
    print(f"written: {arguments.directory}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
