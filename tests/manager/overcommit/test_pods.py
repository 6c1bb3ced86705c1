"""Pods as the API server gives them."""

from typing import Any

import msgspec
import pytest

from cotenant.manager.overcommit import names, pods

GIB = 1 << 30
STARTED = "2026-11-30T00:00:00Z"


def read(
    requests: dict[str, str] | None = None, labels: dict[str, str] | None = None, **fields: Any
) -> pods.PodFacts | None:
    spec = {"nodeName": "n1", "containers": [{"resources": {"requests": requests or {}}}], **fields.pop("spec", {})}
    status = {"phase": "Running", "qosClass": "Burstable", **fields.pop("status", {})}
    value = {"metadata": {"name": "p", "namespace": "d", "labels": labels or {}, **fields}, "spec": spec}
    return pods.decode(msgspec.convert({**value, "status": status}, pods.PodObject))


@pytest.mark.parametrize(
    ("priority", "qos", "kube_qos", "high", "prod"),
    [
        (9500, "LS", "Burstable", True, True),
        (7500, "LS", "Burstable", True, False),
        (7500, "BE", "Burstable", True, False),  # BE by class and mid by band: mid work has precedence over batch
        (5500, "BE", "Burstable", False, False),
        (3500, "BE", "Burstable", False, False),
        (0, None, "Burstable", True, True),
        (0, None, "BestEffort", False, False),
        (4000, "LSR", "Guaranteed", True, True),
        (2_000_001_000, None, "BestEffort", True, True),  # kube-proxy asks for nothing and is no batch work
    ],
)
def test_who_has_precedence(priority: int, qos: str | None, kube_qos: str, high: bool, prod: bool) -> None:
    labels = {"koordinator.sh/qosClass": qos} if qos else {}
    found = read(labels=labels, spec={"priority": priority}, status={"qosClass": kube_qos})
    assert found is not None
    assert (found.high_priority, found.prod) == (high, prod)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_holds_nothing(phase: str) -> None:
    found = read({"cpu": "4", names.BATCH["cpu"]: "7"}, spec={"priority": 9500}, status={"phase": phase})
    assert found is not None
    assert (found.high_priority, found.request["cpu"], found.extended) == (False, 0, {})


def test_a_pod_without_a_node_holds_nothing() -> None:
    assert read({"cpu": "4"}, spec={"nodeName": None}) is None


def test_a_limit_that_stands_alone_is_asked_for() -> None:
    """The API server copies it; a list from elsewhere may not have passed there."""
    containers = [{"resources": {"requests": {"memory": "1Gi"}, "limits": {"cpu": "2500m", "memory": "2Gi"}}}]
    init = [{"restartPolicy": "Always", "resources": {"limits": {"cpu": "500m"}}}]
    found = read(spec={"containers": containers, "initContainers": init})
    assert found is not None
    assert found.request == {"cpu": 3_000, "memory": GIB}


def test_a_pod_that_is_being_deleted_holds_what_it_asked_for() -> None:
    found = read({"cpu": "4"}, deletionTimestamp=STARTED)
    assert found is not None
    assert found.request["cpu"] == 4_000


def test_a_mid_pod_asks_by_mid_resources() -> None:
    found = read({names.MID["cpu"]: "4000", names.MID["memory"]: "2Gi"}, spec={"priority": 7500})
    assert found is not None
    assert found.request == {"cpu": 4_000, "memory": 2 * GIB}
    assert found.extended == {names.MID["cpu"]: 4_000, names.MID["memory"]: 2 * GIB}


def asking(cpu: str, **fields: Any) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu}}, **fields}


def test_requests_are_added_up_as_the_scheduler_does() -> None:
    spec = {
        "containers": [asking("1"), asking("500m"), {}],
        "initContainers": [asking("1", restartPolicy="Always"), asking("4"), asking("2", restartPolicy="Always")],
        "overhead": {"cpu": "250m", "memory": "120Mi"},
    }
    found = read(spec=spec)
    assert found is not None
    assert found.request == {"cpu": 5_250, "memory": 120 << 20}  # the second init container beside the first sidecar


def test_what_a_pod_states_as_a_whole_counts() -> None:
    found = read({"cpu": "1", "memory": "1Gi"}, spec={"resources": {"requests": {"cpu": "6"}}})
    assert found is not None
    assert found.request == {"cpu": 6_000, "memory": GIB}


def running(started_at: str = STARTED) -> dict[str, Any]:
    return {"state": {"running": {"startedAt": started_at}}}


def test_a_pod_has_settled_some_time_after_its_last_container_started() -> None:
    later = "2026-11-30T00:01:40Z"
    spec = {"containers": [{}, {}]}
    found = read(spec=spec, status={"containerStatuses": [running(), running(later)]})
    assert found is not None
    assert found.running_since is not None
    assert not found.settled(found.running_since + 299, 300)
    assert found.settled(found.running_since + 300, 300)


@pytest.mark.parametrize("statuses", [[], [running()], [running(), {"state": {"waiting": {}}}], [running(), {}], None])
def test_a_pod_of_which_a_container_does_not_run_has_not_settled(statuses: Any) -> None:
    found = read(spec={"containers": [{}, {}]}, status={"containerStatuses": statuses})
    assert found is not None
    assert not found.settled(1e12, 300)


def test_where_a_pod_is_bound() -> None:
    text = '{"cpuset":"0-3","numaNodeResources":[{"node":1}]}'
    found = read(annotations={"scheduling.koordinator.sh/resource-status": text})
    assert found is not None
    assert (found.bound.cpuset, found.bound.numa_nodes) == ("0-3", (1,))
