"""Kata readiness on real Node objects, and where the real kube-scheduler puts Kata pods."""

import contextlib
import pathlib
from collections.abc import Iterator
from typing import Any

import objects
import pipeline
import programs
import pytest
from objects import PODS, wait_for

import cluster
import node

ABLE, LACKING = "kwok-0", "kwok-1"
RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
KATA = "kata-qemu"
LABEL = "cotenant.io/kata-ready"


@pytest.fixture
def looked_at(kubeconfig: pathlib.Path, tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """The real node with its agent, one host that has what Kata needs, one that lacks it, and a Kata RuntimeClass."""
    pipeline.install()
    (tmp_path / "lacking").mkdir()
    runtime_class = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": KATA}}
    with contextlib.ExitStack() as running:
        running.callback(pipeline.clean)
        running.callback(programs.run, ["scheduler", "--clear"])
        running.callback(objects.delete, f"{RUNTIME_CLASSES}/{KATA}")
        cluster.request("POST", RUNTIME_CLASSES, {**runtime_class, "handler": KATA})
        running.enter_context(pipeline.analyzer(tmp_path))
        running.enter_context(pipeline.simulated(tmp_path, 1, "--kata"))
        running.enter_context(pipeline.simulated(tmp_path / "lacking", 1, "--first=1", "--no-kata"))
        agent = programs.node_agent(tmp_path, f"--analyzer={pipeline.ANALYZER}", own_run=tmp_path / "run")
        running.callback(agent.stop)
        running.enter_context(pipeline.extender(tmp_path))
        running.enter_context(pipeline.asked_scheduler())
        yield tmp_path


def readiness(name: str) -> tuple[str, str, str] | None:
    """Return status, reason and message of a node's condition, or None where it has none."""
    for found in cluster.request("GET", f"/api/v1/nodes/{name}")["status"]["conditions"]:
        if found["type"] == "KataReady":
            return found["status"], found["reason"], found["message"]
    return None


def label(name: str) -> str | None:
    labels: dict[str, str] = cluster.request("GET", f"/api/v1/nodes/{name}")["metadata"]["labels"]
    return labels.get(LABEL)


def kata_pod(name: str, nodes: list[str], runtime: str = KATA) -> dict[str, Any]:
    """Return a pod that may go to some nodes."""
    body = objects.pod(name, "")
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}]}]
    body["spec"]["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    }
    if runtime:
        body["spec"]["runtimeClassName"] = runtime
    return body


def node_of(name: str) -> str:
    return str(cluster.request("GET", f"{PODS}/{name}")["spec"].get("nodeName") or "")


def why_not(name: str) -> str:
    """Return what the scheduler's own condition says of a pod that it could not place."""
    for found in cluster.request("GET", f"{PODS}/{name}")["status"].get("conditions") or []:
        if found["type"] == "PodScheduled":
            return str(found.get("message") or "")
    return ""


def test_kata_pods_land_on_ready_nodes_only(looked_at: pathlib.Path) -> None:
    for name, status, reason in (
        (ABLE, "True", "Ready"),
        (LACKING, "False", "HostRequirementMissing"),
        (node.NAME, "False", "HandlerNotOffered"),
    ):
        wait_for(lambda: (readiness(name) or ("",))[0] == status, 60, f"{name}: {readiness(name)}")  # noqa: B023
        found = readiness(name)
        assert found is not None
        assert found[1] == reason
        print(f"{name}: KataReady={found[0]} {found[1]}: {found[2]}")
        wait_for(lambda: label(name) == status.lower(), 10, f"{name}'s label")  # noqa: B023
    everywhere, unready = [ABLE, LACKING, node.NAME], [LACKING, node.NAME]
    made = {
        **{f"kata-{number}": kata_pod(f"kata-{number}", everywhere) for number in range(6)},
        "kata-nowhere": kata_pod("kata-nowhere", unready),
        "kata-untold": kata_pod("kata-untold", ["kwok-2"]),
        "ordinary": kata_pod("ordinary", unready, runtime=""),
    }
    try:
        for body in made.values():
            cluster.request("POST", PODS, body)
        for number in range(6):
            wait_for(lambda: node_of(f"kata-{number}"), 20, f"kata-{number}")  # noqa: B023
            assert node_of(f"kata-{number}") == ABLE
        wait_for(lambda: node_of("kata-untold") == "kwok-2", 20, "a node that nobody looked at passes")
        wait_for(lambda: node_of("ordinary") in unready, 20, "a pod without a Kata runtime is left alone")
        wait_for(lambda: why_not("kata-nowhere"), 20, "the scheduler's reason")
        print(why_not("kata-nowhere"))
        assert node_of("kata-nowhere") == ""
        assert f"container runtime offers no handler {KATA}" in why_not("kata-nowhere")
        assert "host lacks kvm, vhostVsock, virtualisation" in why_not("kata-nowhere")

        objects.delete(f"{RUNTIME_CLASSES}/{KATA}")  # without the object, its name says it: judged by the hosts alone
        wait_for(lambda: (readiness(node.NAME) or ("", ""))[1] != "HandlerNotOffered", 30, "the host's own facts")
        print(f"without the RuntimeClass: {readiness(node.NAME)}")
    finally:
        for name in made:
            objects.delete(f"{PODS}/{name}")
    cleared = programs.run(["scheduler", "--clear"])
    assert cleared.returncode == 0, cleared.stderr
