"""Who may send samples: a real ServiceAccount's token over TLS, bound by the API server to a pod on one node."""

import contextlib
import pathlib
from collections.abc import Iterator
from typing import Any

import objects
import pipeline
import programs
import pytest
from objects import PODS, wait_for

import cluster
import node

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
METRICS = 17082


def bind(account: str, role: str) -> str:
    """Let an account of namespace default have a role; return the binding's path."""
    name = f"test-{account}-{role.replace(':', '-')}"
    body = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "default"}],
    }
    cluster.request("POST", BINDINGS, body)
    return f"{BINDINGS}/{name}"


def token_of(account: str, pod: str, directory: pathlib.Path) -> pathlib.Path:
    """Write a token of an account, bound to one of its pods."""
    bound = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid_of(pod)}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": bound}}
    answer = cluster.request("POST", f"{ACCOUNTS}/{account}/token", body)
    path = directory / f"{account}.token"
    path.write_text(answer["status"]["token"])
    return path


def uid_of(pod: str) -> str:
    return str(cluster.request("GET", f"{PODS}/{pod}")["metadata"]["uid"])


@pytest.fixture
def tokens(kubeconfig: pathlib.Path, tmp_path: pathlib.Path) -> Iterator[dict[str, pathlib.Path]]:
    """Tokens of two accounts, each bound to a pod that runs on the real node."""
    made: list[str] = []
    try:
        for account in ("cotenant-node", "somebody-else"):
            body: dict[str, Any] = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}}
            cluster.request("POST", ACCOUNTS, body)
            made.append(f"{ACCOUNTS}/{account}")
            made.append(bind(account, "system:kubelet-api-admin"))
            pod = objects.pod(f"agent-{account}", "real")
            pod["spec"]["serviceAccountName"] = account
            cluster.request("POST", PODS, pod)
            made.append(f"{PODS}/agent-{account}")
        for account in ("cotenant-node", "somebody-else"):
            wait_for(lambda: objects.phase(f"agent-{account}") == "Running", 60)  # noqa: B023 - called at once
        yield {
            account: token_of(account, f"agent-{account}", tmp_path) for account in ("cotenant-node", "somebody-else")
        }
    finally:
        for path in reversed(made):
            objects.delete(path)


@contextlib.contextmanager
def agent(directory: pathlib.Path, name: str, token: pathlib.Path, port: int) -> Iterator[str]:
    """Run an agent that says it is on a node; yields the address of its metrics."""
    directory.mkdir()
    program = programs.Program(
        [
            "node",
            f"--node={name}",
            f"--token-file={token}",
            f"--kubelet=https://127.0.0.1:{node.KUBELET_PORT}",
            f"--kubelet-ca={cluster.STATE}/pki/ca.crt",
            f"--analyzer={pipeline.ANALYZER}",
            f"--analyzer-ca={cluster.STATE}/pki/ca.crt",
            f"--metrics=127.0.0.1:{port}",
        ],
        directory / "node.log",
        own_run=directory / "run",
    )
    try:
        yield f"http://127.0.0.1:{port}/metrics"
    finally:
        program.stop()


def test_a_token_speaks_for_the_node_of_its_pod_and_no_other(
    tokens: dict[str, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    pipeline.install()
    pki = cluster.STATE / "pki"
    tls = (f"--tls-certificate={pki}/apiserver.crt", f"--tls-key={pki}/apiserver.key")
    own, other = tokens["cotenant-node"], tokens["somebody-else"]
    with contextlib.ExitStack() as running:
        running.callback(pipeline.clean)
        analyzer = running.enter_context(pipeline.analyzer(tmp_path, *tls))
        right = running.enter_context(agent(tmp_path / "right", node.NAME, own, METRICS))
        wrong_node = running.enter_context(agent(tmp_path / "node", "kwok-1", own, METRICS + 1))
        wrong_account = running.enter_context(agent(tmp_path / "account", "kwok-2", other, METRICS + 2))
        wait_for(lambda: "interferenceLevel" in pipeline.report(), 60, lambda: f"a report: {analyzer.output()}")
        assert "cotenant_node_connected 1.0" in programs.get_text(right)
        pods = programs.get_text(right)
        assert "cotenant_node_pods_age_seconds" in pods  # the same token is good for the kubelet
        for refused, name in ((wrong_node, "kwok-1"), (wrong_account, "kwok-2")):
            assert "cotenant_node_connected 0.0" in programs.get_text(refused)
            assert pipeline.report(name) == {}
