"""The cluster itself: a real pod runs in a real kubepods group, and simulated nodes take pods."""

import pathlib

from objects import PODS, delete, phase, pod, wait_for

import cluster


def test_a_real_pod_runs_in_a_kubepods_group(kubeconfig: pathlib.Path) -> None:
    limits = {"limits": {"cpu": "100m", "memory": "50Mi"}}
    made = cluster.request("POST", PODS, pod("guaranteed", "real", limits))
    try:
        wait_for(lambda: phase("guaranteed") == "Running")
        group = pathlib.Path("/sys/fs/cgroup/cpu/kubepods") / f"pod{made['metadata']['uid']}"
        assert (group / "cpu.cfs_quota_us").read_text() == "10000\n"
    finally:
        delete(f"{PODS}/guaranteed")


def test_a_simulated_node_takes_pods(kubeconfig: pathlib.Path) -> None:
    cluster.request("POST", PODS, pod("simulated", "kwok"))
    try:
        wait_for(lambda: phase("simulated") == "Running")
    finally:
        delete(f"{PODS}/simulated")
