"""The admission policy of the documentation, on the real API server: the agent takes its own node's verdict off, and
changes nothing else."""

import contextlib
import pathlib
import re
import urllib.error
from collections.abc import Iterator
from typing import Any

import objects
import pytest
import yaml
from objects import PODS, wait_for

import cluster
import node

DOCUMENTED = pathlib.Path(__file__).parents[2] / "docs/scheduler.md"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
NAME = "cotenant-node"
OURS = {"key": "cotenant.io/interference", "value": "excluded", "effect": "PreferNoSchedule"}
OTHERS = {"key": "example.com/other", "value": "x", "effect": "PreferNoSchedule"}
MERGE = "application/merge-patch+json"


def documented() -> list[dict[str, Any]]:
    """Return the policy and its binding, for an account of namespace default."""
    for block in re.findall(r"^```yaml\n(.*?)^```", DOCUMENTED.read_text(), re.MULTILINE | re.DOTALL):
        if "ValidatingAdmissionPolicy" in block:
            return list(yaml.safe_load_all(block.replace("serviceaccount:cotenant-system:", "serviceaccount:default:")))
    raise AssertionError(f"no policy in {DOCUMENTED}")


def plural(kind: str) -> str:
    return {"ValidatingAdmissionPolicy": "validatingadmissionpolicies"}.get(kind, f"{kind.lower()}s")


@pytest.fixture
def token(kubeconfig: pathlib.Path) -> Iterator[str]:
    """A token of the agent's account, bound to a pod on the real node; the policy is in force."""
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME}
    rules = [{"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["get", "patch"]}]
    group = "rbac.authorization.k8s.io/v1"
    pod = objects.pod("agent", "real")
    pod["spec"]["serviceAccountName"] = NAME
    made: list[tuple[str, dict[str, Any]]] = [
        (ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME}}),
        (
            f"{RBAC}/clusterroles",
            {"apiVersion": group, "kind": "ClusterRole", "metadata": {"name": NAME}, "rules": rules},
        ),
        (
            f"{RBAC}/clusterrolebindings",
            {
                "apiVersion": group,
                "kind": "ClusterRoleBinding",
                "metadata": {"name": NAME},
                "roleRef": role,
                "subjects": [account],
            },
        ),
        *((f"{ADMISSION}/{plural(one['kind'])}", one) for one in documented()),
        (PODS, pod),
    ]
    with contextlib.ExitStack() as undo:
        for path, body in made:
            undo.callback(objects.delete, f"{path}/{body['metadata']['name']}")
            created = cluster.request("POST", path, body)
        wait_for(lambda: objects.phase("agent") == "Running", 60)
        bound = {"apiVersion": "v1", "kind": "Pod", "name": "agent", "uid": created["metadata"]["uid"]}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": bound}}
        yield str(cluster.request("POST", f"{ACCOUNTS}/{NAME}/token", body)["status"]["token"])


def refusal(token: str, name: str, patch: dict[str, Any], below: str = "") -> str:
    """Return why the API server refuses a change of a node; empty where it takes it."""
    try:
        cluster.request("PATCH", f"/api/v1/nodes/{name}{below}", patch, MERGE, token=token)
    except urllib.error.HTTPError as error:
        if error.code not in (403, 422):
            raise
        return str(error.reason)
    return ""


def test_the_agent_takes_its_own_nodes_verdict_off_and_changes_nothing_else(token: str) -> None:
    verdict = {"metadata": {"labels": {"cotenant.io/avoid-online": "true", "example.com/kept": "yes"}}}
    for name in (node.NAME, "kwok-0"):
        objects.patch(f"/api/v1/nodes/{name}", {**verdict, "spec": {"taints": [OURS, OTHERS]}})
    off = {"metadata": {"labels": {"cotenant.io/avoid-online": None}}}
    try:
        wait_for(lambda: refusal(token, "kwok-0", off), 30, "the policy to be in force")
        assert "its own node only" in refusal(token, "kwok-0", off)
        for more in ({"example.com/new": "x"}, {"example.com/kept": None}, {"cotenant.io/avoid-online": "false"}):
            assert "labels off, and nothing else" in refusal(token, node.NAME, {"metadata": {"labels": more}})
        for taints in ([OURS], [], [OTHERS, {**OURS, "effect": "NoSchedule"}]):
            assert "taint off, and nothing else" in refusal(token, node.NAME, {"spec": {"taints": taints}})
        assert refusal(token, node.NAME, {"spec": {"unschedulable": True}})
        assert "its own node only" in refusal(token, node.NAME, {"status": {"phase": "Running"}}, "/status")

        assert refusal(token, node.NAME, {**off, "spec": {"taints": [OTHERS]}}) == ""
        left = cluster.request("GET", f"/api/v1/nodes/{node.NAME}")
        assert left["spec"]["taints"] == [OTHERS]
        assert left["metadata"]["labels"]["example.com/kept"] == "yes"
        assert "cotenant.io/avoid-online" not in left["metadata"]["labels"]
    finally:
        gone = {"metadata": {"labels": {"cotenant.io/avoid-online": None, "example.com/kept": None}}}
        for name in (node.NAME, "kwok-0"):
            objects.patch(f"/api/v1/nodes/{name}", {**gone, "spec": {"taints": None, "unschedulable": None}})
