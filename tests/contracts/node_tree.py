"""Trees of plain files that stand for nodes of every kernel family, and runs of the commands on them."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from cotenant.cli import app

V1_FILES: Mapping[str, Mapping[str, str]] = {
    "openeuler": {"cpu.qos_level": "0"},
    "anolis-bvt": {"cpu.bvt_warp_ns": "0", "cpu.identity": "0"},
    "anolis-priority": {"cpu.priority": "0", "cpu.identity": "0"},
    "both": {"cpu.bvt_warp_ns": "0", "cpu.priority": "0", "cpu.identity": "0"},
    "tencent": {"cpu.offline": "0"},
    "mainline": {"cpu.idle": "0"},
    "weights": {},
}
_CPU = {"cpu.shares": "1024", "cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}
_V2 = {
    "cpu.weight": "100", "cpu.max": "max 100000", "cpu.max.burst": "0", "cpuset.cpus": "",
    "memory.min": "0", "memory.low": "0", "memory.high": "max", "memory.max": "max",
}  # fmt: skip
Pod = dict[str, Any]


class Node:
    """A tree with a kubelet's groups in it. ``mount`` is where the cpu controller (v1) or everything (v2) is."""

    def __init__(
        self, directory: pathlib.Path, family: str, *, v2: bool = False, systemd: bool = False, mount: str | None = None
    ) -> None:
        self.directory, self.family, self.v2, self.systemd = directory, family, v2, systemd
        self.mount = mount or ("sys/fs/cgroup" if v2 else "sys/fs/cgroup/cpu")
        kind = "cgroup2 cgroup2 rw" if v2 else "cgroup cgroup rw,cpu"
        lines = [f"30 20 0:30 / /{self.mount} rw - {kind}"]
        if not v2:
            lines.append("31 20 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset")
        self.file("proc/self/mountinfo", "\n".join(lines))
        self.group("")
        for path in self.qos_directories().values():
            self.group(path)

    def file(self, path: str, text: str) -> pathlib.Path:
        place = self.directory / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{text}\n")
        return place

    def describe(self, cpus: int = 8, memory_gib: int = 32) -> "Node":
        """Add what the tree says of the node itself."""
        self.file("sys/devices/system/cpu/online", f"0-{cpus - 1}")
        self.file("proc/meminfo", f"MemTotal: {memory_gib << 20} kB")
        return self

    def qos_directories(self) -> dict[str, str]:
        top = "kubepods.slice" if self.systemd else "kubepods"
        if self.systemd:
            return {
                "Guaranteed": top,
                "Burstable": f"{top}/kubepods-burstable.slice",
                "BestEffort": f"{top}/kubepods-besteffort.slice",
            }
        return {"Guaranteed": top, "Burstable": f"{top}/burstable", "BestEffort": f"{top}/besteffort"}

    def group(self, path: str, **files: str) -> None:
        own = dict(V1_FILES[self.family]) | (_V2 if self.v2 else _CPU)
        if self.v2 and not path:
            own = {"cgroup.controllers": "cpu cpuset memory"}
        for name, text in (own | files).items():
            self.file("/".join(part for part in (self.mount, path, name) if part), text)
        if not self.v2:
            self.file(f"sys/fs/cgroup/cpuset/{path}/cpuset.cpus".replace("//", "/"), "0-7")

    def pod_path(self, pod: Pod) -> str:
        uid, qos = pod["metadata"]["uid"], pod["status"]["qosClass"]
        directory = self.qos_directories()[qos]
        if not self.systemd:
            return f"{directory}/pod{uid}"
        prefix = directory.rpartition("/")[2].removesuffix(".slice")
        return f"{directory}/{prefix}-pod{uid.replace('-', '_')}.slice"

    def container_path(self, pod: Pod, name: str = "c") -> str:
        own = f"{pod['metadata']['name']}-{name}"
        return f"{self.pod_path(pod)}/" + (f"cri-containerd-{own}.scope" if self.systemd else own)

    def run_pod(self, pod: Pod, **files: str) -> Pod:
        """Make the groups of a pod and of its containers."""
        self.group(self.pod_path(pod), **files)
        for container in pod["spec"]["containers"]:
            self.group(self.container_path(pod, container["name"]), **files)
        return pod

    def cpu(self, group: str, file: str) -> str:
        return (self.directory / self.mount / group / file).read_text().strip()

    def cpus(self, group: str) -> str:
        mount = self.mount if self.v2 else "sys/fs/cgroup/cpuset"
        return (self.directory / mount / group / "cpuset.cpus").read_text().strip()

    def content(self) -> dict[str, bytes]:
        """Return every file of the tree but our own journal."""
        found = (path for path in self.directory.rglob("*") if path.is_file())
        names = {str(path.relative_to(self.directory)): path for path in found}
        return {name: path.read_bytes() for name, path in names.items() if not name.startswith("run/")}


