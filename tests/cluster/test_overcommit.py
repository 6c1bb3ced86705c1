"""From what the real node's pods use to what its Node offers, and back: real kubelet, scheduler and API server."""

import contextlib
import json
import os
import pathlib
import re
import signal
from collections.abc import Iterator
from typing import Any

import objects
import pipeline
import programs
import pytest
from objects import PODS, wait_for
from processes import Processes

import cluster
import node
from cotenant.units import quantity

LISTEN = "127.0.0.1:18090"
NODE = f"/api/v1/nodes/{node.NAME}"
NAMESPACE = "/api/v1/namespaces/koordinator-system"
CONFIG = f"{NAMESPACE}/configmaps"
CPU, MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
RESERVED = 2000
"""Thousandths of a core that are reserved for the system, and so count for it whatever else this machine does."""
STRATEGY = {
    "enable": True,
    "cpuReclaimThresholdPercent": 400,
    "resourceDiffThreshold": 0.01,
    "metricAggregateDurationSeconds": 1,
    "degradeTimeMinutes": 1,
}
PROMISED_SECONDS = 15.0


def offered(resource: str = CPU, at: str = NODE) -> int | None:
    """Return what a node offers, if capacity and allocatable agree."""
    status = cluster.request("GET", at)["status"]
    has, offers = status["capacity"].get(resource), status["allocatable"].get(resource)
    return None if has is None or has != offers else quantity.whole(offers)


def configure(**changes: Any) -> None:
    """Write the ConfigMap."""
    if objects.found(NAMESPACE) is None:
        cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": "koordinator-system"}})
    objects.delete(f"{CONFIG}/slo-controller-config")
    data = {"colocation-config": json.dumps(STRATEGY | changes)}
    cluster.request("POST", CONFIG, {"metadata": {"name": "slo-controller-config"}, "data": data})


@contextlib.contextmanager
def manager(directory: pathlib.Path) -> Iterator[programs.Program]:
    program = programs.Program(["manager", f"--listen={LISTEN}", "--namespace=default"], directory / "manager.log")
    try:
        wait_for(lambda: programs.answers(f"http://{LISTEN}/healthz"), 30, program.output)
        yield program
    finally:
        program.stop()


@contextlib.contextmanager
def agent(directory: pathlib.Path) -> Iterator[programs.Program]:
    program = programs.node_agent(directory, f"--analyzer={pipeline.ANALYZER}", own_run=directory / "run")
    try:
        yield program
    finally:
        program.stop()


def is_told_as_it_is() -> bool:
    """Return whether the command says what the batch pod asks for and what the node offers, which moves."""
    said = programs.run(["overcommit", node.NAME, "--json"])
    told = json.loads(said.stdout)
    return bool(told["asked"] == {CPU: 1000, MEMORY: 32 << 20} and told["offered"][CPU] == offered())


def signal_pod(uid: str, number: int) -> None:
    """Send a signal to every process of a pod."""
    for tasks in pathlib.Path(f"/sys/fs/cgroup/cpu/kubepods/burstable/pod{uid}").rglob("cgroup.procs"):
        for pid in tasks.read_text().split():
            os.kill(int(pid), number)


def restart_kubelet() -> None:
    """Have the kubelet begin anew, and wait until it has looked at its pods; their containers go on."""
    processes = Processes(cluster.STATE)
    processes.stop("kubelet")
    before = heartbeat()
    node.start_kubelet(cluster.STATE, cluster.built_binaries(), processes)
    wait_for(lambda: heartbeat() != before, 60, "the kubelet to say that it is ready")
    programs.settle(10)


def heartbeat() -> str:
    """Return when the kubelet last said that it is ready."""
    conditions = cluster.request("GET", NODE)["status"]["conditions"]
    return next((one["lastHeartbeatTime"] for one in conditions if one["type"] == "Ready"), "")


@pytest.fixture(scope="module")
def busy(kubeconfig: pathlib.Path) -> Iterator[str]:
    """The uid of a pod of an online service that takes a core."""
    if not pathlib.Path("/sys/fs/cgroup/cpu/cpu.shares").exists():
        pytest.skip("the groups looked at here are those of cgroup v1, where the real node of a test runs today")
    reservation = json.dumps({"resources": {"cpu": f"{RESERVED}m"}})
    objects.patch(NODE, {"metadata": {"annotations": {"node.koordinator.sh/reservation": reservation}}})
    some = {"requests": {"cpu": "100m"}, "limits": {"cpu": "1", "memory": "50Mi"}}
    body = objects.pod("service", "real", some, command="while :; do :; done", labels={"koordinator.sh/qosClass": "LS"})
    uid = cluster.request("POST", PODS, body)["metadata"]["uid"]
    try:
        wait_for(lambda: objects.phase("service") == "Running", 90, "the service to run")
        yield uid
    finally:
        objects.delete(f"{PODS}/service")
        objects.delete(f"{CONFIG}/slo-controller-config")
        objects.patch(NODE, {"metadata": {"annotations": {"node.koordinator.sh/reservation": None}}})


def batch_pod(name: str, millicores: int) -> dict[str, Any]:
    amount = {CPU: str(millicores), MEMORY: "32Mi"}
    return objects.pod(name, "real", {"requests": amount, "limits": amount}, labels={"koordinator.sh/qosClass": "BE"})


