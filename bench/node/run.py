"""What ``cotenant node`` costs as a whole beside 150 pods: resident memory and CPU of one core.

Run as root: ``python bench/node/run.py [--pods 150] [--seconds 60] [--awake] [--json]``. The pods are groups of this
machine (``cotenant-bench-kubepods.slice/…``, a container in each, removed at the end) that a kubelet of the bench's own
lists; an API server of the bench's own has the Node, a NodeSLO with every strategy on, a NodeMetric and takes what is
written. Modes: observe, and dry-run, which decides each second and writes nothing to the kernel. With ``--awake`` each
container has a process that wakes up once a second; without, nothing runs in them.
"""

import argparse
import dataclasses
import http.server
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, NoReturn

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent.parent))
from bench.noise import loads

TOP = "cotenant-bench-kubepods.slice"
"""Comes before any ``kubepods`` that this machine has, so that a cluster here is not taken for the bench's own."""
NODE = "bench"
SETTLE_SECONDS = 40
TARGET = "≤ 64 MiB, ≤ 2 %"
COLLECT = {"aggregateDurationSeconds": 60, "reportIntervalSeconds": 30}
SLO = {
    "resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressPolicy": "cfsQuota"},
    "resourceQOSStrategy": {
        name: {"cpuQOS": {"enable": True}, "memoryQOS": {"enable": True}} for name in ("lsrClass", "lsClass", "beClass")
    },
    "cpuBurstStrategy": {"policy": "auto"},
}


@dataclasses.dataclass
class Row:
    """What one mode cost after it had settled, and how many NodeMetrics it wrote."""

    resident_mib: float
    cpu_percent: float
    reports: int


def pod(number: int) -> dict[str, Any]:
    """Return a pod as a kubelet lists it: every third one is offline."""
    offline = number % 3 == 0
    amounts = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "500m", "memory": "128Mi"}}
    uid = f"00000000-0000-4000-8000-{number:012d}"
    return {
        "metadata": {
            "name": f"pod-{number}",
            "namespace": f"ns-{number % 10}",
            "uid": uid,
            "labels": {"koordinator.sh/qosClass": "BE" if offline else "LS", "app": f"app-{number % 20}"},
        },
        "spec": {"containers": [{"name": "main", "resources": amounts}], "priority": 5500 if offline else 9500},
        "status": {
            "phase": "Running",
            "qosClass": "Burstable",
            "containerStatuses": [
                {"name": "main", "containerID": f"containerd://{number:064x}", "state": {"running": {}}}
            ],
        },
    }


@contextmanager
def groups(pods: int) -> Iterator[None]:
    """Make the groups of the pods in each hierarchy of this machine.

    :raises OSError: if they cannot be made.
    """
    from cotenant.kernel import paths

    tops = [mount.path / TOP for mount in paths.Root().cgroup_mounts() if mount.controllers or mount.version == 2]
    made: list[pathlib.Path] = []
    try:
        for top in tops:
            above = (top, top / "burstable", top / "besteffort")
            own = [above[1] / f"pod{pod(number)['metadata']['uid']}" for number in range(pods)]
            inner = [group / f"{number:064x}" for number, group in enumerate(own)]
            for path in (*above, *own, *inner):
                path.mkdir()
                made.append(path)
        yield
    finally:
        for path in reversed(made):
            path.rmdir()


@contextmanager
def processes(pods: int) -> Iterator[None]:
    """Have a process in each container, in every hierarchy that takes it, which uses a little CPU each second.

    :raises OSError: if one cannot be started.
    """
    from cotenant.kernel import paths

    tops = [mount.path / TOP for mount in paths.Root().cgroup_mounts() if mount.controllers or mount.version == 2]
    children: list[int] = []
    try:
        for number in range(pods):
            child = os.fork()
            if child == 0:
                _wake_up_each_second()
            children.append(child)
            for top in tops:
                inner = top / f"burstable/pod{pod(number)['metadata']['uid']}/{number:064x}"
                with suppress(OSError):  # a cpuset without CPUs takes nobody
                    (inner / "cgroup.procs").write_text(str(child))
        yield
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _wake_up_each_second() -> NoReturn:
    try:
        loads.end_with_parent()
        while True:
            time.sleep(1)
    finally:
        os._exit(0)  # what this process was forked from tidies up


