"""What an installation leaves behind, and what its nodes say when they give back."""

import json
import pathlib
from typing import Any

import pytest
import typer.testing
from tests.kube.conftest import ApiServer

from cotenant.cli import app
from cotenant.kube.client import Client
from cotenant.manager import leaving
from cotenant.units.clock import ManualClock, SystemClock

NAMESPACE = "cotenant-system"
PODS = f"api/v1/namespaces/{NAMESPACE}/pods"
ALL_PODS = "api/v1/pods"
SETS = f"apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
REVISIONS = f"apis/apps/v1/namespaces/{NAMESPACE}/controllerrevisions"
LEASES = f"apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
SECRETS = f"api/v1/namespaces/{NAMESPACE}/secrets"
CONFIG_MAPS = f"api/v1/namespaces/{NAMESPACE}/configmaps"
NODES = "api/v1/nodes"


@pytest.fixture
def cluster(api: ApiServer) -> ApiServer:
    for listed_at in (PODS, ALL_PODS, SETS, REVISIONS, LEASES, SECRETS, CONFIG_MAPS, NODES):
        api.objects[listed_at] = {}
    return api


def restorer(cluster: ApiServer, node: str, **state: Any) -> None:
    statuses = [{"state": state}] if state else []
    status = {"phase": "Pending", "initContainerStatuses": statuses}
    cluster.put(PODS, f"restore-{node}", spec={"nodeName": node}, status=status)


def done(message: bytes) -> dict[str, Any]:
    return {"terminated": {"exitCode": 0, "message": message.decode()}}


async def test_nodes_and_the_pods_to_make_anew_are_told(cluster: ApiServer, client: Client) -> None:
    cluster.put(SETS, "cotenant-restore", status={"desiredNumberScheduled": 2, "observedGeneration": 1})
    restorer(cluster, "n1", **done(leaving.message_of(7, 1, ["u1", "gone"])))
    restorer(cluster, "n2", **done(leaving.message_of(0, 0, [])))
    cluster.put(ALL_PODS, "job", metadata={"namespace": "batch", "uid": "u1"}, spec={}, status={})
    found = await leaving.wait_for_nodes(client, NAMESPACE, 5, SystemClock())
    assert {node: (one.restored, one.left) for node, one in found.restored.items()} == {"n1": (7, 1), "n2": (0, 0)}
    assert found.unreached == {}
    assert found.pods == ["batch/job", "gone"]


async def test_nodes_that_did_not_answer_are_named_with_the_reason(cluster: ApiServer, client: Client) -> None:
    cluster.put(SETS, "cotenant-restore", status={"desiredNumberScheduled": 3, "observedGeneration": 1})
    restorer(cluster, "n1", **done(leaving.message_of(1, 0, [])))
    restorer(cluster, "n2", waiting={"reason": "ImagePullBackOff"})
    restorer(cluster, "n3", terminated={"exitCode": 1, "message": "somebody is writing"})
    found = await leaving.wait_for_nodes(client, NAMESPACE, 0, ManualClock())
    assert found.unreached == {"n2": "ImagePullBackOff", "n3": "somebody is writing"}
    assert set(found.restored) == {"n1"}


async def test_a_set_whose_pods_are_not_there_yet_is_not_done(cluster: ApiServer, client: Client) -> None:
    cluster.put(SETS, "cotenant-restore", status={})
    clock = ManualClock()
    found = await leaving.wait_for_nodes(client, NAMESPACE, 0, clock)
    assert found.restored == {}


def test_a_message_fits_into_a_pods_status() -> None:
    uids = [f"{number:08x}-0000-0000-0000-000000000000" for number in range(500)]
    message = leaving.message_of(100_000, 500, uids)
    assert len(message) < 4096
    assert json.loads(message)["morePods"] == 500 - leaving.MESSAGE_PODS


async def test_what_the_programs_made_is_removed_and_nothing_else(cluster: ApiServer, client: Client) -> None:
    for name in ("cotenant-analyzer", "cotenant-manager", "somebody"):
        cluster.put(LEASES, name)
    cluster.put(SECRETS, "cotenant-webhook-tls")
    cluster.put(SECRETS, "theirs")
    cluster.put(REVISIONS, "rules-1", metadata={"labels": {"cotenant.io/rules": "default"}})
    owner = [{"kind": "DaemonSet", "name": "x"}]
    cluster.put(REVISIONS, "set-1", metadata={"labels": {"cotenant.io/rules": "x"}, "ownerReferences": owner})
    cluster.put(REVISIONS, "theirs-1", metadata={"labels": {"app": "x"}})
    removed = await leaving.remove_made(client, NAMESPACE)
    assert removed == [
        "leases/cotenant-analyzer",
        "leases/cotenant-manager",
        "secrets/cotenant-webhook-tls",
        "controllerrevisions/rules-1",
    ]
    assert set(cluster.objects[LEASES]) == {"somebody"}
    assert set(cluster.objects[REVISIONS]) == {"set-1", "theirs-1"}


async def test_orders_on_nodes_are_taken_off(cluster: ApiServer, client: Client) -> None:
    cluster.put(NODES, "n1", metadata={"labels": {"cotenant.io/mode": "enforce", "pool": "a"}})
    cluster.put(NODES, "n2", metadata={"labels": {"pool": "a"}})
    assert await leaving.take_labels(client) == ["n1"]
    assert cluster.objects[NODES]["n1"]["metadata"]["labels"] == {"pool": "a"}


async def test_programs_that_still_run_are_named(cluster: ApiServer, client: Client) -> None:
    assert await leaving.wait_for_programs(client, NAMESPACE, 5, SystemClock()) == []
    cluster.put(PODS, "cotenant-node-x", spec={}, status={})
    assert await leaving.wait_for_programs(client, NAMESPACE, 0, ManualClock()) == ["cotenant-node-x"]


def test_a_node_writes_its_message_and_what_is_left_is_no_failure(tmp_path: pathlib.Path) -> None:
    message = tmp_path / "message"
    for name in ("proc", "sys"):
        (tmp_path / name).mkdir()
    ran = typer.testing.CliRunner().invoke(
        app.build(["restore"]), ["restore", f"--root={tmp_path}", f"--message={message}"]
    )
    assert ran.exit_code == 0, ran.output
    assert json.loads(message.read_text()) == {}
