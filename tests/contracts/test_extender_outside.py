"""The extender's contract as a stranger reads it: one `cotenant scheduler` on files, spoken to over HTTP."""

import datetime
import json
import os
import pathlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from tests import process
from tests.asking import free_port, posted
from tests.waiting import PATIENCE_SECONDS, await_true

pytestmark = pytest.mark.slow

POD: dict[str, Any] = {
    "metadata": {"name": "web", "namespace": "default", "uid": "u-1"},
    "spec": {"containers": [{"name": "c"}]},
}


def in_seconds(seconds: float) -> str:
    return (datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def report(
    name: str, level: float | None, *, hard: tuple[str, ...] = (), expires_in: float | None = 900, **more: Any
) -> Any:
    status: dict[str, Any] = {"observedAt": in_seconds(-5), "hard": list(hard), "coverage": 1.0, **more}
    if level is not None:
        status["interferenceLevel"] = level
    if expires_in is not None:
        status["expiresAt"] = in_seconds(expires_in)
    return {"kind": "NodeInterferenceReport", "metadata": {"name": name}, "spec": {"nodeName": name}, "status": status}


def node(name: str, *handlers: str, ready: bool = True) -> dict[str, Any]:
    status = {
        "conditions": [{"type": "Ready", "status": str(ready)}],
        "runtimeHandlers": [{"name": h} for h in handlers],
    }
    return {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}, "status": status}


