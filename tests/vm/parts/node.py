"""A kubelet's groups of three pods in this kernel, with a process in each, and a policy for them."""

import contextlib
import json
import os
import pathlib
import re
import time
from collections.abc import Iterator
from typing import Any

from tests.vm.parts import console, work

from cotenant.kernel import paths

OWN_CPUS, SHARED_CPUS = "0-1", "2-3"
"""CPUs of the first core, which the LSE pod has by its annotation alone, and the others."""
CONTROLLERS = ("cpu", "cpuset", "memory", "blkio")
_COUNTS = re.compile(r"procs$|threads$|tasks$|pressure$|usage|peak$|failcnt$")
"""Files that can be written and nevertheless say what happens, not what was set."""
PLACES = {
    "be": "kubepods/besteffort/poduid-be/be-c",
    "ls": "kubepods/burstable/poduid-ls/ls-c",
    "lse": "kubepods/poduid-lse/lse-c",
}


def _pod(name: str, label: str, qos: str, **more: Any) -> dict[str, Any]:
    resources = {key: more[key] for key in ("requests", "limits") if key in more}
    container = {"name": "c", "containerID": f"containerd://{name}-c", "state": {"running": {}}}
    return {
        "metadata": {
            "name": name, "namespace": "default", "uid": f"uid-{name}",
            "labels": {"koordinator.sh/qosClass": label}, "annotations": more.get("annotations"),
        },
        "spec": {"containers": [{"name": "c", "resources": resources}]},
        "status": {"phase": "Running", "qosClass": qos, "containerStatuses": [container]},
    }  # fmt: skip


PODS = {
    "kind": "PodList",
    "items": [
        _pod("be", "BE", "BestEffort"),
        _pod("ls", "LS", "Burstable", requests={"cpu": "500m", "memory": "32Mi"}, limits={"memory": "64Mi"}),
        _pod(
            "lse", "LSE", "Guaranteed", limits={"cpu": "2", "memory": "64Mi"}, requests={"cpu": "2", "memory": "64Mi"},
            annotations={"scheduling.koordinator.sh/resource-status": json.dumps({"cpuset": OWN_CPUS})},
        ),
    ],
}  # fmt: skip


class Node:
    """The groups, their processes, and the commands on them."""

    def __init__(self, root: paths.Root, directory: pathlib.Path) -> None:
        self.root = root
        self.workers: dict[str, work.Worker] = {}
        self._directory = directory
        mounts = [root.hierarchy(name) for name in CONTROLLERS]
        self.tops = tuple(dict.fromkeys(mount.path for mount in mounts if mount is not None))

    def file(self, controller: str, group: str, name: str) -> pathlib.Path:
        mount = self.root.hierarchy(controller)
        assert mount is not None
        return mount.path / group / name

    def groups(self) -> list[str]:
        """Return all groups, parents first."""
        found = {"kubepods"}
        for place in PLACES.values():
            parts = place.split("/")
            found |= {"/".join(parts[:length]) for length in range(1, len(parts) + 1)}
        return sorted(found)

    def make(self) -> None:
        for top in self.tops:
            for group in self.groups():
                (top / group).mkdir()
                if (top / "cgroup.subtree_control").exists() and group not in PLACES.values():
                    given = (top / group / "cgroup.controllers").read_text().split()
                    (top / group / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in given))
                if (top / "cpuset.mems").exists():  # v1: a new set is empty and takes no task
                    for name in ("cpuset.cpus", "cpuset.mems"):
                        (top / group / name).write_text((top / name).read_text())
        for name, place in PLACES.items():
            self.workers[name] = work.Worker(work.sleep).enter(*(top / place for top in self.tops))
            self.workers[name].begin()

    def remove(self) -> None:
        for worker in self.workers.values():
            worker.kill()
        for top in self.tops:
            for group in reversed(self.groups()):
                work.remove(top / group)

    def content(self) -> dict[str, str]:
        """Return every file that can be written of every group, but those that list tasks or only take commands."""
        found = {}
        for top in self.tops:
            for group in self.groups():
                for file in (top / group).iterdir():
                    settable = file.is_file() and file.stat().st_mode & 0o200 and file.stat().st_mode & 0o400
                    if settable and not _COUNTS.search(file.name):
                        with contextlib.suppress(OSError):
                            found[str(file)] = file.read_text()
        return found

    def enforce(self, spec: dict[str, Any], *options: str, usage: dict[str, Any] | None = None) -> tuple[int, Any, str]:
        """Run ``cotenant enforce --once`` with a NodeSLO of this spec."""
        slo = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "metadata": {"name": "n"}, "spec": spec}
        words = ["enforce", "--once", *options]
        for name, value in (("pods", PODS), ("slo", slo), ("usage", usage)):
            if value is not None:
                file = self._directory / f"{name}.json"
                file.write_text(json.dumps(value))
                words += [f"--{name}", str(file)]
        return console.run(*words)

    def allowed(self, name: str) -> list[int]:
        return sorted(os.sched_getaffinity(self.workers[name].pid))


@contextlib.contextmanager
def kubelet(root: paths.Root) -> Iterator[Node]:
    directory = pathlib.Path("/var/tmp", f"node-{time.monotonic_ns()}")
    directory.mkdir()
    node = Node(root, directory)
    try:
        node.make()
        yield node
    finally:
        node.remove()
