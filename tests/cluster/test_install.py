"""Each scenario of the chart, installed by Helm: our image runs on the real node, and uninstalling leaves nothing."""

import pathlib
import re
import urllib.request
from collections.abc import Iterator

import install
import objects
import pipeline
import programs
import pytest
from objects import wait_for

import cluster
import node

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OUR_GROUPS = ("cotenant.io", "slo.koordinator.sh", "config.koordinator.sh", "topology.node.k8s.io")


@pytest.fixture(scope="module")
def image(kubeconfig: pathlib.Path) -> None:
    """Our image on the real node."""
    install.import_image()


def clear() -> None:
    """Take away what earlier tests left by hand: kinds, which Helm does not take over, and leases of programs."""
    for lease in cluster.request("GET", "/apis/coordination.k8s.io/v1/leases")["items"]:
        name, namespace = lease["metadata"]["name"], lease["metadata"]["namespace"]
        if name.startswith("cotenant"):
            objects.delete(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}")
    for found in cluster.request("GET", DEFINITIONS)["items"]:
        if found["spec"]["group"] in OUR_GROUPS:
            name = found["metadata"]["name"]
            objects.delete(f"{DEFINITIONS}/{name}")
            wait_for(lambda: objects.found(f"{DEFINITIONS}/{name}") is None, 60, name)  # noqa: B023 - called at once


@pytest.fixture
def released(image: None) -> Iterator[None]:
    """A start and an end at which nothing is installed, whatever a test did."""
    clear()
    yield
    if install.RELEASE in install.helm("list", "--short", f"--namespace={install.NAMESPACE}"):
        install.uninstall()
    objects.delete(f"/api/v1/namespaces/{install.NAMESPACE}")
    wait_for(lambda: objects.found(f"/api/v1/namespaces/{install.NAMESPACE}") is None, 60, "the namespace to be gone")


def found_of_ours() -> list[str]:
    """Return what of ours is in the cluster: objects by their labels and names, and marks on nodes."""
    found = []
    for path in (
        DEFINITIONS,
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "/apis/rbac.authorization.k8s.io/v1/roles",
        "/apis/rbac.authorization.k8s.io/v1/rolebindings",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
        "/apis/apps/v1/deployments",
        "/apis/apps/v1/daemonsets",
        "/apis/apps/v1/controllerrevisions",
        "/apis/batch/v1/jobs",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        "/apis/node.k8s.io/v1/runtimeclasses",
        "/apis/coordination.k8s.io/v1/leases",
        "/api/v1/services",
        "/api/v1/secrets",
        "/api/v1/configmaps",
        "/api/v1/pods",
    ):
        for one in cluster.request("GET", path)["items"]:
            name, labels = one["metadata"]["name"], one["metadata"].get("labels") or {}
            if "cotenant" in name or labels.get("app.kubernetes.io/name") == "cotenant":
                found.append(f"{path}/{name}")
    for one in cluster.request("GET", "/api/v1/nodes")["items"]:
        marks = {**one["metadata"].get("labels", {}), **one["metadata"].get("annotations", {})}
        found += [
            f"{one['metadata']['name']}: {key}" for key in marks if "cotenant.io/" in key and "test-node" not in key
        ]
    return found


