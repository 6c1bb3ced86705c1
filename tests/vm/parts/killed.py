"""``cotenant up --enforce`` killed with -9: its limits stay in force, and ``cotenant restore`` takes them all back."""

import pathlib
import signal
import subprocess
import sys
import time
from typing import Any

from tests.vm.parts import console, work

from cotenant.kernel import paths

OFFLINE, ONLINE = "cotenant-be", "cotenant-ls"


def look(root: paths.Root) -> dict[str, Any]:
    """An offline and an online command: when the offline one has its quota and its priority, the program is killed."""
    mount = root.hierarchy("cpu")
    assert mount is not None
    groups = [mount.path / name for name in (OFFLINE, ONLINE, f"{OFFLINE}/job", f"{ONLINE}/service")]
    with work.group(*groups[:2]):
        for group in groups[:2]:
            (group / "cgroup.subtree_control").write_text("+cpu +cpuset +memory +io")
        return killed(root, groups)


def killed(root: paths.Root, groups: list[pathlib.Path]) -> dict[str, Any]:
    with work.group(*groups[2:]):
        before = content(groups)
        workers = [work.Worker(work.sleep).enter(group) for group in groups[2:]]
        for worker in workers:
            worker.begin()
        try:
            found = enforced(groups, before)
        finally:
            for worker in workers:
                worker.kill()
        found["restored"] = console.restore()
        after = content(groups)
        found["changed"] = {path: [before[path], after[path]] for path in before if before[path] != after[path]}
        found["second"] = console.restore()
        found["journal"] = (root.run_dir / "journal").exists()
    return found


def enforced(groups: list[pathlib.Path], before: dict[str, str]) -> dict[str, Any]:
    words = ["up", "--enforce", "--no-web", "--data", "/var/tmp/up"]
    words += ["--match", f"{OFFLINE}/*=BE", "--match", f"{ONLINE}/*=LS"]
    command = [sys.executable, "-S", "-c", "from cotenant.cli.app import main; main()", *words]
    log = pathlib.Path("/var/tmp/up.log")
    with open(log, "wb") as stream:
        program = subprocess.Popen(command, stdout=stream, stderr=stream)
    wanted = (groups[0] / "cpu.max", groups[2] / "cpu.idle")
    seconds = work.wait(
        lambda: program.poll() is not None or all(file.read_text() != before[str(file)] for file in wanted), 0.2
    )
    found: dict[str, Any] = {
        "seconds": seconds,
        "status": program.poll(),
        "log": log.read_text()[-1500:],
    }
    program.send_signal(signal.SIGKILL)
    program.wait()
    now = content(groups)
    time.sleep(1.0)
    found["written"] = {path: now[path] for path in now if now[path] != before[path]}
    found["stays"] = content(groups) == now
    return found


def content(groups: list[pathlib.Path]) -> dict[str, str]:
    names = ("cpu.max", "cpu.idle", "cpu.weight", "cpu.max.burst", "cpuset.cpus", "memory.high", "memory.low", "io.max")
    files = [group / name for group in groups for name in names]
    return {str(file): file.read_text() for file in files if file.exists()}
