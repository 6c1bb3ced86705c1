"""The container image: its size, how long programs in it take to start, whether a second build is the same.

Needs root (chroot), apt-get with Debian 12's sources and a few minutes.
"""

import argparse
import hashlib
import json
import pathlib
import platform
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "packaging/image/build.py"
LAYERS = ("debian.tar", "python.tar", "cotenant.tar")
RUNS = 10
COMMANDS = (("--version",), ("node", "--help"), ("analyzer", "--help"), ("manager", "--help"))


def build(output: pathlib.Path, architecture: str) -> float:
    """Build the image and return how many seconds that took."""
    started = time.monotonic()
    command = [sys.executable, str(BUILD), f"--output={output}", f"--arch={architecture}"]
    subprocess.run(command, check=True, capture_output=True, timeout=900)
    return time.monotonic() - started


def start_seconds(root: pathlib.Path, words: tuple[str, ...]) -> float:
    """Return the median time of a command in the unpacked image."""
    taken = []
    for _ in range(RUNS):
        started = time.monotonic()
        command = ["chroot", str(root), "/usr/local/bin/cotenant", *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=60)
        taken.append(time.monotonic() - started)
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    here = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    other = "arm64" if here == "amd64" else "amd64"
    found: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        first, second, foreign = folder / "1.tar", folder / "2.tar", folder / "3.tar"
        found["build_seconds"] = round(build(first, here))
        build(second, here)
        found["second_build_is_the_same"] = digest(first) == digest(second)
        found["packed_bytes"] = first.stat().st_size
        root = folder / "root"
        root.mkdir()
        for layer in LAYERS:
            with tarfile.open(ROOT / "build/image" / here / layer) as tar:
                tar.extractall(root, filter="tar")
        found["unpacked_bytes"] = sum(
            path.stat().st_size for path in root.rglob("*") if path.is_file() and not path.is_symlink()
        )
        (root / "dev/null").touch()
        found["start_seconds"] = {" ".join(words): round(start_seconds(root, words), 3) for words in COMMANDS}
        build(foreign, other)
        found[f"{other}_packed_bytes"] = foreign.stat().st_size
    if arguments.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:28} {value}")


def digest(path: pathlib.Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
