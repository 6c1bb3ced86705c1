"""Install the chart into the test cluster with the real Helm, and cotenant's own image on the real node."""

import hashlib
import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import yaml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))


import binaries
import cluster
import node

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/cotenant"
NAMESPACE = "cotenant-system"
RELEASE = "cotenant"
CACHE = pathlib.Path(os.environ.get("COTENANT_CACHE") or pathlib.Path.home() / ".cache/cotenant") / "image"
TIMEOUT_SECONDS = 600


REAL = {"cotenant.io/test-node": "real"}
ON_THE_REAL_NODE = {"replicas": 1, "hostNetwork": True, "nodeSelector": REAL}


def settings(**more: Any) -> dict[str, Any]:
    """Return the values that this cluster needs whatever the scenario: it has neither a Service network nor a DNS."""
    here = {
        "image": {"pullPolicy": "Never"},
        "apiServer": {"host": "127.0.0.1", "port": cluster.API_PORT},
        "crds": {"keep": False},
        "node": {
            "nodeSelector": REAL,
            "kubelet": {"address": "127.0.0.1", "port": node.KUBELET_PORT},
            "kubeletPath": str(cluster.STATE / "kubelet"),
            "hostAliases": [{"ip": "127.0.0.1", "hostnames": [f"cotenant-analyzer.{NAMESPACE}.svc"]}],
        },
        "analyzer": ON_THE_REAL_NODE,
        "scheduler": ON_THE_REAL_NODE,
        "uninstall": {"hostNetwork": True, "nodeSelector": REAL},
        "manager": {**ON_THE_REAL_NODE, "webhook": {"url": "https://127.0.0.1:9443"}},
    }
    return merged(here, more)


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Return one tree of values over another, as Helm lays them."""
    result = dict(below)
    for key, value in above.items():
        held = result.get(key)
        result[key] = merged(held, value) if isinstance(held, dict) and isinstance(value, dict) else value
    return result


def helm(*arguments: str, values: dict[str, Any] | None = None) -> str:
    """Run Helm and return what it says.

    :raises AssertionError: if it fails, with its output.
    """
    command = [str(binaries.helm()), *arguments]
    if values is not None:
        command += ["--values=-"]
    done = subprocess.run(
        command,
        input=None if values is None else yaml.safe_dump(values),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS + 30,
        check=False,
        env={**os.environ, "KUBECONFIG": str(cluster.STATE / "admin.kubeconfig"), "HELM_CACHE_HOME": str(CACHE)},
    )
    assert done.returncode == 0, f"helm {' '.join(arguments)}:\n{done.stdout}{done.stderr}"
    return done.stdout


def install(scenario: str, **more: Any) -> str:
    """Install a scenario, or change to it, and wait until everything is ready; return what Helm says."""
    return helm(
        *("upgrade", "--install", RELEASE, str(CHART), f"--namespace={NAMESPACE}", "--create-namespace"),
        *(f"--values={CHART}/values-{scenario}.yaml", "--wait", f"--timeout={TIMEOUT_SECONDS}s"),
        values=settings(**more),
    )


def uninstall() -> str:
    """Uninstall the release and return what Helm says."""
    return helm("uninstall", RELEASE, f"--namespace={NAMESPACE}", "--wait", f"--timeout={TIMEOUT_SECONDS}s")


def import_image() -> None:
    """Have the real node's containerd hold cotenant's image, built anew only when its sources have changed."""
    archive = CACHE / f"cotenant-{_sources()}.tar"
    if not archive.exists():
        for old in CACHE.glob("cotenant-*.tar"):
            old.unlink()
        build = [sys.executable, str(ROOT / "packaging/image/build.py"), f"--output={archive}", f"--cache={CACHE}/debs"]
        subprocess.run(build, check=True, timeout=1800)
    import_archive(archive)


def import_archive(archive: pathlib.Path) -> None:
    """Import an image's archive on the real node."""
    ctr = [str(cluster.built_binaries() / "ctr"), "-a", str(cluster.STATE / "containerd.sock"), "-n", "k8s.io"]
    subprocess.run([*ctr, "images", "import", str(archive)], check=True, capture_output=True, timeout=600)


def _sources() -> str:
    """Return what changes when the image would."""
    digest = hashlib.sha256((ROOT / "requirements/runtime.txt").read_bytes())
    for folder in ("src", "packaging/image"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def pods(component: str) -> list[dict[str, Any]]:
    """Return the pods of a component that run."""
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    listed: Sequence[dict[str, Any]] = cluster.request("GET", path)["items"]
    return [one for one in listed if one["metadata"]["labels"].get("app.kubernetes.io/component") == component]


def is_ready(component: str) -> bool:
    """Return whether a component has pods, and all of them are ready and new enough."""
    conditions = [one["status"].get("conditions") or [] for one in pods(component)]
    return bool(conditions) and all(
        any(one["type"] == "Ready" and one["status"] == "True" for one in listed) for listed in conditions
    )


def logs(component: str) -> str:
    """Return what a component's pods say, asked of the kubelet itself; for a test's failure."""
    found = []
    for pod in pods(component):
        for container in pod["spec"]["containers"]:
            path = f"containerLogs/{NAMESPACE}/{pod['metadata']['name']}/{container['name']}?tailLines=30"
            answer = cluster.request("GET", f"https://127.0.0.1:{node.KUBELET_PORT}/{path}")
            found.append(f"{pod['metadata']['name']}: {answer.get('text', answer)}")
    return "\n".join(found)
