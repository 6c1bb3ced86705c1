"""What is tried inside a guest: the executor on real files, ``run``, ``restore``, ``check``, the SMT topology.

Plain Python, run by ``machine.boot``; prints one JSON object.
"""

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import msgspec

from cotenant.kernel import executor, paths, priority, topology, trials, undo
from cotenant.local import groups, regression, smt
from cotenant.units.plan import PlanItem

TOP = "sys/fs/cgroup"
V2 = {
    "cpu.weight": "50",
    "cpu.max": "50000 100000",
    "cpu.max.burst": "20000",
    "cpuset.cpus": "0-1",
    "memory.min": "4096",
    "memory.low": "1048576",
    "memory.high": "67108864",
    "memory.max": "134217728",
}
V1 = {
    "cpu": {"cpu.shares": "50", "cpu.cfs_quota_us": "50000", "cpu.cfs_burst_us": "20000"},
    "cpuset": {"cpuset.cpus": "0-1", "cpuset.mems": "0"},
    "memory": {"memory.limit_in_bytes": "134217728"},
}


def main() -> None:
    root = paths.Root()
    found: dict[str, Any] = {"kernel": os.uname().release, "version": root.cgroup_version()}
    found["smt"] = [[cpu.id, cpu.core] for cpu in topology.read(root).cpus]
    found["writes"] = writes(root, paths_of(root))
    found["interface"] = priority.probe(root).name
    verification = trials.verify(root)
    found["deviations"] = [[r.name, r.deviations] for r in verification.results if r.deviations]
    found["tried"] = [r.name for r in verification.results if r.state == "agrees"]
    found["run"] = run(root)
    managed = groups.Groups(root)
    found["verify smt"] = msgspec.to_builtins(smt.verify(managed, wanted=None, seconds=1.0, force=True))
    found["regression"] = {row.name: [row.state, row.detail] for row in regression.verify(managed, force=True)}
    print(json.dumps(found))


def paths_of(root: paths.Root) -> dict[str, str]:
    """Make a group in each hierarchy and return what to write there, by path."""
    wanted = {}
    if root.cgroup_version() == "v2":
        top = pathlib.Path("/", TOP)
        (top / "cgroup.subtree_control").write_text("+cpu +cpuset +memory +io")
        (top / "group").mkdir()
        wanted = {f"{TOP}/group/{file}": value for file, value in V2.items()}
    else:
        for controller, files in V1.items():
            group = pathlib.Path("/", TOP, controller, "group")
            if group.parent.is_dir():
                group.mkdir()
                wanted.update({f"{TOP}/{controller}/group/{file}": value for file, value in files.items()})
    return {path: value for path, value in wanted.items() if pathlib.Path("/", path).exists()}


def writes(root: paths.Root, wanted: dict[str, str]) -> dict[str, Any]:
    """Write each file by the executor, write again, and put everything back."""
    before = {path: pathlib.Path("/", path).read_text() for path in wanted}
    items = [
        PlanItem(op="write", path=path, new=value, strategy="vm", reason="tried") for path, value in wanted.items()
    ]
    writer = executor.Executor(root)
    first = {outcome.item.path: outcome.state for outcome in writer.apply(items)}
    second = {outcome.item.path: outcome.state for outcome in writer.apply(items)}
    restored = undo.restore(executor.Executor(root))
    after = {path: pathlib.Path("/", path).read_text() for path in wanted}
    return {
        "first": first,
        "second": second,
        "complete": restored.complete,
        "changed": {path: [before[path], after[path]] for path in wanted if before[path] != after[path]},
    }


def run(root: paths.Root) -> dict[str, Any]:
    """Run a command in a group and look at what it saw."""
    script = "cat /proc/self/cgroup; cat $(find /sys/fs/cgroup -path '*cotenant-be/job/cpu.idle'); exit 7"
    command = [sys.executable, "-S", "-c", "from cotenant.cli.app import main; main()"]
    words = ["run", "--qos", "BE", "--name", "job", "--cpus", "500m", "--memory", "64Mi", "--", "sh", "-c", script]
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
    left = subprocess.run(["find", "/sys/fs/cgroup", "-name", "cotenant*"], capture_output=True, text=True, check=True)
    return {"status": done.returncode, "out": done.stdout, "err": done.stderr, "left": left.stdout.split()}


main()
