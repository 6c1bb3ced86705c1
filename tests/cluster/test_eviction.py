"""Evictions on the real node by the real API server: who goes, who is held back by a budget, and what is told."""

import pathlib
from collections.abc import Iterator
from typing import Any

import objects
import programs
import pytest
from objects import PODS, wait_for

import cluster
import node

QOS = "koordinator.sh/qosClass"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
EVENTS = "/api/v1/namespaces/default/events"
METRICS = "127.0.0.1:17073"
SLO = {
    "resourceUsedThresholdWithBE": {
        "enable": True,
        "memoryEvictThresholdPercent": 1,
        "memoryEvictLowerPercent": 0,
    }
}
"""Any node is past this, and no pod that goes brings it below."""
NAMES = ("free", "guarded", "kept", "online")


@pytest.fixture
def pods(kubeconfig: pathlib.Path) -> Iterator[dict[str, str]]:
    """Four pods by name with their uids: three offline (one guarded by a budget, one opted out) and one online."""
    objects.install_node_slos()
    objects.set_node_slo(node.NAME, SLO)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "guarded"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}},
    }
    cluster.request("POST", BUDGETS, budget)
    made = {
        "free": objects.pod("free", "real", labels={QOS: "BE"}),
        "guarded": objects.pod("guarded", "real", labels={QOS: "BE", "app": "guarded"}),
        "kept": objects.pod("kept", "real", labels={QOS: "BE", "koordinator.sh/eviction-enabled": "false"}),
        "online": objects.pod("online", "real", {"requests": {"cpu": "10m"}}, labels={QOS: "LS"}),
    }
    uids = {name: cluster.request("POST", PODS, body)["metadata"]["uid"] for name, body in made.items()}
    try:
        for name in made:
            wait_for(lambda: objects.phase(name) == "Running", 90, name)  # noqa: B023 - called at once
        wait_for(lambda: allowed() is not None, 30, "the budget to be watched over")
        yield uids
    finally:
        for name in NAMES:
            objects.delete(f"{PODS}/{name}")
        objects.delete(f"{BUDGETS}/guarded")
        objects.delete(f"{objects.NODE_SLOS}/{node.NAME}")


def allowed() -> int | None:
    status = cluster.request("GET", f"{BUDGETS}/guarded").get("status") or {}
    found: int | None = status.get("disruptionsAllowed") if status.get("currentHealthy") else None
    return found


def events_of(uid: str) -> list[dict[str, Any]]:
    listed = cluster.request("GET", EVENTS)["items"]
    return [
        one
        for one in listed
        if one["involvedObject"].get("uid") == uid and one["source"].get("component") == "cotenant-node"
    ]


def counted(result: str) -> float:
    line = next(
        line for line in programs.get_text(f"http://{METRICS}/metrics").splitlines()
        if line.startswith(f'cotenant_node_evictions_total{{result="{result}"}}')
    )  # fmt: skip
    return float(line.split()[-1])


def test_offline_pods_go_within_budgets_and_each_is_told_why(pods: dict[str, str], tmp_path: pathlib.Path) -> None:
    assert allowed() == 0
    options = ("--mode=enforce", "--evict", f"--metrics={METRICS}")
    agent = programs.node_agent(tmp_path, *options, own_run=tmp_path / "run")
    try:
        took = wait_for(lambda: objects.found(f"{PODS}/free") is None, 60, agent.output)
        print(f"evicted and gone {took:.1f} s after the start of the agent")
        (told,) = wait_events(pods["free"])
        assert told["reason"] == "EvictedByCotenant"
        assert told["type"] == "Warning"
        assert "BEMemoryEvict: the node uses" in told["message"]
        wait_for(lambda: counted("refused") >= 1, 30, "the budget's refusal")
        programs.settle(10)
        for name in ("guarded", "kept", "online"):
            found = objects.found(f"{PODS}/{name}")
            assert found is not None, name
            assert found["metadata"]["uid"] == pods[name]
            assert "deletionTimestamp" not in found["metadata"], name
        assert counted("accepted") == 1
        assert counted("refused") == 1
        assert events_of(pods["guarded"]) == []
    finally:
        agent.stop()
        programs.run(["restore"], own_run=tmp_path / "run")
    assert agent.returncode == 0, agent.output()


def wait_events(uid: str) -> list[dict[str, Any]]:
    wait_for(lambda: events_of(uid), 10, "an event")
    return events_of(uid)


def test_without_the_option_nobody_is_evicted(pods: dict[str, str], tmp_path: pathlib.Path) -> None:
    agent = programs.node_agent(tmp_path, "--mode=enforce", f"--metrics={METRICS}", own_run=tmp_path / "run")
    try:
        wait_for(lambda: "left_out" in programs.get_text(f"http://{METRICS}/metrics"), 60, agent.output)
        programs.settle(5)
        assert {name: objects.phase(name) for name in NAMES} == dict.fromkeys(NAMES, "Running")
    finally:
        agent.stop()
        programs.run(["restore"], own_run=tmp_path / "run")


def restarts(name: str) -> int:
    statuses = (objects.found(f"{PODS}/{name}") or {}).get("status", {}).get("containerStatuses") or []
    return sum(int(one["restartCount"]) for one in statuses)


def test_with_a_runtime_a_budget_does_not_keep_memory(pods: dict[str, str], tmp_path: pathlib.Path) -> None:
    """The real containerd ends the guarded pod's container; the kubelet starts it again in the same pod."""
    runtime = cluster.STATE / "containerd.sock"
    options = ("--mode=enforce", "--evict", f"--runtime={runtime}", f"--metrics={METRICS}")
    agent = programs.node_agent(tmp_path, *options, own_run=tmp_path / "run")
    try:
        wait_for(lambda: restarts("guarded") >= 1, 60, agent.output)
        assert counted("killed") >= 1
        told = [event["message"] for event in wait_events(pods["guarded"])]
        assert any("killed: a disruption budget refuses" in text for text in told)
        assert (restarts("kept"), restarts("online")) == (0, 0)
    finally:
        agent.stop()
        programs.run(["restore"], own_run=tmp_path / "run")
