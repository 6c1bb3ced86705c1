"""The Python packages of the image: those of the hashed lock, for any processor, and cotenant's own wheel."""

import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSION = "3.11"
"""Of the interpreter in the image."""
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
MANYLINUX = ("2014", "_2_17", "_2_28", "_2_34")
"""Tags whose C library is not newer than the image's 2.36."""


class NoInterpreter(Exception):
    """There is no interpreter here that can compile for the image."""


def install_locked(architecture: str, folder: pathlib.Path) -> None:
    """Install what cotenant depends on into a folder; only wheels, only those whose hashes the lock has.

    :raises CalledProcessError: if pip cannot.
    """
    platforms = [f"--platform=manylinux{tag}_{MACHINES[architecture]}" for tag in MANYLINUX]
    _pip(
        *("install", "--require-hashes", "--no-deps", "--no-compile", "--only-binary=:all:", f"--target={folder}"),
        *(f"--python-version={VERSION}", "--implementation=cp", "--abi=cp311", "--abi=abi3", "--abi=none"),
        *(*platforms, f"--requirement={ROOT / 'requirements/runtime.txt'}"),
    )
    shutil.rmtree(folder / "bin", ignore_errors=True)


def install_own(folder: pathlib.Path) -> None:
    """Build cotenant's wheel and install it into a folder.

    :raises CalledProcessError: if pip cannot.
    """
    _pip("install", "--no-deps", "--no-compile", "--no-build-isolation", f"--target={folder}", str(ROOT))
    shutil.rmtree(folder / "bin", ignore_errors=True)
    for record in folder.glob("*.dist-info/*"):
        if record.name in ("direct_url.json", "RECORD"):  # they name the folder of this build
            record.unlink()


def compile_all(folder: pathlib.Path, shown_as: str) -> None:
    """Compile a folder's modules, so that a start need not; unchecked, since an image's files do not change.

    :raises NoInterpreter: if this machine has no interpreter of the image's version.
    """
    python = sys.executable if sys.version_info[:2] == (3, 11) else shutil.which(f"python{VERSION}")
    if python is None:
        raise NoInterpreter(f"no python{VERSION} here to compile with: give its folder in PATH")
    compiling = ["-m", "compileall", "-q", "--invalidation-mode=unchecked-hash", "-s", str(folder), "-p", shown_as]
    # Sets of constants are written in the order of their hashes.
    subprocess.run(
        [python, *compiling, str(folder)], check=True, timeout=600, env={**os.environ, "PYTHONHASHSEED": "0"}
    )


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True, timeout=600, cwd=ROOT)
