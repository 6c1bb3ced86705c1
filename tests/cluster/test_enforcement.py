"""The agent enforces a NodeSLO on a real node: real pods, kubelet and containerd, this kernel's own files."""

import contextlib
import dataclasses
import pathlib
import re
from collections.abc import Iterator

import objects
import programs
import pytest
from objects import PODS, wait_for
from processes import Processes

import cluster
import node

SLO = {
    "resourceUsedThresholdWithBE": {
        "enable": True,
        "cpuSuppressThresholdPercent": 60,
        "cpuSuppressPolicy": "cfsQuota",
    },
    "resourceQOSStrategy": {
        "lsrClass": {"cpuQOS": {"enable": True, "groupIdentity": 2}},
        "lsClass": {"cpuQOS": {"enable": True, "groupIdentity": 2}},
        "beClass": {"cpuQOS": {"enable": True, "groupIdentity": -1}},
    },
    "cpuBurstStrategy": {"policy": "auto"},
}
QOS = "koordinator.sh/qosClass"
METRICS = "127.0.0.1:17072"
LOOKS = 6
"""A second apart, after which what is held counts as kept."""
OURS = re.compile(r"cgroup|cpu\.|cpuset|quota|shares|[Rr]esource busy|[Ii]nvalid argument")
"""What the kubelet says when somebody has made its groups refuse it."""


@dataclasses.dataclass(frozen=True)
class Pods:
    """The groups of the three pods, below each controller's mount."""

    guaranteed: str
    burstable: str
    best_effort: str

    def all(self) -> dict[str, str]:
        """Return every file that is looked at, by what it is about."""
        return {
            "guaranteed quota": read("cpu", self.guaranteed, "cpu.cfs_quota_us"),
            "guaranteed CPUs": containers("cpuset", self.guaranteed, "cpuset.cpus"),
            "burstable burst": read("cpu", self.burstable, "cpu.cfs_burst_us"),
            "burstable CPUs": containers("cpuset", self.burstable, "cpuset.cpus"),
            "burstable idle": read("cpu", self.burstable, "cpu.idle"),
            "offline idle": read("cpu", self.best_effort, "cpu.idle"),
        }


HELD = {
    "guaranteed quota": "-1",
    "guaranteed CPUs": "1",
    "burstable burst": "30000",
    "burstable CPUs": "0",
    "burstable idle": "0",
    "offline idle": "1",
}
"""A pod with CPUs of its own has them without a quota, the others stay off them and may burst; offline is idle."""
FREE = {
    "guaranteed quota": "100000",
    "guaranteed CPUs": "0-1",
    "burstable burst": "0",
    "burstable CPUs": "0-1",
    "burstable idle": "0",
    "offline idle": "0",
}


def path(controller: str, group: str, file: str) -> pathlib.Path:
    return pathlib.Path("/sys/fs/cgroup") / controller / group / file


def read(controller: str, group: str, file: str) -> str:
    return path(controller, group, file).read_text().strip()


def containers(controller: str, group: str, file: str) -> str:
    """Return what all containers of a pod have in common, or all that they have."""
    below = path(controller, group, "")
    return ",".join(sorted({(child / file).read_text().strip() for child in below.iterdir() if child.is_dir()}))


def quota() -> int:
    """Return what all offline pods together may use."""
    return int(read("cpu", "kubepods/besteffort", "cpu.cfs_quota_us"))


@pytest.fixture(scope="module")
def pods(kubeconfig: pathlib.Path) -> Iterator[Pods]:
    if not pathlib.Path("/sys/fs/cgroup/cpu/cpu.shares").exists():
        pytest.skip("the figures expected here are those of cgroup v1, where the real node of a test runs today")
    objects.install_node_slos()
    objects.set_node_slo(node.NAME, SLO)
    limits = {"limits": {"cpu": "1", "memory": "50Mi"}}
    some = {"requests": {"cpu": "100m"}, "limits": {"cpu": "300m", "memory": "50Mi"}}
    own = {"scheduling.koordinator.sh/resource-status": '{"cpuset": "1"}'}
    made = [
        cluster.request("POST", PODS, body)["metadata"]
        for body in (
            objects.pod("lsr", "real", limits, labels={QOS: "LSR"}, annotations=own),
            objects.pod("ls", "real", some, labels={QOS: "LS"}),
            objects.pod("be", "real", labels={QOS: "BE"}),
        )
    ]
    try:
        for name in ("lsr", "ls", "be"):
            wait_for(lambda: objects.phase(name) == "Running", 90, name)  # noqa: B023 - called at once
        lsr, ls, be = (entry["uid"] for entry in made)
        yield Pods(f"kubepods/pod{lsr}", f"kubepods/burstable/pod{ls}", f"kubepods/besteffort/pod{be}")
    finally:
        for name in ("lsr", "ls", "be"):
            objects.delete(f"{PODS}/{name}")
        objects.delete(f"{objects.NODE_SLOS}/{node.NAME}")


