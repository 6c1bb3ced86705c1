"""The manager at the real API server: its namespaces, Koordinator's kinds, its ConfigMap, and what it wrote."""

import contextlib
import json
import pathlib
import urllib.error
from collections.abc import Iterator, Mapping
from typing import Any

import objects
import programs
from objects import wait_for

import cluster

NAMESPACES = ("koordinator-system", "cotenant-system")
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NODE_SLOS = objects.NODE_SLOS
NODE_METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies"
CONFIG_MAPS = "/api/v1/namespaces/koordinator-system/configmaps"
CONFIG = f"{CONFIG_MAPS}/slo-controller-config"
STATE = "/api/v1/namespaces/cotenant-system/configmaps/cotenant-slo-config"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/cotenant-system/leases/cotenant-manager"
REVISIONS = "/apis/apps/v1/namespaces/cotenant-system/controllerrevisions"
EVENTS = "/api/v1/namespaces/koordinator-system/events"
KINDS = {
    "nodeslos.slo.koordinator.sh": NODE_SLOS,
    "nodemetrics.slo.koordinator.sh": NODE_METRICS,
    "clustercolocationprofiles.config.koordinator.sh": "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles",
    "noderesourcetopologies.topology.node.k8s.io": TOPOLOGIES,
}


def prepare() -> None:
    """Make the namespaces, and Koordinator's kinds as cotenant installs them."""
    for name in NAMESPACES:
        with contextlib.suppress(urllib.error.HTTPError):  # there already
            cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    for name in KINDS:  # another test's stand-ins have no schema
        found = objects.found(f"{DEFINITIONS}/{name}")
        if found is not None and "app.kubernetes.io/part-of" not in (found["metadata"].get("labels") or {}):
            objects.delete(f"{DEFINITIONS}/{name}")
            wait_for(lambda name=name: objects.found(f"{DEFINITIONS}/{name}") is None, 30, f"{name} to be gone")
    done = programs.run(["crd", "install", "--koordinator", "--json"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout) == {"installed": list(KINDS), "left": []}
    for path in KINDS.values():
        wait_for(lambda path=path: objects.found(path) is not None, 20, f"{path} to be served")


def clean() -> None:
    """Remove what a manager wrote, and what it follows."""
    for path in (CONFIG, STATE, LEASE, REVISIONS, EVENTS, NODE_SLOS, NODE_METRICS):
        objects.delete(path)


@contextlib.contextmanager
def manager(directory: pathlib.Path, port: int, *options: str) -> Iterator[programs.Program]:
    """Run a manager and wait until it answers."""
    program = programs.Program(["manager", f"--listen=127.0.0.1:{port}", *options], directory / f"manager-{port}.log")
    try:
        wait_for(lambda: programs.answers(f"http://127.0.0.1:{port}/healthz"), 30, "the manager to answer")
        yield program
    finally:
        program.stop()


def metric(port: int, name: str, **labels: str) -> float | None:
    """Return a value of a manager's metrics, or None where there is no such series."""
    wanted = name + ("{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}" if labels else "")
    for line in programs.get_text(f"http://127.0.0.1:{port}/metrics").splitlines():
        series, _, value = line.rpartition(" ")
        if series == wanted:
            return float(value)
    return None


def leads(port: int) -> bool:
    """Return whether the manager at a port is the one that works."""
    return metric(port, "cotenant_manager_leading") == 1.0


def write_config(annotations: Mapping[str, str] | None = None, **sections: Any) -> None:
    """Write the ConfigMap; keys come with underscores and without ``-config``, values as JSON or as text."""
    data = {
        f"{name.replace('_', '-')}-config": value if isinstance(value, str) else json.dumps(value)
        for name, value in sections.items()
    }
    body = {"metadata": {"name": "slo-controller-config", "annotations": dict(annotations or {})}, "data": data}
    if objects.found(CONFIG) is None:
        cluster.request("POST", CONFIG_MAPS, body)
    else:
        cluster.request("PUT", CONFIG, body)


def policies() -> dict[str, dict[str, Any]]:
    """Return all NodeSLOs by their names."""
    return {one["metadata"]["name"]: one for one in cluster.request("GET", NODE_SLOS)["items"]}


def suppress_percents() -> dict[str, int]:
    """Return from each NodeSLO how far offline work may go."""
    return {
        name: one["spec"]["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"]
        for name, one in policies().items()
        if "resourceUsedThresholdWithBE" in one["spec"]
    }


def node_names() -> set[str]:
    """Return the names of all nodes."""
    return {one["metadata"]["name"] for one in cluster.request("GET", "/api/v1/nodes")["items"]}