def metrics_of(component: str, port: int) -> set[str]:
    """Return the names of the series that a program shows."""
    address = install.pods(component)[0]["status"]["hostIP"]
    with urllib.request.urlopen(f"http://{address}:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return {re.split(r"[{ ]", line, maxsplit=1)[0] for line in text.splitlines() if not line.startswith("#")}


def queried() -> set[str]:
    """Return the names of the series that dashboards and alerts ask for."""
    files = [*(install.CHART / "files/dashboards").glob("*.json"), install.CHART / "files/alerts.yaml"]
    return {name for file in files for name in re.findall(r"\bcotenant_[a-z0-9_]+", file.read_text())}


def node_labels() -> dict[str, str]:
    return dict(cluster.request("GET", f"/api/v1/nodes/{node.NAME}")["metadata"]["labels"])


def no_right_is_missing(*components: str) -> None:
    """Fail if a program was refused something, by what it says."""
    for component in components:
        said = install.logs(component)
        assert "forbidden" not in said, said


def test_one_scenario_after_another_and_nothing_left(released: None) -> None:
    install.install("observe-only")
    took = wait_for(lambda: pipeline.report().get("interferenceLevel") is not None, 60, "a report of the real node")
    print(f"a report {took:.1f} s after observe-only was installed")
    status = pipeline.report()
    assert status["nodeFacts"]["mode"] == "observe"
    assert "kata" not in status["nodeFacts"]  # not looked at: unknown, not false
    unknown = {one["signal"] for one in status["missing"]}
    assert "cpu.run_queue_latency_p99_usec" not in unknown, "eBPF works without full rights"
    no_right_is_missing("node", "analyzer")

    install.install("full")
    wait_for(lambda: "cotenant.io/interference" in node_labels(), 60, "the verdict on the node")
    wait_for(lambda: objects.found(f"{objects.NODE_SLOS}/{node.NAME}") is not None, 60, "the node's NodeSLO")
    wait_for(lambda: all(trusted_webhooks()), 60, "the webhook to be trusted")
    # The agent has just been replaced, by one with full rights: its first sample takes a second or two.
    wait_for(lambda: "cotenant_psi_cpu_some_ratio" in metrics_of("node", 7072), 60, "the new agent's first sample")
    seen = metrics_of("node", 7072) | metrics_of("analyzer", 7070) | metrics_of("manager", 8090)
    seen |= metrics_of("scheduler", 8088) | metrics_of("scheduler", 8089)
    print(f"not shown on a calm cluster: {sorted(queried() - seen)}")
    assert len(queried() & seen) >= 40
    no_right_is_missing("node", "analyzer", "scheduler", "manager")

    install.install("existing-volcano")
    wait_for(lambda: all(install.is_ready(one) for one in ("node", "analyzer", "scheduler", "manager")), 60)
    no_right_is_missing("scheduler", "manager")

    install.install("kata-only")
    wait_for(lambda: not install.pods("manager"), 60, "the manager to be gone")
    wait_for(lambda: kata_ready() is not None, 60, "what Kata finds on the node")
    condition = kata_ready()
    assert condition is not None
    print(f"KataReady is {condition['status']}: {condition['message']}")
    wait_for(lambda: "cotenant.io/interference" not in node_labels(), 60, "no verdict but Kata's")

    said = install.uninstall()
    print(said)
    wait_for(lambda: found_of_ours() == [], 60, lambda: f"nothing of ours: {found_of_ours()}")


def trusted_webhooks() -> list[bool]:
    """Return for each webhook of the chart whether somebody vouches for its certificate."""
    kinds = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    path = "/apis/admissionregistration.k8s.io/v1"
    found = [cluster.request("GET", f"{path}/{kind}/cotenant-webhook") for kind in kinds]
    return ["caBundle" in webhook["clientConfig"] for one in found for webhook in one["webhooks"]]


def kata_ready() -> dict[str, str] | None:
    conditions = cluster.request("GET", f"/api/v1/nodes/{node.NAME}")["status"]["conditions"]
    return next((one for one in conditions if one["type"] == "KataReady"), None)


def idle(uid: str) -> str:
    path = pathlib.Path(f"/sys/fs/cgroup/cpu/kubepods/besteffort/pod{uid}/cpu.idle")
    return path.read_text().strip() if path.exists() else ""


def test_uninstalling_gives_back_what_was_written_to_the_kernel(released: None) -> None:
    if not pathlib.Path("/sys/fs/cgroup/cpu/cpu.shares").exists():
        pytest.skip("the files looked at here are those of cgroup v1, where the real node of a test runs today")
    made = cluster.request("POST", objects.PODS, objects.pod("be", "real", labels={"koordinator.sh/qosClass": "BE"}))
    uid = made["metadata"]["uid"]
    try:
        wait_for(lambda: objects.phase("be") == "Running", 60, "the offline pod")
        install.install("full", node={"mode": "enforce"})
        slo = "/api/v1/namespaces/koordinator-system/configmaps"
        strategies = {"resource-qos-config": '{"clusterStrategy": {"beClass": {"cpuQOS": {"enable": true}}}}'}
        cluster.request("POST", slo, {"metadata": {"name": "slo-controller-config"}, "data": strategies})
        took = wait_for(lambda: idle(uid) == "1", 60, "the pod to be held back")
        print(f"held {took:.1f} s after the strategy was written")
        scale("0")
        wait_for(lambda: not install.pods("manager") and not install.pods("analyzer"), 60, "no Deployment of ours")
        assert idle(uid) == "1", "without a manager and an analyzer limits stay as they are"
        scale("1")
        wait_for(
            lambda: all(install.is_ready(one) for one in ("analyzer", "scheduler", "manager")), 90, "all of it back"
        )
        said = install.uninstall()
        print(said)
        assert idle(uid) == "0"
        wait_for(lambda: found_of_ours() == [], 60, lambda: f"nothing of ours: {found_of_ours()}")
    finally:
        objects.delete(f"{objects.PODS}/be")
        objects.delete("/api/v1/namespaces/koordinator-system")


def scale(replicas: str) -> None:
    """Give each Deployment of ours so many replicas."""
    for name in ("analyzer", "scheduler", "manager"):
        path = f"/apis/apps/v1/namespaces/{install.NAMESPACE}/deployments/cotenant-{name}"
        objects.patch(path, {"spec": {"replicas": int(replicas)}})


def test_a_rollout_whose_gate_fails_takes_itself_back(released: None, tmp_path: pathlib.Path) -> None:
    install.install("full")
    ca, token = tmp_path / "ca.crt", tmp_path / "token"
    config = f"/api/v1/namespaces/{install.NAMESPACE}/configmaps/cotenant-analyzer-ca"
    ca.write_text(cluster.request("GET", config)["data"]["ca.crt"])
    account = f"/api/v1/namespaces/{install.NAMESPACE}/serviceaccounts/cotenant-node/token"
    asked = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": ["cotenant-analyzer"]},
    }
    token.write_text(cluster.request("POST", account, asked)["status"]["token"])
    name = f"cotenant-analyzer.{install.NAMESPACE}.svc"
    address = f"{install.pods('analyzer')[0]['status']['hostIP']}:7443"
    load = programs.Program(
        [
            *("simulate", "nodes", f"--count={cluster.KWOK_NODES}", "--prefix=kwok-", f"--address={address}"),
            *(f"--analyzer-ca={ca}", f"--analyzer-name={name}", f"--token-file={token}"),
            *("--follow", "--noisy-when=cotenant.io/mode=enforce"),
        ],
        tmp_path / "simulate.log",
    )
    rules = {"apiVersion": "cotenant.io/v1alpha1", "kind": "DetectionRuleConfig", "metadata": {"name": "default"}}
    rollout = {"apiVersion": "cotenant.io/v1alpha1", "kind": "ColocationRollout", "metadata": {"name": "r"}}
    spec = {
        "change": {"mode": "enforce"},
        "nodeSelector": {"cotenant.io/test-node": "kwok"},
        "stages": [{"name": "canary", "share": 0.05, "soakSeconds": 600}, {"name": "rest"}],
        "gates": {"interferenceLevel": {"max": 0.3}},
        "stopping": {"failSeconds": 4, "unknownSeconds": 120},
    }
    try:
        cluster.request("POST", pipeline.RULES, {**rules, "spec": pipeline.QUICK_RULES})
        last = f"kwok-{cluster.KWOK_NODES - 1}"
        wait_for(lambda: "nodeFacts" in pipeline.report(last), 60, "reports of simulated nodes")
        cluster.request("POST", ROLLOUTS, {**rollout, "spec": spec})
        wait_for(lambda: phase() == "RolledBack", 120, "the rollback")
        stopped = cluster.request("GET", f"{ROLLOUTS}/r")["status"]["stopped"]
        print(f"taken back: {stopped['message']}")
        assert stopped["reason"] == "GateFailed"
        listed = cluster.request("GET", "/api/v1/nodes?labelSelector=cotenant.io/mode")["items"]
        assert listed == []
        no_right_is_missing("manager", "analyzer")
    finally:
        load.stop()
        objects.delete("/api/v1/namespaces/koordinator-system")


ROLLOUTS = "/apis/cotenant.io/v1alpha1/colocationrollouts"


def phase() -> str:
    return str((cluster.request("GET", f"{ROLLOUTS}/r").get("status") or {}).get("phase"))
