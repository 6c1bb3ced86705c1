"""A whole Kubernetes cluster on loopback, for tests and for play: ``cluster.py up|down|status|scheduler``.

etcd, kube-apiserver, kube-scheduler, kube-controller-manager, one real node (kubelet, containerd, runc) and simulated
ones (kwok). ``up`` prints the kubeconfig; ``down`` undoes all of it. The binaries come from ``build.sh``.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import credentials
from processes import Processes

import node

HERE = pathlib.Path(__file__).resolve().parent
STATE = pathlib.Path(os.environ.get("COTENANT_CLUSTER_STATE", "/run/cotenant-test-cluster"))
API_PORT, ETCD_PORT, ETCD_PEER_PORT, SCHEDULER_PORT = 16443, 12379, 12380, 10259
KWOK_NODES = 20
"""How many simulated nodes the tests have."""
PATIENCE = 4
"""A shared machine may stand still for half a minute: a wait ends after so many times what it takes on a busy one."""
REQUEST_SECONDS = 120
NODE_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
MEMORY = pathlib.Path("/dev/shm")
"""Where etcd keeps its data if there is one: a disk that noise of a test holds up must not hold up the API server."""
SERVER = f"https://127.0.0.1:{API_PORT}"


def up(kwok_nodes: int, scheduler_config: pathlib.Path | None = None, real_node: bool = True) -> pathlib.Path:
    """Bring the cluster up (or find it up) and return the kubeconfig's path.

    :raises SystemExit: with status 3 where it cannot be had here, saying why.
    """
    kubeconfig = STATE / "admin.kubeconfig"
    processes = Processes(STATE)
    if is_up(real_node):
        return kubeconfig
    binaries = built_binaries()
    if STATE.exists():
        down()
    shutil.rmtree(_etcd_directory(), ignore_errors=True)
    STATE.mkdir(parents=True, mode=0o700)
    pki = STATE / "pki"
    credentials.make(pki)
    for name in credentials.TOKENS:
        credentials.write_kubeconfig(pki, name, SERVER, STATE / f"{name}.kubeconfig")
    _start_control_plane(binaries, processes, scheduler_config)
    if real_node:
        node.start(STATE, binaries, processes)
    if kwok_nodes:
        _start_kwok(binaries, processes, kwok_nodes)
    if real_node:
        _wait("the real node to be Ready", processes, "kubelet", lambda: _node_ready(node.NAME), 90)
    return kubeconfig


def down() -> None:
    """End every program and give back everything that they changed."""
    if not STATE.exists():
        return
    processes = Processes(STATE)
    processes.stop("kwok")
    node.stop(STATE, built_binaries(), processes)
    processes.stop_all()
    shutil.rmtree(_etcd_directory(), ignore_errors=True)
    shutil.rmtree(STATE, ignore_errors=True)


def is_up(real_node: bool = False) -> bool:
    """Return whether the cluster's API server runs, and its real node's kubelet where that is asked for."""
    needed = ("kube-apiserver", "kubelet") if real_node else ("kube-apiserver",)
    return STATE.exists() and all(Processes(STATE).pid(name) is not None for name in needed)


def built() -> bool:
    """Return whether the binaries are in the cache, so that no Go is needed."""
    done = subprocess.run([str(HERE / "build.sh"), "--built"], check=False, capture_output=True)
    return done.returncode == 0


def restart_scheduler(config: pathlib.Path | None) -> None:
    """Start kube-scheduler again, with another configuration file (None: its own defaults)."""
    processes = Processes(STATE)
    processes.stop("kube-scheduler")
    _start_scheduler(built_binaries(), processes, config)


def configured_scheduler(printed: str) -> pathlib.Path:
    """Write the file for a kube-scheduler that asks an extender: what cotenant printed, and how it runs here."""
    kubeconfig = STATE / "scheduler.kubeconfig"
    path = STATE / "kube-scheduler.yaml"
    path.write_text(
        f"{printed}clientConnection: {{kubeconfig: {kubeconfig}}}\nleaderElection: {{leaderElect: false}}\n"
    )
    return path


def start_again(name: str) -> None:
    """Start one of the programs that a test has stopped, as it was."""
    binaries, processes = built_binaries(), Processes(STATE)
    if name == "containerd":
        node.start_containerd(STATE, binaries, processes)
    elif name == "kubelet":
        node.start_kubelet(STATE, binaries, processes)
    elif name == "kube-apiserver":
        start_apiserver(binaries, processes)
    elif name == "etcd":
        start_etcd(binaries, processes)
    else:
        raise ValueError(f"{name} cannot be started again")


def request(
    method: str, path: str, body: object = None, content_type: str = "application/json", token: str = ""
) -> dict:
    """Send one request to the API server, or to another address in full, as the administrator; return its JSON.

    ``token`` makes it somebody else's.

    :raises urllib.error.HTTPError: on any status of 400 and more.
    """
    data = None if body is None else json.dumps(body).encode()
    url = path if path.startswith("https://") else f"{SERVER}{path}"
    call = urllib.request.Request(url, data=data, method=method)
    call.add_header("Authorization", f"Bearer {token or credentials.token(STATE / 'pki', 'admin')}")
    if data is not None:
        call.add_header("Content-Type", content_type)
    context = ssl.create_default_context(cafile=str(STATE / "pki/ca.crt"))
    try:
        with urllib.request.urlopen(call, timeout=REQUEST_SECONDS, context=context) as answer:
            text = answer.read()
    except urllib.error.HTTPError as error:
        with error:  # else its connection stays open until it is collected
            raise urllib.error.HTTPError(path, error.code, error.read(500).decode(), error.headers, None) from None
    try:
        return json.loads(text)
    except ValueError:
        return {"text": text.decode()}


def built_binaries() -> pathlib.Path:
    done = subprocess.run([str(HERE / "build.sh")], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.returncode)
    return pathlib.Path(done.stdout.strip())


def _etcd_directory() -> pathlib.Path:
    return MEMORY / f"{STATE.name}-etcd" if MEMORY.is_dir() else STATE / "etcd"


def _start_control_plane(binaries: pathlib.Path, processes: Processes, scheduler_config: pathlib.Path | None) -> None:
    pki, kubernetes = STATE / "pki", str(binaries / "kubernetes")
    start_etcd(binaries, processes)
    start_apiserver(binaries, processes)
    _wait("kube-apiserver to be ready", processes, "kube-apiserver", _api_ready, 60)
    processes.start(
        "kube-controller-manager",
        [
            kubernetes,
            "kube-controller-manager",
            f"--kubeconfig={STATE}/controller-manager.kubeconfig",
            f"--authentication-kubeconfig={STATE}/controller-manager.kubeconfig",
            f"--authorization-kubeconfig={STATE}/controller-manager.kubeconfig",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
            f"--service-account-private-key-file={pki}/sa.key",
            f"--root-ca-file={pki}/ca.crt",
            "--use-service-account-credentials=true",
            "--node-monitor-grace-period=60s",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
        ],
    )
    _start_scheduler(binaries, processes, scheduler_config)


def start_etcd(binaries: pathlib.Path, processes: Processes) -> None:
    """Start etcd; tests that stop it use this to bring it back with what it held."""
    etcd, peer = f"http://127.0.0.1:{ETCD_PORT}", f"http://127.0.0.1:{ETCD_PEER_PORT}"
    processes.start(
        "etcd",
        [
            str(binaries / "etcd"),
            f"--data-dir={_etcd_directory()}",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=error",
        ],
    )


def start_apiserver(binaries: pathlib.Path, processes: Processes) -> None:
    """Start kube-apiserver; tests that stop it use this to bring it back."""
    pki = STATE / "pki"
    processes.start(
        "kube-apiserver",
        [
            str(binaries / "kubernetes"),
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{ETCD_PORT}",
            f"--secure-port={API_PORT}",
            "--bind-address=127.0.0.1",
            f"--tls-cert-file={pki}/apiserver.crt",
            f"--tls-private-key-file={pki}/apiserver.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={pki}/sa.key",
            f"--service-account-key-file={pki}/sa.key",
            f"--token-auth-file={pki}/tokens.csv",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.96.0.0/16",
            f"--kubelet-certificate-authority={pki}/ca.crt",
            "--allow-privileged=true",
            "--max-requests-inflight=2000",
            "--max-mutating-requests-inflight=1000",
        ],
    )


def _start_scheduler(binaries: pathlib.Path, processes: Processes, config: pathlib.Path | None) -> None:
    kubeconfig = STATE / "scheduler.kubeconfig"
    extra = [f"--config={config}"] if config else [f"--kubeconfig={kubeconfig}", "--leader-elect=false"]
    processes.start(
        "kube-scheduler",
        [
            str(binaries / "kubernetes"),
            "kube-scheduler",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={SCHEDULER_PORT}",
            *extra,
        ],
    )


def _start_kwok(binaries: pathlib.Path, processes: Processes, count: int) -> None:
    processes.start(
        "kwok",
        [
            str(binaries / "kwok"),
            f"--kubeconfig={STATE}/kwok.kubeconfig",
            f"--config={HERE}/kwok.yaml",
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            "--node-lease-duration-seconds=40",
            "--manage-all-nodes=false",
            "--disregard-status-with-annotation-selector=",
            "--server-address=",
        ],
    )
    add_simulated_nodes(0, count)


def add_simulated_nodes(first: int, count: int) -> None:
    """Have kwok play ``count`` nodes more, ``kwok-FIRST`` and on, and wait until they are Ready."""
    names = [f"kwok-{index}" for index in range(first, first + count)]
    for name in names:
        request("POST", "/api/v1/nodes", simulated_node(name))
    ready = f"{count} simulated nodes to be Ready"
    _wait(ready, Processes(STATE), "kwok", lambda: all(_node_ready(name) for name in (names[0], names[-1])), 90)


def remove_simulated_nodes(first: int, count: int) -> None:
    """Take nodes that kwok plays away again, with their leases; one by one, since the others stay."""
    for index in range(first, first + count):
        for path in (f"/api/v1/nodes/kwok-{index}", f"{NODE_LEASES}/kwok-{index}"):
            with contextlib.suppress(urllib.error.HTTPError):  # gone already
                request("DELETE", path)


def simulated_node(name: str) -> dict:
    """Return a Node of 4 CPUs and 8 GiB that kwok plays."""
    resources = {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "cotenant.io/test-node": "kwok"},
        },
        "status": {"allocatable": resources, "capacity": resources},
    }


def _api_ready() -> bool:
    return request("GET", "/readyz").get("text") == "ok"


def _node_ready(name: str) -> bool:
    conditions = request("GET", f"/api/v1/nodes/{name}").get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _wait(what: str, processes: Processes, program: str, ready: object, seconds: float) -> None:
    seconds *= PATIENCE
    deadline = time.monotonic() + seconds
    while True:
        try:
            if ready():  # type: ignore[operator]
                return
        except (urllib.error.URLError, OSError):
            pass  # not listening yet, or not there yet: asked again until the deadline
        if processes.pid(program) is None or time.monotonic() > deadline:
            tail = processes.log_tail(program)
            raise SystemExit(f"cluster: waited {seconds:.0f} s for {what}; the end of {program}.log:\n{tail}")
        time.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("up", "down", "status", "scheduler"))
    parser.add_argument(
        "config", nargs="?", type=pathlib.Path, help="with scheduler: what `cotenant scheduler config` printed"
    )
    parser.add_argument("--kwok-nodes", type=int, default=200, help="how many simulated nodes (default 200)")
    arguments = parser.parse_args()
    if arguments.action == "up":
        kubeconfig = up(arguments.kwok_nodes)
        print(f"cluster: up; export KUBECONFIG={kubeconfig}")
    elif arguments.action == "down":
        down()
        print("cluster: down")
    elif arguments.action == "scheduler":
        restart_scheduler(configured_scheduler(arguments.config.read_text()) if arguments.config else None)
        print(f"cluster: kube-scheduler runs with {arguments.config or 'its own defaults'}")
    else:
        print("cluster: up" if is_up() else "cluster: down")
        sys.exit(0 if is_up() else 1)


if __name__ == "__main__":
    main()
