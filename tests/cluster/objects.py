"""The objects that tests make, and how they wait for what becomes of them."""

import http.client
import time
import urllib.error
from collections.abc import Callable, Mapping
from typing import Any

import images

import cluster

PODS = "/api/v1/namespaces/default/pods"
NODE_SLOS = "/apis/slo.koordinator.sh/v1alpha1/nodeslos"


def wait_for(what: Callable[[], Any], seconds: float = 60, about: str = "") -> float:
    """Wait until something is true; return how many seconds that took. A server that does not answer yet is no answer.

    :raises TimeoutError: if it does not come.
    """
    started = time.monotonic()
    why: object = ""
    while True:
        try:
            if what():
                return time.monotonic() - started
        except (OSError, http.client.HTTPException) as error:
            why = error
        if time.monotonic() - started > seconds:
            raise TimeoutError(f"not reached within {seconds:.0f} s: {about or what} {why}")
        time.sleep(0.1)


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


ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def install_node_slos() -> None:
    """Define Koordinator's NodeSLO with as little as a server takes: any fields."""
    install_kind("slo.koordinator.sh", "nodeslos", "NodeSLO", {"spec": ANYTHING})


def install_kind(group: str, plural: str, kind: str, properties: Mapping[str, Any], *, status: bool = False) -> None:
    """Define a cluster-scoped kind ``v1alpha1`` that is not there yet, and wait until it is served."""
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"} if group.endswith("k8s.io") else {},
        },
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": [
                {
                    "name": "v1alpha1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}} if status else {},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": dict(properties)}},
                }
            ],
        },
    }
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    if found(f"{path}/{plural}.{group}") is None:
        cluster.request("POST", path, definition)
    wait_for(lambda: found(f"/apis/{group}/v1alpha1/{plural}") is not None, 20, f"{kind}s to be served")


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