@pytest.fixture(scope="module")
def own_run(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("run")


@pytest.fixture
def agent(pods: Pods, own_run: pathlib.Path, tmp_path: pathlib.Path) -> Iterator[programs.Program]:
    with enforcing(own_run, tmp_path) as program:
        yield program


@contextlib.contextmanager
def enforcing(own_run: pathlib.Path, directory: pathlib.Path, *options: str) -> Iterator[programs.Program]:
    """Run an agent in mode enforce; what it wrote is given back at the end."""
    program = programs.node_agent(directory, "--mode=enforce", f"--metrics={METRICS}", *options, own_run=own_run)
    try:
        yield program
    finally:
        program.stop()
        programs.run(["restore"], own_run=own_run)
        assert program.returncode == 0, program.output()


def kubelet_complaints(since: int) -> list[str]:
    """Return the errors that the kubelet has logged about groups and their files since a size of its log.

    Groups that it has just removed itself, and still looks at, are its own affair: we remove none.
    """
    text = (cluster.STATE / "kubelet.log").read_text(errors="replace")[since:]
    errors = [line for line in text.splitlines() if line.startswith("E") and OURS.search(line)]
    return [line for line in errors if "no such file or directory" not in line]


def log_size() -> int:
    return len((cluster.STATE / "kubelet.log").read_text(errors="replace"))


def test_pods_of_each_class_are_held_within_seconds_kept_after_sigterm_and_given_back(
    agent: programs.Program, pods: Pods, own_run: pathlib.Path
) -> None:
    took = wait_for(lambda: pods.all() == HELD, 30, lambda: f"what is held: {pods.all()}")
    print(f"held {took:.1f} s after the start of the agent")
    wait_for(lambda: 100_000 <= quota() <= 120_000, 30, "a quota for all offline pods")
    assert agent.stop() == 0
    assert pods.all() == HELD
    assert quota() > 0
    restored = programs.run(["restore"], own_run=own_run)
    assert restored.returncode == 0, restored.stdout + restored.stderr
    assert pods.all() == FREE
    assert quota() == -1


def test_a_foreign_rewrite_is_answered_and_a_new_pod_is_held_at_once(agent: programs.Program, pods: Pods) -> None:
    wait_for(lambda: pods.all() == HELD, 30)
    path("cpu", pods.best_effort, "cpu.idle").write_text("0")
    path("cpu", pods.burstable, "cpu.cfs_burst_us").write_text("0")
    path("cpu", "kubepods/besteffort", "cpu.cfs_quota_us").write_text("-1")
    took = wait_for(lambda: pods.all() == HELD and quota() > 0, 10)
    print(f"a foreign rewrite was answered after {took:.1f} s")
    made = cluster.request("POST", PODS, objects.pod("be-2", "real", {"requests": {"cpu": "10m"}}, labels={QOS: "BE"}))
    group = f"kubepods/burstable/pod{made['metadata']['uid']}"
    try:
        wait_for(lambda: path("cpu", group, "cpu.idle").exists(), 60, "the pod's group")
        took = wait_for(lambda: read("cpu", group, "cpu.idle") == "1", 8, "the new pod to be idle")
        print(f"a new offline pod was held {took:.1f} s after its group appeared")
    finally:
        objects.delete(f"{PODS}/be-2")


def test_a_resize_in_place_is_not_taken_back(agent: programs.Program, pods: Pods) -> None:
    wait_for(lambda: pods.all() == HELD, 30)
    before = log_size()
    try:
        assert_resized(pods, "400m", "40000")
        for _ in range(5):
            programs.settle(1)
            assert int(read("cpu", pods.burstable, "cpu.cfs_quota_us")) >= 40_000
        assert kubelet_complaints(before) == []
    finally:
        # The kernel refuses a quota below the burst, so a smaller limit waits until the burst has followed the list.
        assert_resized(pods, "300m", "30000")


def test_with_nri_a_limit_below_the_burst_is_taken_at_the_first_try(
    pods: Pods, own_run: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    with enforcing(own_run, tmp_path, f"--nri={cluster.STATE}/nri.sock"):
        wait_for(lambda: pods.all() == HELD and "cotenant_node_nri_connected 1.0" in metrics(), 30)
        before = log_size()
        try:
            took = assert_resized(pods, "200m", "20000")
            print(f"a limit below the burst is in force after {took:.1f} s")
            programs.settle(3)
            assert kubelet_complaints(before) == []
        finally:
            assert_resized(pods, "300m", "30000")


def assert_resized(pods: Pods, limit: str, quota_usec: str) -> float:
    """Resize the pod of class LS; return how many seconds later its quota is in force."""
    resources = {"requests": {"cpu": "100m"}, "limits": {"cpu": limit, "memory": "50Mi"}}
    body = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
    cluster.request("PATCH", f"{PODS}/ls/resize", body, "application/strategic-merge-patch+json")
    took = wait_for(lambda: read("cpu", pods.burstable, "cpu.cfs_quota_us") == quota_usec, 40, f"quota {quota_usec}")
    wait_for(lambda: read("cpu", pods.burstable, "cpu.cfs_burst_us") == quota_usec, 20, f"burst {quota_usec}")
    return took


def test_the_nodes_label_overrides_the_mode(agent: programs.Program, pods: Pods) -> None:
    wait_for(lambda: pods.all() == HELD, 30)
    label = f"/api/v1/nodes/{node.NAME}"
    try:
        objects.patch(label, {"metadata": {"labels": {"cotenant.io/mode": "observe"}}})
        wait_for(lambda: 'cotenant_node_mode{mode="observe"} 1.0' in metrics(), 15)
        path("cpu", pods.best_effort, "cpu.idle").write_text("0")
        programs.settle(3)
        assert read("cpu", pods.best_effort, "cpu.idle") == "0"
    finally:
        objects.patch(label, {"metadata": {"labels": {"cotenant.io/mode": None}}})
    wait_for(lambda: pods.all() == HELD, 15)


def metrics() -> str:
    return programs.get_text(f"http://{METRICS}/metrics")


def test_kubelet_and_containerd_restart_and_nothing_is_let_go(agent: programs.Program, pods: Pods) -> None:
    wait_for(lambda: pods.all() == HELD and quota() > 0, 30)
    before = log_size()
    processes = Processes(cluster.STATE)
    for name in ("kubelet", "containerd"):
        processes.stop(name)
    programs.settle(2)
    assert pods.all() == HELD
    for name in ("containerd", "kubelet"):
        cluster.start_again(name)
    wait_for(lambda: processes.pid("kubelet") is not None and node_is_ready(), 60, "the node to be Ready")
    wait_for(lambda: "lsr" in pods_of_the_kubelet(), 60, "the kubelet to list its pods")
    # The kubelet sets its own values anew when it starts; each is answered within a round or two.
    seen: list[bool] = []

    def is_kept() -> bool:
        programs.settle(1)
        seen.append((pods.all(), quota() > 0) == (HELD, True))
        return len(seen) >= LOOKS and all(seen[-LOOKS:])

    wait_for(is_kept, 20, lambda: f"what is held to stay: {pods.all()}")
    assert seen.count(False) <= 2 * objects.PATIENCE, seen
    assert kubelet_complaints(before) == []
    assert agent.returncode is None, agent.output()


def node_is_ready() -> bool:
    conditions = cluster.request("GET", f"/api/v1/nodes/{node.NAME}")["status"]["conditions"]
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)


def pods_of_the_kubelet() -> set[str]:
    listed = (
        cluster.request("GET", f"https://127.0.0.1:{node.KUBELET_PORT}/pods")["items"] or []
    )  # null right after a start
    return {item["metadata"]["name"] for item in listed}


def test_losing_the_api_server_changes_nothing_on_the_node(agent: programs.Program, pods: Pods) -> None:
    wait_for(lambda: pods.all() == HELD, 30)
    processes = Processes(cluster.STATE)
    processes.kill("kube-apiserver")
    try:
        path("cpu", pods.best_effort, "cpu.idle").write_text("0")
        wait_for(lambda: pods.all() == HELD, 10, "the answer to a rewrite while the API server is away")
    finally:
        cluster.start_again("kube-apiserver")
    wait_for(lambda: cluster.request("GET", "/readyz").get("text") == "ok", 60, "the API server")
    assert agent.returncode is None, agent.output()
