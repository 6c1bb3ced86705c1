"""The Debian packages of the image: fetched and verified by apt, for any processor, without touching this machine's."""

import pathlib
import subprocess
from collections.abc import Iterator

import layers

PACKAGES = (
    "libbpf1",
    "libbz2-1.0",
    "libc6",
    "libcrypt1",
    "libelf1",
    "libexpat1",
    "libffi8",
    "libgcc-s1",
    "liblzma5",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "libsqlite3-0",
    "libssl3",
    "libstdc++6",
    "libuuid1",
    "python3.11-minimal",
    "zlib1g",
)
"""What the interpreter, gRPC and eBPF load. Written out: the packages' own dependencies bring an installer along."""
LEFT_OUT = (
    "usr/share/bash-completion/",
    "usr/share/binfmts/",
    "usr/share/doc-base/",
    "usr/share/lintian/",
    "usr/share/man/",
    "usr/share/pixmaps/",
    "usr/share/applications/",
    "usr/lib/python3.11/test/",
    "usr/lib/python3.11/idlelib/",
    "usr/lib/python3.11/lib2to3/",
    "usr/lib/python3.11/pydoc_data/",
    "usr/lib/python3.11/tkinter/",
    "usr/lib/python3.11/turtledemo/",
    "usr/lib/python3.11/unittest/",
)
UNUSED_MODULES = ("_crypt", "_curses", "_curses_panel", "_dbm", "nis", "ossaudiodev", "readline", "_test", "xx")
"""Modules of the standard library whose libraries the image does not have, or that are for its own tests."""


def entries(architecture: str, cache: pathlib.Path) -> Iterator[layers.Entry]:
    """Yield the files of all packages, then the list of them.

    :raises CalledProcessError: if apt cannot fetch one.
    """
    files = fetch(architecture, cache)
    for file in files:
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(file)], stdout=subprocess.PIPE) as unpacking:
            assert unpacking.stdout is not None
            yield from layers.of_package(unpacking.stdout, wanted)
            unpacking.stdout.read()
        if unpacking.returncode:
            raise subprocess.CalledProcessError(unpacking.returncode, f"dpkg-deb --fsys-tarfile {file}")
    listed = "\n".join(sorted(file.name.removesuffix(".deb") for file in files))
    yield layers.file_entry("usr/share/cotenant/packages.txt", f"{listed}\n".encode())


def wanted(path: str) -> bool:
    """Tell whether a file of a package belongs into the image; of the documentation only who holds which rights."""
    if path.startswith("usr/share/doc/"):
        return path.endswith("/copyright")
    name = path.rpartition("/")[2]
    if "/lib-dynload/" in path and name.startswith(UNUSED_MODULES):
        return False
    if "/gconv/" in path:  # the C library's own conversions between character sets; Python has its own
        return False
    return not path.startswith(LEFT_OUT)


def fetch(architecture: str, cache: pathlib.Path) -> list[pathlib.Path]:
    """Return the packages' files, the newest of the configured Debian, in the order of their names."""
    state = cache / architecture
    for folder in ("lists/partial", "archives/partial"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    apt = [
        "apt-get",
        f"--option=APT::Architecture={architecture}",
        f"--option=APT::Architectures={architecture}",
        f"--option=Dir::State={state}",
        f"--option=Dir::State::lists={state}/lists",
        f"--option=Dir::State::status={state}/status",
        f"--option=Dir::Cache={state}",
        f"--option=Dir::Cache::archives={state}/archives",
        "--option=APT::Sandbox::User=",
    ]
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "timeout": 600}
    subprocess.run([*apt, "-qq", "update"], **quiet)  # type: ignore[call-overload]
    listed = subprocess.run(
        [*apt, "-qq", "download", "--print-uris", *PACKAGES], check=True, capture_output=True, text=True, timeout=60
    )
    names = sorted(line.split()[1] for line in listed.stdout.splitlines())
    archives = state / "archives"
    if any(not (archives / name).exists() for name in names):
        subprocess.run([*apt, "-qq", "download", *PACKAGES], cwd=archives, **quiet)  # type: ignore[call-overload]
    return [archives / name for name in names]
