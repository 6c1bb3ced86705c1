"""What is tried inside a guest: ``guest.py v1|v2|cookies`` runs the parts of one kind of kernel, one after the other.

Plain Python, run by ``machine.boot``; prints one JSON object with what each part found and how long it took.
"""

import faulthandler
import json
import os
import pathlib
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from tests.vm.parts import console, cookies, killed, policy, tracing, waiting

from cotenant.kernel import executor, paths, priority, topology, undo
from cotenant.local import groups, regression
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


STANDS_STILL_SECONDS = 240
"""After so many seconds, and so many more, the guest tells where it is: whoever waits for it sees what it waits for."""


def main() -> None:
    faulthandler.dump_traceback_later(STANDS_STILL_SECONDS, repeat=True)
    root = paths.Root()
    found: dict[str, Any] = {"kernel": os.uname().release, "version": root.cgroup_version()}
    found["smt"] = [[cpu.id, cpu.core] for cpu in topology.read(root).cpus]
    found["seconds"], found["failed"] = {}, {}
    for name, part in PARTS[sys.argv[1]].items():
        begin = time.monotonic()
        print(f"part {name}", flush=True)
        try:
            found[name] = part(root)
        except Exception:  # noqa: BLE001 - the other parts say what they have to say; a test fails with this text
            found["failed"][name] = traceback.format_exc()
        found["seconds"][name] = round(time.monotonic() - begin, 1)
    print(json.dumps(found))


def trying(root: paths.Root) -> dict[str, Any]:
    """Ask the kernel whether it answers as the trials say, and what it is."""
    status, told, _ = console.run("verify", "kernel")
    results = told["results"]
    return {
        "status": status,
        "interface": priority.probe(root).name,
        "deviations": [[r["name"], r["deviations"]] for r in results if r["deviations"]],
        "tried": [r["name"] for r in results if r["state"] == "agrees"],
        "skipped": {r["name"]: r["reason"] for r in results if r["state"] == "skipped"},
    }


def checking(root: paths.Root) -> dict[str, Any]:
    """Ask ``cotenant check`` what there is."""
    status, told, _ = console.run("check")
    return {**told, "status": status, "features": {f["name"]: f["state"] for f in told["features"]}}


def checklist(root: paths.Root) -> dict[str, list[str]]:
    return {row.name: [row.state, row.detail] for row in regression.verify(groups.Groups(root), force=True)}


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


def writes(root: paths.Root) -> dict[str, Any]:
    """Write each file by the executor, write again, and put everything back."""
    wanted = paths_of(root)
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


Part = Callable[[paths.Root], Any]
EVERYWHERE: dict[str, Part] = {"writes": writes, "check": checking}
"""The first has the v2 root give its controllers away, which the others need."""
ANY: dict[str, Part] = {
    **EVERYWHERE,
    "trials": trying,
    "run": run,
    "tracing": tracing.look,
    "waiting": waiting.look,
    "policy": policy.look,
    "regression": checklist,
}
PARTS: dict[str, dict[str, Part]] = {
    "v1": ANY,
    "v2": {**ANY, "killed": killed.look},
    "cookies": {**EVERYWHERE, "cookies": cookies.look, "siblings": cookies.siblings},
}

if __name__ == "__main__":
    main()
