"""Core-scheduling cookies by the policy ``coreSched``: who gets which, what a child keeps, and what a restore takes."""

import os
import pathlib
import signal
from typing import Any

import msgspec
from tests.vm.parts import console, node, work

from cotenant.kernel import core_cookie, paths
from cotenant.local import groups, smt

SPEC: dict[str, Any] = {"resourceQOSStrategy": {"policies": {"cpuPolicy": "coreSched"}}}
SECONDS = 2.0


def look(root: paths.Root) -> dict[str, Any]:
    with node.kubelet(root) as here:
        offline = [here.file("cpu", node.PLACES["be"], "")]
        second = work.Worker(breed).enter(*offline)
        second.begin()
        here.workers["second"] = second
        found: dict[str, Any] = {"before": cookies(here)}
        status, done, said = here.enforce(SPEC)
        found["enforced"] = [status, said, sorted({(item["op"], item["new"]) for item in done})]
        found["given"] = cookies(here)
        first_child = child_of(second, offline[0])
        found["inherited"] = core_cookie.read(first_child)
        found["again"] = [here.enforce(SPEC)[0], cookies(here), core_cookie.read(first_child)]
        off = here.enforce({})
        found["off"] = [off[0], off[2], {**cookies(here), "child": core_cookie.read(first_child)}]
        here.enforce(SPEC)
        found["anew"] = {**cookies(here), "child": core_cookie.read(first_child)}
        last_child = child_of(second, offline[0])
        os.kill(first_child, signal.SIGKILL)
        for name in ("be", "second"):
            here.workers.pop(name).kill()
        found["orphan"] = core_cookie.read(last_child)
        found["restored"] = console.restore()
        found["child"] = f"proc/{last_child}"
        found["after"] = [core_cookie.read(last_child), len(core_cookie.held(root))]
        os.kill(last_child, signal.SIGKILL)
    return found


def cookies(here: node.Node) -> dict[str, int]:
    return {name: core_cookie.read(worker.pid) for name, worker in here.workers.items()}


def breed() -> None:
    """Start a child at each SIGUSR1; both sleep."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    while signal.sigwait({signal.SIGUSR1}):
        if os.fork() == 0:
            work.sleep()
            os._exit(0)


def child_of(parent: work.Worker, group: pathlib.Path) -> int:
    """Let a process start a child and return it, seen in its group."""
    file = group / "cgroup.procs"
    before = file.read_text().split()
    os.kill(parent.pid, signal.SIGUSR1)
    work.wait(lambda: set(file.read_text().split()) - set(before))
    (new,) = set(file.read_text().split()) - set(before)
    return int(new)


def siblings(root: paths.Root) -> dict[str, Any]:
    """Return the verdicts on expulsion with a cookie for offline work and without, and how long cores were kept idle.

    Cores forced idle are accounted where schedstats are on.
    """
    pathlib.Path("/proc/sys/kernel/sched_schedstats").write_text("1\n")
    managed = groups.Groups(root)
    found: dict[str, Any] = {}
    for name, with_cookies in (("without", False), ("with", True)):
        before = forced_idle_usec(root)
        result = smt.verify(managed, wanted=None, seconds=SECONDS, force=True, core_scheduling=with_cookies)
        after = forced_idle_usec(root)
        idle = None if before is None or after is None else after - before
        found[name] = {**msgspec.to_builtins(result), "forced idle usec": idle}
    found["left"] = len(core_cookie.held(root))
    return found


def forced_idle_usec(root: paths.Root) -> int | None:
    mount = root.hierarchy("cpu")
    assert mount is not None
    words = (mount.path / "cpu.stat").read_text().split()
    name = "core_sched.force_idle_usec"
    return int(words[words.index(name) + 1]) if name in words else None