def test_use_is_told_in_time_survives_the_kubelet_and_its_loss_evicts_nobody(busy: str, tmp_path: pathlib.Path) -> None:
    configure()
    whole = cluster.request("GET", NODE)["status"]["capacity"]["cpu"]
    most = 4000 * int(whole) - RESERVED
    try:
        with pipeline.analyzer(tmp_path), manager(tmp_path) as managing:
            with agent(tmp_path):
                took = wait_for(lambda: offered() is not None, 60, managing.output)
                print(f"first offered after {took:.1f} s: {offered()} millicores of batch CPU")
                assert offered(MEMORY) is not None
                signal_pod(busy, signal.SIGSTOP)
                rose = wait_for(lambda: (offered() or 0) >= most - 100, 40, "the offer to rise")
                signal_pod(busy, signal.SIGCONT)
                fell = wait_for(lambda: (offered() or most) < most - 200, 40, "the offer to fall")
                print(f"rose {rose:.1f} s after the service stopped, fell {fell:.1f} s after it went on")
                objects.assert_kept(max(rose, fell), PROMISED_SECONDS)

                cluster.request("POST", PODS, batch_pod("job", 1000))
                wait_for(lambda: objects.phase("job") == "Running", 60, "the batch pod to be placed and to run")

                wait_for(is_told_as_it_is, 60, lambda: programs.run(["overcommit", node.NAME]).stdout)

                gone = {"capacity": {CPU: None}, "allocatable": {CPU: None}}
                cluster.request("PATCH", f"{NODE}/status", {"status": gone}, "application/merge-patch+json")
                print(
                    f"back {wait_for(lambda: offered() is not None, 15, 'the offer to be back'):.1f} s after its loss"
                )
                restart_kubelet()
                wait_for(lambda: offered() is not None, 15, "the offer to outlive the kubelet")
                assert objects.phase("job") == "Running"
            # Nobody tells of the node any more. What is there stays, and nothing is added.
            took = wait_for(lambda: offered() == 1000, 120, managing.output)
            print(f"drained to what its pods ask for {took:.1f} s after the last word")
            restart_kubelet()
            assert objects.phase("job") == "Running"
            assert offered() == 1000
            objects.delete(f"{PODS}/job")
            wait_for(lambda: offered() is None, 30, "the rest to be taken back")
    finally:
        signal_pod(busy, signal.SIGCONT)
        objects.delete(f"{PODS}/job")


def writes() -> float:
    """Return how many Nodes the manager has written for overcommit."""
    text = programs.get_text(f"http://{LISTEN}/metrics")
    found = re.findall(r'^cotenant_manager_writes_total\{controller="overcommit-(?:falls|rises)"\} (\S+)$', text, re.M)
    return sum(float(value) for value in found)


def test_use_that_swings_does_not_become_a_storm_of_writes(kubeconfig: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Simulated nodes whose use is noise: what is offered settles, and the API server is left alone."""
    configure(cpuReclaimThresholdPercent=60, resourceDiffThreshold=0.02, metricAggregateDurationSeconds=300)
    path = f"/api/v1/nodes/kwok-{cluster.KWOK_NODES - 1}"
    try:
        with pipeline.analyzer(tmp_path), pipeline.simulated(tmp_path, cluster.KWOK_NODES), manager(tmp_path):
            wait_for(lambda: offered(at=path) is not None, 60, "what the last node offers")
            programs.settle(30)
            before = writes()
            programs.settle(30)
            added = writes() - before
            print(f"{before:.0f} writes at first, then {added:.0f} in 30 s for {cluster.KWOK_NODES} nodes")
            assert added <= 2 * cluster.KWOK_NODES
            configure(enable=False)
            wait_for(lambda: offered(at=path) is None, 30, "what the last node offers to be taken back")
    finally:
        objects.delete(f"{CONFIG}/slo-controller-config")


def test_a_kubelet_fails_running_pods_whose_resources_were_removed(kubeconfig: pathlib.Path) -> None:
    """Why a node is drained and not stripped: the danger is the kubelet's own, without anything of ours."""
    offer = {"capacity": {CPU: "2000", MEMORY: "1Gi"}, "allocatable": {CPU: "2000", MEMORY: "1Gi"}}
    gone = {name: dict.fromkeys(values) for name, values in offer.items()}
    cluster.request("PATCH", f"{NODE}/status", {"status": offer}, "application/merge-patch+json")
    try:
        cluster.request("POST", PODS, batch_pod("stripped", 1000))
        wait_for(lambda: objects.phase("stripped") == "Running", 60, "the batch pod to run")
        cluster.request("PATCH", f"{NODE}/status", {"status": gone}, "application/merge-patch+json")
        restart_kubelet()
        wait_for(lambda: objects.phase("stripped") == "Failed", 60, "the kubelet to refuse it")
        assert cluster.request("GET", f"{PODS}/stripped")["status"]["reason"] in (f"OutOf{CPU}", f"OutOf{MEMORY}")
    finally:
        objects.delete(f"{PODS}/stripped")
        cluster.request("PATCH", f"{NODE}/status", {"status": gone}, "application/merge-patch+json")
