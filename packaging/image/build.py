"""Build cotenant's container image without an engine or a registry: ``build.py [--arch amd64] [--output FILE]``.

Three layers: Debian's packages, the locked Python packages, cotenant. The same sources and packages: the same bytes.
"""

import argparse
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import containerfile
import debian
import layers
import oci
import wheels

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build/image"
MODULES = "usr/local/lib/python3.11/dist-packages"
STANDARD = "usr/lib/python3.11"
TIME_SECONDS = 1_700_000_000
"""The date of every file: none that depends on when the image was built."""
ENTRY = "#!/usr/bin/python3.11 -I\nimport sys\n\nfrom cotenant.cli.app import main\n\nsys.exit(main())\n"
ACCOUNTS = {
    "etc/passwd": "root:x:0:0:root:/root:/usr/sbin/nologin\ncotenant:x:65532:65532::/nonexistent:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\ncotenant:x:65532:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
UNUSED = ("tests", "testing")
"""Folders of packages that nothing of ours imports."""


def main() -> int:
    """Build, and say what was built."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "amd64")
    parser.add_argument("--arch", action="append", choices=sorted(wheels.MACHINES), help=f"may repeat; {here} here")
    parser.add_argument("--reference", default=f"localhost/cotenant:{version()}", help="the image's name")
    parser.add_argument(
        "--output", type=pathlib.Path, help="an OCI archive; build/image/cotenant-VERSION.tar by default"
    )
    parser.add_argument("--cache", type=pathlib.Path, default=BUILD / "cache", help="where packages are kept")
    arguments = parser.parse_args()
    output = arguments.output or BUILD / f"cotenant-{version()}.tar"
    started = time.monotonic()
    try:
        size = build(arguments.arch or [here], arguments.reference, output, arguments.cache)
    except (subprocess.CalledProcessError, wheels.NoInterpreter, OSError) as error:
        print(f"image: {error}; apt-get with Debian 12's sources, dpkg-deb, pip are needed", file=sys.stderr)
        return 1
    names = ", ".join(f"{name} {bytes_ >> 20} MiB" for name, bytes_ in size.items())
    taken = time.monotonic() - started
    print(f"image: {arguments.reference} in {output}, {output.stat().st_size >> 20} MiB ({names}), {taken:.0f} s")
    return 0


def version() -> str:
    """Return cotenant's version without importing it."""
    for line in (ROOT / "src/cotenant/__init__.py").read_text().splitlines():
        if line.startswith("__version__"):
            return line.split('"')[1]
    raise SystemExit("image: src/cotenant/__init__.py has no __version__")


def build(architectures: Sequence[str], reference: str, output: pathlib.Path, cache: pathlib.Path) -> dict[str, int]:
    """Write the image and return each layer's size in bytes, uncompressed.

    :raises CalledProcessError: if packages cannot be had.
    :raises NoInterpreter: if there is none to compile with.
    """
    described = containerfile.parse((HERE / "Containerfile").read_text())
    images, sizes = [], {}
    for architecture in architectures:
        made = {
            "debian.tar": layers.archive(_debian(architecture, cache), TIME_SECONDS),
            "python.tar": layers.archive(_locked(architecture), TIME_SECONDS),
            "cotenant.tar": layers.archive(_own(), TIME_SECONDS),
        }
        folder = BUILD / architecture
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in made.items():
            (folder / name).write_bytes(content)
            sizes[f"{architecture} {name}"] = len(content)
        images.append(oci.Image(architecture, [made[name] for name in described.layers], described.config))
    output.parent.mkdir(parents=True, exist_ok=True)
    oci.write(output, reference, images, TIME_SECONDS)
    return sizes


def _debian(architecture: str, cache: pathlib.Path) -> Iterator[layers.Entry]:
    yield from layers.skeleton(usr_lib64=architecture == "amd64")
    found = list(debian.entries(architecture, cache))
    yield from found
    yield from _compiled({info.name: content for info, content in found if content is not None}, STANDARD)
    for path, text in ACCOUNTS.items():
        yield layers.file_entry(path, text.encode())


def _compiled(files: dict[str, bytes], folder: str) -> Iterator[layers.Entry]:
    """Yield the compiled modules of a folder's sources."""
    with tempfile.TemporaryDirectory() as temporary:
        top = pathlib.Path(temporary)
        for path, content in files.items():
            if path.startswith(f"{folder}/") and path.endswith(".py"):
                copy = top / path.removeprefix(f"{folder}/")
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(content)
        wheels.compile_all(top, f"/{folder}")
        yield from layers.of_folder(top, folder, lambda path: path.endswith(".pyc"))


def _locked(architecture: str) -> Iterator[layers.Entry]:
    with tempfile.TemporaryDirectory() as temporary:
        wheels.install_locked(architecture, pathlib.Path(temporary))
        yield from _modules(pathlib.Path(temporary))


def _own() -> Iterator[layers.Entry]:
    with tempfile.TemporaryDirectory() as temporary:
        wheels.install_own(pathlib.Path(temporary))
        yield from _modules(pathlib.Path(temporary))
    yield layers.file_entry("usr/local/bin/cotenant", ENTRY.encode(), executable=True)
    license_text = (ROOT / "LICENSE").read_bytes()
    yield layers.file_entry("usr/share/doc/cotenant/copyright", license_text)


def _modules(folder: pathlib.Path) -> Iterator[layers.Entry]:
    for name in UNUSED:
        for found in folder.rglob(name):
            if found.is_dir():
                shutil.rmtree(found)
    wheels.compile_all(folder, f"/{MODULES}")
    yield from layers.of_folder(folder, MODULES, lambda path: not path.endswith((".pyi", ".pyx", ".pxd", ".c", ".h")))


if __name__ == "__main__":
    sys.exit(main())
