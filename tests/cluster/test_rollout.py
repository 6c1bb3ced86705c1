"""A staged rollout on the real API server: to the end, back again, through killed managers and a person's hands."""

import contextlib
import pathlib
import signal
import urllib.error
from collections.abc import Iterator
from typing import Any

import objects
import pipeline
import programs
import pytest
from objects import wait_for

import cluster

ROLLOUTS = "/apis/cotenant.io/v1alpha1/colocationrollouts"
EVENTS = "/api/v1/namespaces/default/events"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/cotenant-manager"
MODE = "cotenant.io/mode"
HOLD = "cotenant.io/rollout"
KWOK = [f"kwok-{number}" for number in range(cluster.KWOK_NODES)]
MIXED = ("--interface=openeuler-qos-level", "--interface=anolis-bvt")
"""In turn: nodes of even numbers are openEuler's."""
SPEC: dict[str, Any] = {
    "change": {"mode": "enforce"},
    "nodeSelector": {"cotenant.io/test-node": "kwok"},
    "stages": [{"name": "canary", "share": 0.05, "soakSeconds": 15}, {"name": "rest", "soakSeconds": 10}],
    "gates": {
        "interferenceLevel": {"max": 0.3},
        "irreversibleWrites": {"allowedInterfaces": ["openeuler-qos-level"]},
    },
    "stopping": {"failSeconds": 4, "unknownSeconds": 120},
}


@contextlib.contextmanager
def manager(directory: pathlib.Path, port: int = 18090) -> Iterator[programs.Program]:
    program = programs.Program(
        ["manager", "--namespace=default", f"--listen=127.0.0.1:{port}"], directory / f"manager-{port}.log"
    )
    try:
        yield program
    finally:
        program.stop()


@contextlib.contextmanager
def streaming(directory: pathlib.Path, *options: str) -> Iterator[None]:
    """Run an analyzer, and simulated agents of both kinds that obey their nodes' labels."""
    with contextlib.ExitStack() as running:
        running.callback(pipeline.clean)
        running.enter_context(pipeline.analyzer(directory))
        running.enter_context(pipeline.simulated(directory, cluster.KWOK_NODES, "--follow", *MIXED, *options))
        for name in KWOK:
            wait_for(lambda: "nodeFacts" in pipeline.report(name), 60, f"a report of {name}")  # noqa: B023
        yield


@pytest.fixture
def rollouts(kubeconfig: pathlib.Path) -> Iterator[None]:
    """The kinds, and no rollout, label or annotation left over."""
    pipeline.install()
    wait_for(lambda: objects.found(ROLLOUTS) is not None, 20, "the kind")
    try:
        yield
    finally:
        objects.delete(ROLLOUTS)
        for name in KWOK:
            objects.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {MODE: None}, "annotations": {HOLD: None}}})


def begin(name: str = "r", **changes: Any) -> None:
    body = {"apiVersion": "cotenant.io/v1alpha1", "kind": "ColocationRollout", "metadata": {"name": name}}
    cluster.request("POST", ROLLOUTS, {**body, "spec": SPEC | changes})


def status(name: str = "r") -> dict[str, Any]:
    return dict(cluster.request("GET", f"{ROLLOUTS}/{name}").get("status") or {})


def phase() -> str:
    return str(status().get("phase"))


def modes() -> dict[str, str | None]:
    listed = cluster.request("GET", "/api/v1/nodes?labelSelector=cotenant.io/test-node%3Dkwok")["items"]
    return {node["metadata"]["name"]: node["metadata"]["labels"].get(MODE) for node in listed}


def changed() -> set[str]:
    return {name for name, mode in modes().items() if mode == "enforce"}


def holder() -> str:
    """Return who leads; empty when nobody does."""
    return str((objects.found(LEASE) or {"spec": {}})["spec"].get("holderIdentity") or "")


def order(*words: str) -> str:
    done = programs.run(["rollout", *words])
    assert done.returncode == 0, done.stderr
    return done.stdout


def label(name: str, mode: str | None) -> None:
    objects.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {MODE: mode}}})


