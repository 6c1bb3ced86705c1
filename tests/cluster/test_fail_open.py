"""Programs die and hang under a steady arrival of pods: each pod is placed all the same, and all heals by itself."""

import contextlib
import http.client
import os
import pathlib
import signal
import threading
import time
from collections.abc import Iterator

import objects
import pipeline
import programs
import pytest
from objects import PODS, wait_for
from processes import Processes

import cluster

OUTAGE_SECONDS = 30.0
PAUSE_SECONDS = 5.0
"""Of programs that are stopped rather than killed: what hangs is seen at once."""
PODS_PER_SECOND = 5
ARRIVING = "app=arriving"


class Arrivals:
    """Makes pods at a steady rate; what the API server does not take is no arrival."""

    def __init__(self) -> None:
        self.made: dict[str, float] = {}
        self.refused = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._arrive)

    def __enter__(self) -> "Arrivals":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _arrive(self) -> None:
        for number in range(10_000):
            if self._ending.wait(1 / PODS_PER_SECOND):
                return
            name = f"arrival-{number}"
            try:
                cluster.request("POST", PODS, objects.pod(name, "kwok", labels={"app": "arriving"}))
                self.made[name] = time.monotonic()
            except (OSError, http.client.HTTPException):
                self.refused += 1

    def unplaced(self) -> set[str]:
        """Return the pods that no node has yet."""
        listed = cluster.request("GET", f"{PODS}?labelSelector={ARRIVING.replace('=', '%3D')}")["items"]
        placed = {item["metadata"]["name"] for item in listed if item["spec"].get("nodeName")}
        return set(self.made) - placed


@pytest.fixture(scope="module")
def steered(kubeconfig: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    """Analyzer and streams of the simulated nodes, for all tests of this file; the extender belongs to each test."""
    directory = tmp_path_factory.mktemp("steered")
    pipeline.install()
    with contextlib.ExitStack() as running:
        running.callback(pipeline.clean)
        running.enter_context(pipeline.simulated(directory, cluster.KWOK_NODES))
        running.enter_context(pipeline.asked_scheduler(patient=False))
        yield directory


@pytest.fixture
def extender(steered: pathlib.Path, tmp_path: pathlib.Path) -> Iterator[programs.Program]:
    with pipeline.extender(tmp_path) as program:
        yield program


@pytest.fixture
def analyzer(steered: pathlib.Path, tmp_path: pathlib.Path) -> Iterator[programs.Program]:
    with pipeline.analyzer(tmp_path) as program:
        wait_for(lambda: "interferenceLevel" in pipeline.report("kwok-3"), 60, "reports")
        yield program


@contextlib.contextmanager
def arriving() -> Iterator[Arrivals]:
    """Have pods arrive for a second before and after what happens inside, then see each of them placed."""
    arrivals = Arrivals()
    try:
        with arrivals:
            programs.settle(1)
            yield arrivals
            programs.settle(1)
        took = wait_for(lambda: not arrivals.unplaced(), 60, "every pod to be placed")
        print(f"{len(arrivals.made)} pods made, {arrivals.refused} refused; all placed {took:.1f} s after the last")
        assert len(arrivals.made) >= 5
    finally:
        objects.delete(f"{PODS}?labelSelector={ARRIVING.replace('=', '%3D')}")


def test_a_killed_extender(analyzer: programs.Program, extender: programs.Program) -> None:
    with arriving():
        extender.kill()
        programs.settle(OUTAGE_SECONDS)


def test_a_stopped_worker_is_replaced(analyzer: programs.Program, extender: programs.Program) -> None:
    before = extender.workers()
    assert before
    with arriving():
        for worker in before:
            os.kill(worker, signal.SIGSTOP)
        took = wait_for(lambda: programs.answers(f"http://{pipeline.EXTENDER}/healthz"), 20, "the extender")
        print(f"the extender answers {took:.2f} s after its worker was stopped")
        programs.settle(max(0.0, PAUSE_SECONDS - took))
    assert extender.returncode is None, extender.output()


def test_everything_of_ours_stopped(analyzer: programs.Program, extender: programs.Program) -> None:
    with arriving():
        stopped = [extender.pid, *extender.workers(), analyzer.pid]
        for process in stopped:
            os.kill(process, signal.SIGSTOP)
        try:
            programs.settle(PAUSE_SECONDS)
        finally:
            for process in stopped:
                os.kill(process, signal.SIGCONT)
    wait_for(lambda: programs.answers(f"http://{pipeline.EXTENDER}/healthz"), 20, "the extender")


def test_a_killed_leader_of_two_analyzers(
    analyzer: programs.Program, extender: programs.Program, tmp_path: pathlib.Path
) -> None:
    with pipeline.analyzer(tmp_path, listen="127.0.0.1:17444") as second, arriving():
        before = holder()
        analyzer.kill()
        took = wait_for(lambda: holder() != before, 30, "another leader")
        print(f"another analyzer leads after {took:.1f} s")
        assert holder().endswith("17444")
        programs.settle(max(0.0, OUTAGE_SECONDS - took))
        objects.assert_kept(took, 15)
        assert second.returncode is None


def holder() -> str:
    lease = cluster.request("GET", "/apis/coordination.k8s.io/v1/namespaces/default/leases/cotenant-analyzer")
    return str(lease["spec"].get("holderIdentity"))


@pytest.mark.parametrize("name", ["kube-apiserver", "etcd"])
def test_the_control_plane_away(analyzer: programs.Program, extender: programs.Program, name: str) -> None:
    processes = Processes(cluster.STATE)
    with arriving():
        processes.kill(name)  # its end in good order takes the API server a minute
        try:
            programs.settle(OUTAGE_SECONDS)
            assert programs.answers(f"http://{pipeline.EXTENDER}/readyz")
        finally:
            cluster.start_again(name)
        wait_for(lambda: cluster.request("GET", "/readyz").get("text") == "ok", 60, "the API server")
    assert analyzer.returncode is None, analyzer.output()
    assert extender.returncode is None, extender.output()
    wait_for(lambda: readiness()["source"]["analyzer"] == "alive", 60, "the extender to see the analyzer again")
    assert_rules_are_followed()


def readiness() -> dict:
    return dict(programs.get_json(f"http://{pipeline.EXTENDER}/readyz"))


def assert_rules_are_followed() -> None:
    """See a change of rules come into force, which needs the analyzer's watch and its writes."""
    path = f"{pipeline.RULES}/default"
    window = 21 - cluster.request("GET", path)["spec"]["windowSeconds"]
    objects.patch(path, {"spec": {"windowSeconds": window}})

    def in_force() -> bool:
        found = cluster.request("GET", path)
        return bool(found.get("status", {}).get("activeGeneration") == found["metadata"]["generation"])

    wait_for(in_force, 60, "new rules to be in force")
