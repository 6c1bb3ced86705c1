"""One scenario on the mounted double of each family, by the commands that people run.

``scenario.json``: pods come and go, identities change, everything is put back. What an identity is in files differs by
family and is the priority interface's table; what the kernel keeps (openEuler's -1) must be named by ``restore``.
"""

import contextlib
import dataclasses
import json
import pathlib
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from tests.double import fuse, model
from tests.waiting import PATIENCE_SECONDS

from cotenant.cli import app
from cotenant.kernel import paths, priority

pytestmark = pytest.mark.slow

SCENARIO = json.loads(pathlib.Path(__file__).with_name("scenario.json").read_text())
V1 = ("cpu", "cpuacct", "cpuset", "memory", "blkio", "pids")


@dataclasses.dataclass
class Pod:
    name: str
    qos: str
    kube: str
    uid: str

    @property
    def group(self) -> str:
        between = {"Burstable": "burstable/", "BestEffort": "besteffort/"}[self.kube]
        return f"kubepods/{between}pod{self.uid}"

    def listed(self) -> dict[str, Any]:
        container = {"name": "main", "image": "x", "resources": {}}
        if self.kube == "Burstable":
            container["resources"] = {"requests": {"cpu": "100m"}}
        return {
            "metadata": {
                "name": self.name,
                "namespace": "default",
                "uid": self.uid,
                "labels": {"koordinator.sh/qosClass": self.qos},
            },
            "spec": {"containers": [container]},
            "status": {"phase": "Running", "qosClass": self.kube},
        }


class Node:
    """The double with its kubelet's groups."""

    def __init__(self, kernel: model.Kernel, root: pathlib.Path, directory: pathlib.Path) -> None:
        self.kernel, self.root, self.directory = kernel, root, directory
        self.pods: dict[str, Pod] = {}
        self.identities: dict[str, int] = {}
        joined = [",".join(h.controllers) for h in kernel.hierarchies]
        self.tops = [f"{model.CGROUP}/{name}" for name in joined] if kernel.flavour.version == 1 else [model.CGROUP]
        for top in self.tops:
            for group in ("", "kubepods", "kubepods/burstable", "kubepods/besteffort"):
                self._make(f"{top}/{group}".rstrip("/"))
        self.before: dict[str, str] = {}

    def _make(self, path: str) -> None:
        if path not in self.tops:
            self.kernel.mkdir(path)
            if "/cpuset/" in path:
                for file, text in (("cpuset.cpus", f"0-{self.kernel.cpus - 1}"), ("cpuset.mems", "0")):
                    self.kernel.write(f"{path}/{file}", text)
        if self.kernel.flavour.version == 2:
            self.kernel.write(f"{path}/cgroup.subtree_control", "+cpu +cpuset +memory +io")

    def start(self, step: dict[str, Any]) -> None:
        pod = Pod(step["pod"], step["qos"], step["kube"], str(uuid.uuid5(uuid.NAMESPACE_DNS, step["pod"])))
        self.pods[pod.name] = pod
        for top in self.tops:
            self._make(f"{top}/{pod.group}")
            for file, text in self._state_of(f"{top}/{pod.group}").items():
                self.before.setdefault(file, text)

    def _state_of(self, group: str) -> dict[str, str]:
        return {path: text for path, text in self.kernel.state().items() if path.rpartition("/")[0] == group}

    def end(self, step: dict[str, Any]) -> None:
        pod = self.pods.pop(step["pod"])
        for top in self.tops:
            self.kernel.vanish(f"{top}/{pod.group}")
            self.before = {path: text for path, text in self.before.items() if pod.group not in path}

    def _write_inputs(self) -> tuple[pathlib.Path, pathlib.Path]:
        pods, slo = self.directory / "pods.json", self.directory / "slo.json"
        pods.write_text(json.dumps({"kind": "PodList", "items": [pod.listed() for pod in self.pods.values()]}))
        classes = {
            f"{name.lower()}Class": {"cpuQOS": {"enable": True, "groupIdentity": identity}}
            for name, identity in self.identities.items()
        }
        slo.write_text(json.dumps({"kind": "NodeSLO", "spec": {"resourceQOSStrategy": classes}}))
        return pods, slo

    def enforce(self) -> None:
        self.kernel.attempts.clear()
        pods, slo = self._write_inputs()
        words = ["enforce", "--once", "--root", str(self.root), "--pods", str(pods), "--slo", str(slo)]
        assert app.run(words) in (0, 3)
        assert list(self.kernel.refused()) == []

    def kill(self, step: dict[str, Any]) -> None:
        """Enforce in a process of its own and kill it with -9 in the middle of a write to a group."""
        killed = threading.Event()
        started: list[subprocess.Popen[bytes]] = []

        def strike(operation: str, path: str, text: str | None) -> None:
            if operation == "write" and step["at"] in path and not killed.is_set():
                killed.set()
                started[0].kill()

        self.kernel.before.append(strike)
        words = ["enforce", "--once", "--root", str(self.root), "--pods", str(self.directory / "pods.json")]
        words += ["--slo", str(self.directory / "slo.json")]
        self._write_inputs()
        started.append(subprocess.Popen([sys.executable, "-m", "cotenant", *words], stdout=subprocess.DEVNULL))
        assert started[0].wait(PATIENCE_SECONDS) == -signal.SIGKILL
        self.kernel.before.remove(strike)

    def expect(self, step: dict[str, Any]) -> None:
        if "writes" in step:
            assert len(self.kernel.attempts) == step["writes"], self.kernel.attempts
        interface = priority.probe(paths.Root(self.root))
        for name, identity in step.get("pods", {}).items():
            for setting in interface.settings[identity]:
                mount = paths.Root(self.root).hierarchy(setting.controller)
                assert mount is not None
                text = (mount.path / self.pods[name].group / setting.file).read_text().strip()
                assert text == setting.value, (name, setting)
        if step.get("restored"):
            self._expect_restored()

    def _expect_restored(self) -> None:
        now = self.kernel.state()
        changed = {path for path, text in self.before.items() if now[path] != text}
        sticky = {path for path in changed if path.endswith("/cpu.qos_level")}
        assert changed == sticky
        assert bool(sticky) == (self.kernel.flavour.vendor.startswith("openeuler") and self.kernel.flavour.version == 1)

    def restore(self) -> None:
        sticky = self.kernel.flavour.vendor.startswith("openeuler") and self.kernel.flavour.version == 1
        assert app.run(["restore", "--root", str(self.root)]) == (3 if sticky else 0)

    def play(self, step: dict[str, Any]) -> None:
        match step["do"]:
            case "policy":
                self.identities = step["identities"]
            case "start" | "end" | "expect" | "kill":
                getattr(self, step["do"])(step)
            case "enforce" | "restore":
                getattr(self, step["do"])()


@pytest.fixture(params=list(model.FLAVOURS))
def node(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[Node]:
    if reason := fuse.unavailable():
        pytest.skip(reason)
    kernel = model.kernel(request.param)
    with contextlib.ExitStack() as stack:
        root = stack.enter_context(fuse.mounted(kernel, tmp_path))
        yield Node(kernel, root, tmp_path)


def test_the_scenario_plays_on_every_family(node: Node) -> None:
    for number, step in enumerate(SCENARIO):
        try:
            node.play(step)
        except AssertionError as error:
            raise AssertionError(f"step {number} {step}: {error}") from error
