"""The objects that tests make, and how they wait for what becomes of them."""

import http.client
import time
import urllib.error
from collections.abc import Callable, Mapping
from typing import Any

import images
import programs

import cluster

PODS = "/api/v1/namespaces/default/pods"
NODE_SLOS = "/apis/slo.koordinator.sh/v1alpha1/nodeslos"
NODE_METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies"
KOORDINATORS = (NODE_SLOS, NODE_METRICS, TOPOLOGIES)


PATIENCE = cluster.PATIENCE
"""Whoever asks for a state waits for so many times what it takes on a busy machine; a promised time is kept alike."""

LONGEST_LOOK_SECONDS = 2.0
"""Of the time from one look to the next, so much counts as waiting: the rest the machine, or a server, stood still."""


def wait_for(what: Callable[[], Any], seconds: float = 60, about: str | Callable[[], str] = "") -> float:
    """Wait until something is true; return how many seconds that took. A server that does not answer yet is no answer.

    :param seconds: that it takes on a busy machine; the wait ends after ``PATIENCE`` times as many.
    :param about: what is waited for; or what tells at the end how things are then.
    :raises TimeoutError: if it does not come; with the end of what each running program has said.
    """
    started = time.monotonic()
    looked, spent = started, 0.0
    why: object = ""
    while True:
        try:
            if what():
                return time.monotonic() - started
        except (OSError, http.client.HTTPException) as error:
            why = error
        if spent > PATIENCE * seconds:
            waited, told = time.monotonic() - started, about() if callable(about) else about
            raise TimeoutError(f"not reached within {waited:.0f} s: {told or what} {why}\n{programs.last_words()}")
        time.sleep(0.1)
        now = time.monotonic()
        spent += min(now - looked, LONGEST_LOOK_SECONDS)
        looked = now


def assert_kept(took: float, promised_seconds: float) -> None:
    """See that something took about as long as promised; on a machine that stands still, some times as long."""
    assert took <= PATIENCE * promised_seconds, f"{took:.1f} s, of {promised_seconds:.0f} that are promised"


def pod(
    name: str,
    node_label: str,
    resources: Mapping[str, Any] | None = None,
    *,
    command: str = "sleep 600",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return a pod for the real node (``real``), a simulated one (``kwok``) or any (empty)."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": dict(labels or {}), "annotations": dict(annotations or {})},
        "spec": pod_spec(node_label, resources, command),
    }


def pod_spec(node_label: str, resources: Mapping[str, Any] | None = None, command: str = "sleep 600") -> dict[str, Any]:
    """Return the specification of a pod of one container that runs a line of shell."""
    return {
        "hostNetwork": True,
        "terminationGracePeriodSeconds": 0,
        "nodeSelector": {"cotenant.io/test-node": node_label} if node_label else {},
        "containers": [
            {
                "name": "main",
                "image": images.BUSYBOX,
                "imagePullPolicy": "Never",
                "args": [command],
                "resources": dict(resources or {}),
            }
        ],
    }


def deployment(name: str, replicas: int, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Deployment whose pods carry the label ``app``."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": dict(spec)},
        },
    }


def phase(name: str) -> str:
    """Return a pod's phase."""
    return str(cluster.request("GET", f"{PODS}/{name}")["status"].get("phase"))


def found(path: str) -> dict[str, Any] | None:
    """Return an object, or None where there is none."""
    try:
        return cluster.request("GET", path)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise


def delete(path: str) -> None:
    """Delete an object or a collection at once; one that is not there is no matter."""
    try:
        cluster.request("DELETE", path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise


def patch(path: str, body: Mapping[str, Any]) -> None:
    """Merge fields into an object."""
    cluster.request("PATCH", path, body, "application/merge-patch+json")


def install_node_slos() -> None:
    """Define Koordinator's NodeSLO with as little as a server takes: any fields."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "nodeslos.slo.koordinator.sh"},
        "spec": {
            "group": "slo.koordinator.sh",
            "scope": "Cluster",
            "names": {"plural": "nodeslos", "singular": "nodeslo", "kind": "NodeSLO"},
            "versions": [
                {
                    "name": "v1alpha1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything}}},
                }
            ],
        },
    }
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    if found(f"{path}/nodeslos.slo.koordinator.sh") is None:
        cluster.request("POST", path, definition)
    wait_for(lambda: found(NODE_SLOS) is not None, 20, "NodeSLOs to be served")


def install_koordinators_kinds() -> None:
    """Define Koordinator's kinds as cotenant does for a cluster that has none, and wait until they are served."""
    done = programs.run(["crd", "install", "--koordinator"])
    if done.returncode:
        raise AssertionError(done.stdout + done.stderr)
    for path in KOORDINATORS:
        wait_for(lambda: found(path) is not None, 20, f"{path} to be served")  # noqa: B023 - called at once


def set_node_slo(name: str, spec: Mapping[str, Any]) -> None:
    """Make a node's NodeSLO, or replace it."""
    delete(f"{NODE_SLOS}/{name}")
    body = {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeSLO",
        "metadata": {"name": name},
        "spec": dict(spec),
    }
    cluster.request("POST", NODE_SLOS, body)