def test_a_failing_gate_takes_the_canary_back(rollouts: None, tmp_path: pathlib.Path) -> None:
    label("kwok-3", "dry-run")
    before = modes()
    with streaming(tmp_path, f"--noisy-when={MODE}=enforce"), manager(tmp_path):
        begin(stages=[{"name": "canary", "share": 0.05, "soakSeconds": 600}, {"name": "rest"}])
        canaries: set[str] = set()

        def is_rolled_back() -> bool:
            canaries.update(changed())
            return phase() == "RolledBack"

        took = wait_for(is_rolled_back, 150, lambda: f"the rollback: {status()}")
        print(f"the canaries {canaries} were noisy, and everything was back {took:.1f} s after the beginning")
        shown = order("status", "r")
    assert modes() == before
    stopped = status()["stopped"]
    assert stopped["reason"] == "GateFailed"
    assert "interferenceLevel failing" in stopped["message"]
    assert 1 <= len(canaries) <= 2, canaries
    assert "GateFailed" in shown
    told = [one["reason"] for one in cluster.request("GET", EVENTS)["items"] if one["involvedObject"]["name"] == "r"]
    assert {"RollingBack", "RolledBack"} <= set(told)


def test_the_leader_is_killed_in_the_middle_and_another_ends_it(rollouts: None, tmp_path: pathlib.Path) -> None:
    with streaming(tmp_path), manager(tmp_path, 18090) as first:
        wait_for(lambda: first.returncode is None and holder(), 30, "a leader")
        led = holder()
        with manager(tmp_path, 18091) as second:
            begin(stages=[{"name": "canary", "share": 0.05, "soakSeconds": 40}, {"name": "rest", "soakSeconds": 10}])
            wait_for(
                lambda: phase() == "Soaking" and len(changed()) == 2, 60, lambda: f"the canary to soak: {status()}"
            )
            assert {int(name.removeprefix("kwok-")) % 2 for name in changed()} == {0, 1}, "one of each interface"
            first.kill()
            took = wait_for(lambda: holder() not in (led, ""), 30, "another leader")
            print(f"another manager leads after {took:.1f} s")
            assert len(changed()) == 2, "nothing went on while nobody led"
            wait_for(lambda: len(changed()) > 2, 90, lambda: f"the second stage: {status()}")
            with manager(tmp_path, 18092):  # and a third, while the second hangs
                second.signal(signal.SIGSTOP)
                wait_for(lambda: holder() not in (led, "") and len(changed()) == 20, 120, "all nodes to be changed")
                second.signal(signal.SIGCONT)
                wait_for(lambda: phase() == "Completed", 120, lambda: f"the end: {status()}")
    assert changed() == set(KWOK)
    for name in KWOK:
        assert HOLD not in cluster.request("GET", f"/api/v1/nodes/{name}")["metadata"]["annotations"]


def test_pause_resume_and_abort_beside_a_person(rollouts: None, tmp_path: pathlib.Path) -> None:
    with streaming(tmp_path), manager(tmp_path):
        begin(stages=[{"name": "canary", "share": 0.05, "soakSeconds": 40}, {"name": "rest"}])
        wait_for(lambda: len(changed()) == 2, 60, "the canary")
        order("pause", "r")
        wait_for(lambda: phase() == "Paused", 20, "the pause")
        programs.settle(20)
        assert len(changed()) == 2
        order("resume", "r")
        wait_for(lambda: len(changed()) > 2, 90, "the second stage")
        meddled = sorted(changed())[:2]
        label(meddled[0], "observe")
        label(meddled[1], None)
        order("abort", "r")
        wait_for(lambda: phase() == "RolledBack", 60, lambda: f"the rollback: {status()}")
    assert modes() == dict.fromkeys(KWOK) | {meddled[0]: "observe"}


def test_the_api_server_refuses_what_cannot_be_meant(rollouts: None) -> None:
    for wrong, what in (
        ({"stages": []}, "give one stage at least"),
        ({"change": {}}, "give mode, nodeSLO or rules"),
        ({"stages": [{"name": "a", "share": 0}]}, "greater than 0"),
        ({"gates": {"interferenceLevel": {}}}, "give max, maxIncrease or both"),
    ):
        with pytest.raises(urllib.error.HTTPError) as refused:
            begin(**wrong)
        assert refused.value.code == 422
        assert what in str(refused.value.msg), refused.value.msg
    begin()
    with pytest.raises(urllib.error.HTTPError) as refused:
        objects.patch(f"{ROLLOUTS}/r", {"spec": {"change": {"mode": "dry-run"}}})
    assert "make another rollout" in str(refused.value.msg)
