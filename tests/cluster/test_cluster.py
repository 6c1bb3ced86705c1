"""The cluster itself: a real pod runs in a real kubepods group, and simulated nodes take pods."""

import pathlib
import time
from collections.abc import Callable

import images

import cluster


def pod(name: str, node_label: str, resources: dict | None = None) -> dict:
    """Return a pod for the real node (``real``) or a simulated one (``kwok``)."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "hostNetwork": True,
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"cotenant.io/test-node": node_label},
            "containers": [
                {
                    "name": "main",
                    "image": images.BUSYBOX,
                    "imagePullPolicy": "Never",
                    "args": ["sleep 600"],
                    "resources": resources or {},
                }
            ],
        },
    }


def wait_for(what: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for a state.

    :raises TimeoutError: if it does not come.
    """
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not reached within {seconds:.0f} s")
        time.sleep(0.2)


def phase(name: str) -> str:
    return str(cluster.request("GET", f"/api/v1/namespaces/default/pods/{name}")["status"].get("phase"))


def test_a_real_pod_runs_in_a_kubepods_group(kubeconfig: pathlib.Path) -> None:
    limits = {"limits": {"cpu": "100m", "memory": "50Mi"}}
    made = cluster.request("POST", "/api/v1/namespaces/default/pods", pod("guaranteed", "real", limits))
    try:
        wait_for(lambda: phase("guaranteed") == "Running")
        group = pathlib.Path("/sys/fs/cgroup/cpu/kubepods") / f"pod{made['metadata']['uid']}"
        assert (group / "cpu.cfs_quota_us").read_text() == "10000\n"
    finally:
        cluster.request("DELETE", "/api/v1/namespaces/default/pods/guaranteed")


def test_a_simulated_node_takes_pods(kubeconfig: pathlib.Path) -> None:
    cluster.request("POST", "/api/v1/namespaces/default/pods", pod("simulated", "kwok"))
    try:
        wait_for(lambda: phase("simulated") == "Running")
    finally:
        cluster.request("DELETE", "/api/v1/namespaces/default/pods/simulated")