def pod(name: str, label: str | None, qos: str = "BestEffort", namespace: str = "default", **spec: Any) -> Pod:
    """Return a running pod with one container ``c``; ``requests``, ``limits`` and ``annotations`` are its own."""
    resources = {key: spec.pop(key) for key in ("requests", "limits") if key in spec}
    metadata = {
        "name": name, "namespace": namespace, "uid": f"uid-{name}", "annotations": spec.pop("annotations", None),
        "labels": {"koordinator.sh/qosClass": label} if label else None,
    }  # fmt: skip
    status: dict[str, Any] = {"phase": "Running", "qosClass": qos}
    status |= {"containerStatuses": [{"name": "c", "containerID": f"containerd://{name}-c", "state": {"running": {}}}]}
    return {
        "metadata": metadata,
        "spec": {"containers": [{"name": "c", "resources": resources}], **spec},
        "status": status,
    }


def identity(on: bool = True, **other: Any) -> dict[str, Any]:
    """Return a NodeSLO with the classes' CPU identities as Koordinator's users have them."""
    classes = {"lsrClass": 2, "lsClass": 2, "beClass": -1}
    strategy = {name: {"cpuQOS": {"enable": on, "groupIdentity": value}} for name, value in classes.items()}
    return slo(resourceQOSStrategy=strategy, **other)


def slo(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "metadata": {"name": "n1"}, "spec": spec}


class Commands:
    """``cotenant`` on a tree: exit status, the JSON that was printed, and what a person was told."""

    def __init__(self, capsys: pytest.CaptureFixture[str], directory: pathlib.Path) -> None:
        self._capsys, self._directory = capsys, directory

    def run(self, *words: str) -> tuple[int, Any, str]:
        status = app.run([*words, "--json"])
        out, err = self._capsys.readouterr()
        return status, json.loads(out) if out else None, err

    def enforce(
        self, node: Node, pods: Sequence[Pod], policy: Mapping[str, Any], *options: str, **inputs: Any
    ) -> tuple[int, Any, str]:
        """Enforce once; ``usage``, ``node_object`` and ``nrt`` are further inputs."""
        given: list[str] = []
        names = {"usage": "--usage", "node_object": "--node", "nrt": "--nrt"}
        files = {"--pods": {"kind": "PodList", "items": list(pods)}, "--slo": policy}
        files |= {names[name]: value for name, value in inputs.items()}
        for option, value in files.items():
            place = self._directory / f"{option[2:]}.json"
            place.write_text(json.dumps(value))
            given += [option, str(place)]
        return self.run("enforce", "--once", "--root", str(node.directory), *given, *options)

    def restore(self, node: Node) -> tuple[int, Any, str]:
        return self.run("restore", "--root", str(node.directory))

    def check(self, node: Node, *options: str) -> tuple[int, Any, str]:
        return self.run("check", "--root", str(node.directory), *options)
