"""Agents are started anew, a tenth of them at a time: no verdict changes, no limit is dropped, a rollout goes on."""

import contextlib
import json
import pathlib
import threading
from collections.abc import Iterator
from typing import Any

import objects
import pipeline
import programs
import pytest
from objects import PODS, wait_for

import cluster
import node

ROLLOUTS = "/apis/cotenant.io/v1alpha1/colocationrollouts"
NODES = "/api/v1/nodes"
QOS = "koordinator.sh/qosClass"
CONFIG = "/api/v1/namespaces/default/configmaps"
STRATEGIES = {
    "resource-threshold-config": {
        "clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": 60, "cpuSuppressPolicy": "cfsQuota"}
    },
    "resource-qos-config": {"clusterStrategy": {"beClass": {"cpuQOS": {"enable": True}}}},
}
"""From these the manager makes the node's NodeSLO."""
CPU = pathlib.Path("/sys/fs/cgroup/cpu")
UPGRADED = ("kwok-0", "kwok-1")
"""A tenth of the simulated nodes; the first is noisy."""


class Watch(threading.Thread):
    """Looks many times a second and keeps each thing that was seen, once."""

    def __init__(self, look: Any, pause_seconds: float) -> None:
        super().__init__()
        self._look = look
        self._pause_seconds = pause_seconds
        self._ending = threading.Event()
        self.looks = 0
        self.seen: list[Any] = []

    def run(self) -> None:
        while not self._ending.wait(self._pause_seconds):
            found = self._look()
            self.looks += 1
            if found not in self.seen:
                self.seen.append(found)

    def __enter__(self) -> "Watch":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self.join()


@contextlib.contextmanager
def streaming(directory: pathlib.Path) -> Iterator[programs.Program]:
    """Stream for the tenth of the nodes that is upgraded, the first of them noisy."""
    directory.mkdir(exist_ok=True)
    with pipeline.simulated(directory, len(UPGRADED), "--noisy-ratio=0.5", "--follow") as program:
        yield program


def verdicts() -> Any:
    """Return what the cluster says of the nodes that are upgraded: reports and labels."""
    found = []
    for name in UPGRADED:
        report = pipeline.report(name)
        marks = cluster.request("GET", f"{NODES}/{name}")["metadata"]["labels"]
        marks = {key: value for key, value in marks.items() if key.startswith("cotenant.io/")}
        mode = (report.get("nodeFacts") or {}).get("mode")
        found.append((name, report.get("bucket"), report.get("hard"), mode, marks))
    return found


def test_a_tenth_of_the_agents_started_anew_changes_no_verdict(
    kubeconfig: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    pipeline.install()
    with contextlib.ExitStack() as running:
        running.callback(pipeline.clean)
        running.callback(programs.run, ["scheduler", "--clear"])
        running.enter_context(pipeline.analyzer(tmp_path))
        rest = cluster.KWOK_NODES - len(UPGRADED)
        running.enter_context(pipeline.simulated(tmp_path, rest, f"--first={len(UPGRADED)}"))
        running.enter_context(pipeline.extender(tmp_path))
        with streaming(tmp_path / "old"):
            wait_for(lambda: pipeline.report("kwok-0").get("hard") == ["psiIoSome"], 90, "a hard limit")
            wait_for(lambda: pipeline.report("kwok-1").get("bucket") == "none", 60, "a calm node")
            wait_for(lambda: "cotenant.io/avoid-online" in verdicts()[0][-1], 60, "the node to be avoided")
            programs.settle(12)
            before = verdicts()
            assert before[0][1] in ("high", "severe")
        with Watch(verdicts, 0.2) as watch:
            programs.settle(5)  # nobody samples these nodes meanwhile
            with streaming(tmp_path / "new"):
                programs.settle(30)
    print(f"looked {watch.looks} times")
    assert watch.seen == [before]
    assert watch.looks > 10


@pytest.fixture
def offline(kubeconfig: pathlib.Path) -> Iterator[pathlib.Path]:
    """An offline pod on the real node; its group."""
    if not (CPU / "cpu.shares").exists():
        pytest.skip("the files looked at here are those of cgroup v1, where the real node of a test runs today")
    objects.install_node_slos()
    data = {key: json.dumps(value) for key, value in STRATEGIES.items()}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "slo-controller-config"}, "data": data}
    cluster.request("POST", CONFIG, config)
    made = cluster.request(
        "POST", PODS, objects.pod("upgraded", "real", labels={QOS: "BE", "cotenant.io/workload-type": "scan"})
    )["metadata"]
    try:
        wait_for(lambda: objects.phase("upgraded") == "Running", 90)
        yield CPU / f"kubepods/besteffort/pod{made['uid']}"
    finally:
        objects.delete(f"{PODS}/upgraded")
        objects.delete(f"{CONFIG}/slo-controller-config")
        objects.delete(f"{CONFIG}/cotenant-slo-config")
        objects.delete(objects.NODE_SLOS)
        objects.delete(ROLLOUTS)
        gone = {"labels": {"cotenant.io/mode": None}, "annotations": {"cotenant.io/rollout": None}}
        objects.patch(f"{NODES}/{node.NAME}", {"metadata": gone})


