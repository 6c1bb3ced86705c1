"""What the kernel itself says of waiting: schedstat's mean, the stall of a group, and a trigger on it."""

import time
from typing import Any

from tests.vm.parts import work

from cotenant.kernel import enforcing, executor, fast_path, paths, sampler, stall_trigger
from cotenant.units import clock
from cotenant.units.plan import PlanItem

CPU = 1
GROUP = "waiting"


def look(root: paths.Root) -> dict[str, Any]:
    mount = root.hierarchy("cpu")
    assert mount is not None
    with work.group(mount.path / GROUP) as group:
        found = samples(root, group)
        if root.cgroup_version() == "v2":
            found["trigger"] = trigger(group)
            found["fast path"] = answer(root, group)
    return found


def samples(root: paths.Root, group: Any) -> dict[str, Any]:
    """One sample of a calm second, and one while three tasks of the group want one CPU; no eBPF."""
    with_group = sampler.Sampler(root)
    try:
        with_group.prime()
        time.sleep(1)
        calm = with_group.sample()
        with work.spinning(3, CPU, group):
            time.sleep(0.3)
            with_group.sample()
            time.sleep(1)
            busy = with_group.sample()
    finally:
        with_group.close()
    mine = next((one for one in busy.cgroups if one.path == GROUP), None)
    return {
        "source": calm.cpu.source,
        "calm mean usec": calm.cpu.run_queue_latency_mean_usec,
        "busy mean usec": busy.cpu.run_queue_latency_mean_usec,
        "missing": dict(busy.missing),
        "group cpu some": None if mine is None else mine.psi.cpu_some_ratio,
        "node cpu some": busy.psi.cpu_some_ratio,
        "block source": busy.block.source,
    }


def trigger(group: Any) -> dict[str, Any]:
    """Ask to be woken by a stall of 30 ms within 500 ms; say after how long it came."""
    triggers = stall_trigger.Triggers()
    try:
        taken = triggers.watch(group / "cpu.pressure")
        calm = triggers.wait(1.0)
        with work.spinning(2, CPU, group):
            begin = time.monotonic()
            stalled = triggers.wait(work.PATIENCE_SECONDS)
            seconds = time.monotonic() - begin
    finally:
        triggers.close()
    return {"taken": taken, "calm": calm, "stalled": stalled, "seconds": seconds}


def answer(root: paths.Root, group: Any) -> dict[str, Any]:
    """Let the fast path tighten a quota when the group stalls; say after how long it was there."""
    mount = root.hierarchy("cpu")
    assert mount is not None
    with work.group(mount.path / "offline") as offline:
        enforcer = enforcing.Enforcer(root, executor.Executor(root), beside_others=True)
        fast = fast_path.FastPath(root, enforcer, clock.SystemClock())
        item = PlanItem(
            op="write", path=root.relative(offline / "cpu.max"), new="50000", strategy="fast_path", reason="a test"
        )
        fast.start()
        try:
            fast.aim([GROUP], [item])
            with work.spinning(2, CPU, group):
                seconds = work.wait(lambda: fast.total, 0.005)
            quota = (offline / "cpu.max").read_text().split()[0]
        finally:
            fast.stop()
        enforcer.restore()
        return {"tightened": fast.total, "seconds": seconds, "quota": quota, "after": (offline / "cpu.max").read_text()}