class Servers(http.server.BaseHTTPRequestHandler):
    """A kubelet (``/pods``, ``/configz``) and an API server in one."""

    pods: bytes = b""
    reports = 0

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path == "/pods":
            self.answer(self.pods)
        elif path == "/configz":
            self.answer(json.dumps({"kubeletconfig": {"cpuManagerPolicy": "none"}}).encode())
        elif "watch=true" in query:
            self.send_response(200)
            self.end_headers()
            time.sleep(600)
        else:
            kind = path.rpartition("/")[2]
            metadata = {"name": NODE, "uid": "u", "resourceVersion": "1"}
            spec = {"nodemetrics": {"metricCollectPolicy": COLLECT}, "nodeslos": SLO}.get(kind)
            known = kind in ("nodes", "nodemetrics", "nodeslos")
            items = [{"metadata": metadata, "spec": spec or {}}] if known else []
            self.answer(json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode())

    def take(self) -> None:
        """Answer a write with what was written."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.split("?")[0].endswith(f"nodemetrics/{NODE}/status"):
            Servers.reports += 1
        self.answer(json.dumps(body).encode())

    do_PUT = do_POST = do_PATCH = take

    def answer(self, content: bytes) -> None:
        """Send JSON."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    protocol_version = "HTTP/1.1"


def kubeconfig(directory: pathlib.Path, url: str) -> pathlib.Path:
    """Write a kubeconfig for the server."""
    path = directory / "kubeconfig"
    cluster = {"clusters": [{"name": "c", "cluster": {"server": url}}], "users": [{"name": "u", "user": {}}]}
    chosen = {"contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x"}
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **cluster, **chosen}))
    return path


def measure(mode: str, url: str, seconds: float) -> Row:
    """Run the agent for some seconds and return what it cost after it had settled."""
    with tempfile.TemporaryDirectory() as directory:
        place = pathlib.Path(directory)
        command = [
            sys.executable, "-m", "cotenant", "node", f"--node={NODE}", f"--mode={mode}", f"--kubelet={url}",
            f"--kubeconfig={kubeconfig(place, url)}", f"--state={place}", "--beside-others",
        ]  # fmt: skip
        Servers.reports = 0
        program = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=loads.end_with_parent
        )
        try:
            time.sleep(SETTLE_SECONDS)
            began, used = time.monotonic(), cpu_s(program.pid)
            time.sleep(seconds)
            share = (cpu_s(program.pid) - used) / (time.monotonic() - began)
            return Row(resident_mib(program.pid), share * 100, Servers.reports)
        finally:
            program.send_signal(signal.SIGTERM)
            program.wait(timeout=20)


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process, the files it shares included."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=150)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--awake", action="store_true", help="with a process in each container")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    Servers.pods = json.dumps({"kind": "PodList", "items": [pod(n) for n in range(options.pods)]}).encode()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Servers)
    rows = {}
    try:
        # Processes first: they are forks of this one, which has no threads yet.
        with groups(options.pods), processes(options.pods) if options.awake else nullcontext():
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, daemon=True).start()
            for mode in ("observe", "dry-run"):
                rows[mode] = measure(mode, f"http://127.0.0.1:{server.server_port}", options.seconds)
    except OSError as error:
        print(f"bench/node: no groups for pods: {error}; run as root", file=sys.stderr)
        return 0
    finally:
        server.server_close()
    if options.json:
        print(json.dumps({mode: dataclasses.asdict(row) for mode, row in rows.items()}, indent=2))
        return 0
    print(f"cotenant node beside {options.pods} pods{'MiB':>12}{'CPU %':>8}{'reports':>9}  target")
    for mode, row in rows.items():
        print(f"{mode:32}{row.resident_mib:9.0f}{row.cpu_percent:8.2f}{row.reports:9}  {TARGET}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