class Extender:
    """A running extender and the file that it reads."""

    def __init__(self, port: int, reports: pathlib.Path) -> None:
        self.port, self.reports = port, reports

    def listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), PATIENCE_SECONDS).close()
        except OSError:
            return False
        return True

    def write(self, *items: Any) -> None:
        beside = self.reports.with_suffix(".new")
        beside.write_text(json.dumps({"kind": "List", "items": list(items)}))
        os.replace(beside, self.reports)

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else json.dumps(body)
        status, answer = posted(f"127.0.0.1:{self.port}", path, data)
        return status, json.loads(answer)

    def passed(self, *names: str, pod: Any = POD) -> tuple[list[str], dict[str, str]]:
        status, found = self.post("/kube/filter", {"Pod": pod, "Nodes": None, "NodeNames": list(names)})
        assert (status, found["Nodes"], found["FailedNodes"], found["Error"]) == (200, None, {}, "")
        return found["NodeNames"], found["FailedAndUnresolvableNodes"]

    def scores(self, *names: str) -> dict[str, int]:
        status, found = self.post("/kube/prioritize", {"Pod": POD, "Nodes": None, "NodeNames": list(names)})
        assert status == 200
        assert all(type(entry["Score"]) is int for entry in found)
        return {entry["Host"]: entry["Score"] for entry in found}

    def predicate(self, name: str, pod: Any = POD) -> Any:
        task = {"UID": "u-1", "Name": "web", "Namespace": "default", "Pod": pod}
        full = {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        return self.post("/volcano/predicate", {"task": task, "node": {"Name": name, "Node": full, "Tasks": {}}})[1]


@pytest.fixture(scope="module")
def extender(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Extender]:
    directory = tmp_path_factory.mktemp("extender")
    port = free_port()
    found = Extender(port, directory / "reports.json")
    found.write(
        report("busy", 0.9, hard=("psiMemoryFull",)),
        report("calm", 0.3, coverage=0.5),
        report("past", 0.1, hard=("psiIoSome",), expires_in=-10),
        report("undated", 0.5, hard=("psiIoSome",), expires_in=None),
        report("cluster", 0.3, hard=("psiMemoryFull",)),
    )
    kata = {"kind": "RuntimeClass", "metadata": {"name": "isolated"}, "handler": "kata-qemu"}
    objects = directory / "objects.json"
    items = [
        kata,
        node("calm", "kata-qemu"),
        node("past", "runc"),
        node("busy", "kata-qemu"),
        node("undated", "kata-qemu", ready=False),
    ]
    objects.write_text(json.dumps({"kind": "List", "items": items}))
    words = ["scheduler", "--reports", str(found.reports), "--objects", str(objects), "--listen", f"127.0.0.1:{port}"]
    with process.running(*words):
        await_true(found.listens, "the extender listens", pause_seconds=0.05)
        yield found


def test_a_hard_limit_that_holds_excludes_and_nothing_else(extender: Extender) -> None:
    names, refused = extender.passed("busy", "calm", "past", "undated", "unreported")
    assert names == ["calm", "past", "undated", "unreported"]
    assert "psiMemoryFull" in refused.pop("busy")
    assert not refused
    assert extender.passed("busy") == (["busy"], {})  # none would remain
    assert extender.predicate("busy")["code"] == 3
    assert extender.predicate("busy")["status"]
    assert extender.predicate("past") == {"status": "", "code": 0}


def test_preemption_has_no_exception(extender: Extender) -> None:
    victims = {"Pods": [{"UID": "v"}], "NumPDBViolations": 0}
    asked = {"Pod": POD, "NodeNameToVictims": None, "NodeNameToMetaVictims": {"busy": victims}}
    assert extender.post("/kube/preempt", asked) == (200, {"NodeNameToMetaVictims": {}})


def test_scores_lean_to_the_mean_as_coverage_falls(extender: Extender) -> None:
    # m = (0.9 + 0.3) / 2; calm: 0.5 * 0.3 + 0.5 * 0.6 = 0.45; without a valid report: m
    assert extender.scores("busy", "calm", "past", "undated") == {"busy": 1, "calm": 6, "past": 4, "undated": 4}
    assert set(extender.scores("past", "undated").values()) == {10}  # none known: all equal


def test_daemons_and_critical_pods_pass(extender: Extender) -> None:
    owner = {"kind": "DaemonSet", "apiVersion": "apps/v1", "name": "d", "uid": "x", "controller": True}
    daemon = POD | {"metadata": POD["metadata"] | {"ownerReferences": [owner]}}
    critical = POD | {"spec": POD["spec"] | {"priority": 2_000_001_000}}
    for pod in (daemon, critical):
        assert extender.passed("busy", "calm", pod=pod) == (["busy", "calm"], {})


def test_a_kata_pod_goes_where_both_the_request_and_the_objects_allow(extender: Extender) -> None:
    pod = POD | {"spec": POD["spec"] | {"runtimeClassName": "isolated"}}
    names, refused = extender.passed("calm", "past", "undated", "unknown", pod=pod)
    assert names == ["calm", "unknown"]
    assert set(refused) == {"past", "undated"}
    # The request shows ready nodes without handlers; what the objects say of them counts all the same.
    assert [extender.predicate(name, pod)["code"] for name in ("calm", "past", "undated")] == [0, 3, 3]
    # Not ready is never waived; a hard limit is when nothing else remains.
    assert extender.passed("busy", "past", pod=pod)[0] == ["busy"]


def test_null_is_absent_and_the_case_of_a_key_is_nothing(extender: Extender) -> None:
    sparse = {"metadata": {"name": "web", "namespace": "default", "uid": None}, "spec": None, "status": None}
    assert extender.passed("busy", "calm", pod=sparse)[0] == ["calm"]
    items = [{"metadata": {"name": "busy"}}, {"metadata": {"name": "calm"}, "spec": None}]
    status, found = extender.post("/kube/filter", {"pod": POD, "NODES": {"Items": items}})
    assert (status, found["Nodes"]["items"], found["NodeNames"]) == (200, items[1:], None)
    victims = {"busy": {"pods": [{"uid": "v"}]}, "calm": {"pods": [{"uid": "w"}], "numpdbviolations": 1}}
    answer = extender.post("/kube/preempt", {"pod": POD, "nodenametometavictims": victims})[1]
    assert answer == {"NodeNameToMetaVictims": {"calm": {"Pods": [{"UID": "w"}], "NumPDBViolations": 1}}}


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b'{"a":' * 50_000, b"[" * 50_000, b'{"Pod":5}', b"\xff"])
def test_hostile_bodies_get_a_4xx_and_the_next_one_an_answer(extender: Extender, body: bytes) -> None:
    for path in ("/kube/filter", "/kube/prioritize", "/kube/preempt", "/volcano/predicate", "/volcano/prioritize"):
        assert extender.post(path, body)[0] == 400
    assert extender.passed("calm")[0] == ["calm"]


def test_an_announced_body_that_is_too_large_is_refused_without_it(extender: Extender) -> None:
    with socket.create_connection(("127.0.0.1", extender.port), PATIENCE_SECONDS) as client:
        client.sendall(b"POST /kube/filter HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n")
        assert b" 413 " in client.recv(4096)
