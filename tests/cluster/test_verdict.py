"""The verdict on Node objects: labels and the opt-in taint, within caps, beside other writers, and off again."""

import collections
import contextlib
import pathlib
import threading
import urllib.error
from collections.abc import Iterator
from typing import Any

import objects
import pipeline
import programs
import pytest
from objects import PODS, wait_for

import cluster

NODES = "/api/v1/nodes"
NOISY = ("kwok-0", "kwok-1", "kwok-2")
TAINT = "cotenant.io/interference"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/cotenant-scheduler"


def node(name: str) -> dict[str, Any]:
    return cluster.request("GET", f"{NODES}/{name}")


def labels(name: str) -> dict[str, str]:
    return {key: value for key, value in node(name)["metadata"]["labels"].items() if key.startswith("cotenant.io/")}


def taints(name: str) -> list[dict[str, Any]]:
    return list(node(name)["spec"].get("taints") or [])


def avoided() -> list[str]:
    return [name for name in NOISY if labels(name).get("cotenant.io/avoid-online") == "true"]


class TaintWriter(threading.Thread):
    """Changes a taint of its own on some nodes again and again, as another controller would."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self._key = key
        self.ending = threading.Event()
        self.wrote = 0

    def run(self) -> None:
        turn = 0
        while not self.ending.wait(0.05):
            turn += 1
            for name in NOISY:
                self._write(name, str(turn))
        for name in NOISY:
            while not self._write(name, "last"):
                pass

    def _write(self, name: str, value: str) -> bool:
        found = node(name)
        kept = [taint for taint in found["spec"].get("taints") or [] if taint["key"] != self._key]
        found["spec"]["taints"] = [*kept, {"key": self._key, "value": value, "effect": "PreferNoSchedule"}]
        try:
            cluster.request("PUT", f"{NODES}/{name}", found)
        except urllib.error.HTTPError as error:
            if error.code == 409:
                return False
            raise
        self.wrote += 1
        return True


@pytest.fixture
def marked(kubeconfig: pathlib.Path, tmp_path: pathlib.Path) -> Iterator[None]:
    """Three noisy and seventeen calm nodes, and a scheduler that writes labels and hard taints."""
    pipeline.install()
    (tmp_path / "noisy").mkdir()
    with contextlib.ExitStack() as running:
        running.callback(pipeline.clean)
        running.callback(objects.delete, LEASE)
        running.callback(programs.run, ["scheduler", "--clear"])
        running.enter_context(pipeline.analyzer(tmp_path))
        running.enter_context(pipeline.simulated(tmp_path, cluster.KWOK_NODES - len(NOISY), f"--first={len(NOISY)}"))
        running.enter_context(pipeline.simulated(tmp_path / "noisy", len(NOISY), "--noisy-ratio=1"))
        running.enter_context(pipeline.extender(tmp_path, "--taints=hard"))
        yield


def test_labels_and_taints_within_caps_beside_three_other_writers(marked: None) -> None:
    writers = [TaintWriter(f"example.com/writer-{number}") for number in range(3)]
    try:
        for writer in writers:
            writer.start()
        took = wait_for(lambda: avoided(), 90, "a node to be avoided")
        print(f"a node is avoided {took:.1f} s after the start of everything")
        wait_for(lambda: all(any(t["key"] == TAINT for t in taints(name)) for name in avoided()), 20, "its taint")
        programs.settle(3)
    finally:
        for writer in writers:
            writer.ending.set()
        for writer in writers:
            writer.join()
    print(f"others wrote {sum(writer.wrote for writer in writers)} taints meanwhile")
    (excluded,) = avoided()  # 5 % of 21 nodes is one, and no more a minute
    assert labels(excluded)["cotenant.io/avoid-offline"] == "true"
    wait_for(lambda: {labels(name).get(TAINT) for name in NOISY} <= {"high", "severe"}, 30, "the noisy nodes' labels")
    wait_for(lambda: labels("kwok-9").get(TAINT) == "none", 30, "a calm node's label")
    others = {(f"example.com/writer-{n}", "last", "PreferNoSchedule") for n in range(3)}
    for name in NOISY:
        found = {(t["key"], t.get("value"), t["effect"]) for t in taints(name) if t["key"] != TAINT}
        assert found == others, name
        assert any(t["key"] == TAINT for t in taints(name)) == (name == excluded)
    refused = objects.pod("refused", "kwok")
    refused["spec"]["nodeSelector"] = {"kubernetes.io/hostname": excluded}
    cluster.request("POST", PODS, refused)
    try:
        programs.settle(3)
        assert not cluster.request("GET", f"{PODS}/refused")["spec"].get("nodeName")
        objects.patch(LEASE, {"metadata": {"annotations": {"cotenant.io/verdicts": "off"}}})
        took = wait_for(lambda: not avoided() and not any(t["key"] == TAINT for t in taints(excluded)), 30)
        print(f"the switch took the verdicts off after {took:.1f} s")
        wait_for(lambda: cluster.request("GET", f"{PODS}/refused")["spec"].get("nodeName"), 30, "the pod to be placed")
    finally:
        objects.delete(f"{PODS}/refused")
        for name in NOISY:
            objects.patch(f"{NODES}/{name}", {"spec": {"taints": None}})
    cleared = programs.run(["scheduler", "--clear"])
    assert cleared.returncode == 0, cleared.stderr
    for name in (*NOISY, "kwok-9"):
        assert labels(name) == {"cotenant.io/test-node": "kwok"}


def test_by_labels_alone_pods_prefer_other_nodes_and_are_never_kept_out(kubeconfig: pathlib.Path) -> None:
    """With the configuration that is printed by default, and nothing of ours running."""
    avoid, tense, calm = "kwok-0", "kwok-1", ("kwok-2", "kwok-3", "kwok-4")
    marked = {avoid: {TAINT: "severe", "cotenant.io/avoid-online": "true"}, tense: {TAINT: "medium"}}

    def mark(values: dict[str, dict[str, str | None]]) -> None:
        for name, found in values.items():
            objects.patch(f"{NODES}/{name}", {"metadata": {"labels": found}})

    def place(name: str, count: int, nodes: tuple[str, ...]) -> collections.Counter[str]:
        body = objects.pod_spec("kwok", {"requests": {"cpu": "10m"}})
        terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}]}]
        body["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        }
        for number in range(count):
            pod = objects.pod(f"{name}-{number}", "kwok", labels={"app": name})
            cluster.request("POST", PODS, {**pod, "spec": body})

        def placed() -> list[str]:
            items = cluster.request("GET", f"{PODS}?labelSelector=app%3D{name}")["items"]
            return [item["spec"]["nodeName"] for item in items if item["spec"].get("nodeName")]

        wait_for(lambda: len(placed()) == count, 30, f"pods {name}")
        return collections.Counter(placed())

    mark(dict(marked))
    try:
        with pipeline.asked_scheduler("--listen=127.0.0.1:1"):
            where = place("preferring", 12, (avoid, tense, *calm))
            print(f"by labels: {dict(where)}")
            assert set(where) <= set(calm)
            assert place("cornered", 2, (avoid,)) == {avoid: 2}
    finally:
        mark({name: dict.fromkeys(found) for name, found in marked.items()})
        for name in ("preferring", "cornered"):
            objects.delete(f"{PODS}?labelSelector=app%3D{name}")


def test_check_lists_the_daemonsets_that_a_hard_taint_would_keep_out(kubeconfig: pathlib.Path) -> None:
    at = "/apis/apps/v1/namespaces/default/daemonsets"
    spec = objects.pod_spec("nowhere")
    tolerant = {**spec, "tolerations": [{"operator": "Exists"}]}
    try:
        for name, template in (("logs", spec), ("agent", tolerant)):
            labels = {"app": name}
            body = {"metadata": {"labels": labels}, "spec": template}
            cluster.request("POST", at, {
                "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name},
                "spec": {"selector": {"matchLabels": labels}, "template": body},
            })  # fmt: skip
        listed = programs.run(["check", "--daemonsets"])
        assert (listed.returncode, listed.stdout) == (1, "default/logs\n"), listed.stderr
    finally:
        for name in ("logs", "agent"):
            objects.delete(f"{at}/{name}")
    none = programs.run(["check", "--daemonsets"])
    assert (none.returncode, none.stdout) == (0, "every DaemonSet tolerates the taint\n"), none.stderr