@contextlib.contextmanager
def agent(directory: pathlib.Path, own_run: pathlib.Path) -> Iterator[None]:
    """Run the real node's agent, whose own mode is to observe."""
    program = programs.node_agent(directory, f"--analyzer={pipeline.ANALYZER}", own_run=own_run)
    try:
        yield
    finally:
        assert program.stop() == 0, program.output()


def test_a_rollout_enforces_on_the_real_node_through_upgrades_and_gives_all_back(
    offline: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    own_run = tmp_path / "run"

    def held() -> tuple[bool, bool]:
        quota = int((CPU / "kubepods/besteffort/cpu.cfs_quota_us").read_text())
        return (offline / "cpu.idle").read_text().strip() == "1", quota > 0

    def status() -> dict[str, Any]:
        return dict(cluster.request("GET", f"{ROLLOUTS}/real").get("status") or {})

    pipeline.install()
    with contextlib.ExitStack() as running:
        running.callback(pipeline.clean)
        running.callback(programs.run, ["restore"], own_run=own_run)
        running.enter_context(pipeline.analyzer(tmp_path))
        manager = programs.Program(
            [
                "manager",
                "--namespace=default",
                "--slo-config=default/slo-controller-config",
                "--listen=127.0.0.1:18093",
            ],
            tmp_path / "manager.log",
        )
        running.callback(manager.stop)
        running.callback(lambda: print(f"{status()}\n{manager.output()[-800:]}"))
        with agent(tmp_path, own_run):
            wait_for(lambda: pipeline.report().get("nodeFacts", {}).get("mode") == "observe", 60, "the agent's facts")
            wait_for(lambda: pipeline.report()["nodeFacts"].get("workloadTypes") == ["scan"], 60, "what it hosts")
            assert held() == (False, False)
            spec = {
                "change": {"mode": "enforce"},
                "nodeSelector": {"cotenant.io/test-node": "real"},
                "stages": [{"name": "all", "soakSeconds": 600}],
                "gates": {"evictions": {"maxPerNodeHour": 0}},
            }
            body = {"apiVersion": "cotenant.io/v1alpha1", "kind": "ColocationRollout", "metadata": {"name": "real"}}
            cluster.request("POST", ROLLOUTS, {**body, "spec": spec})
            wait_for(lambda: status().get("changed") == 1, 60, "the node to be changed")
            took = wait_for(lambda: held() == (True, True), 60, lambda: f"the node to enforce: {status()}")
            print(f"the real node was held {took:.1f} s after it was seen changed")
            wait_for(lambda: status().get("phase") == "Soaking", 60, lambda: f"the soak: {status()}")
        with Watch(held, 0.02) as watch:
            for _ in range(2):
                programs.settle(2)
                with agent(tmp_path, own_run):
                    programs.settle(10)
        assert watch.seen == [(True, True)], "no limit was dropped, for as long as a fiftieth of a second"
        assert status()["phase"] in ("Soaking", "Progressing"), status()
        with agent(tmp_path, own_run):
            programs.run(["rollout", "abort", "real"])
            took = wait_for(lambda: held() == (False, False), 60, lambda: f"everything to be given back: {status()}")
            print(f"everything was given back {took:.1f} s after the abort")
            wait_for(lambda: status().get("phase") == "RolledBack", 60, lambda: f"the end: {status()}")
            facts = pipeline.report()["nodeFacts"]
            assert facts["counts"].get("restoreFailures", 0) == 0
