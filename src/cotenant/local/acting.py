"""The acting rows of the checklist: the strategies of ``up --enforce``, on throw-away work and nobody else's."""

import os
import time
from typing import Literal

from cotenant.act import planning
from cotenant.kernel import enforcing, executor, snapshot
from cotenant.local import ending, groups, managed, workload
from cotenant.model.node import Usage, Use
from cotenant.model.policy import NodeSlo, ThresholdStrategy
from cotenant.model.sample import Cgroup

State = Literal["pass", "fail", "skipped"]
SECONDS = 2.0
THRESHOLD_PERCENT = 50
SUPPRESSED_ROOM = 1.15
"""Past the quota by so much: the kernel hands quota out in slices."""
GRACE_SECONDS = 2.0
END_SECONDS = 60.0
"""How long the end may take on a machine that stands still meanwhile; it says how long it was."""


def suppress(own: groups.Groups) -> tuple[State, str]:
    """Offline work on every CPU of a node that online work fills up to the threshold: it falls to the floor."""
    cpus = len(os.sched_getaffinity(0))
    if cpus < 2:
        return "skipped", "with one CPU the floor of offline work is all there is"
    with workload.workloads(own, "suppress") as loads:
        spinning = [loads.start("BE") for _ in range(cpus)]
        enforcer = enforcing.Enforcer(own.root, own.writer)
        units = _alone(loads.path("BE"))
        capacity = cpus * 1000.0
        busy = capacity * THRESHOLD_PERCENT / 100
        usage = Usage(node=Use(cpu_millicores=capacity), system=Use(cpu_millicores=busy))
        slo = NodeSlo(
            threshold=ThresholdStrategy(
                enable=True, cpu_suppress_threshold_percent=THRESHOLD_PERCENT, cpu_suppress_policy="cfsQuota"
            )
        )
        seen = enforcer.look((), units=units, usage=usage)
        plan = planning.plan(seen, slo, ("cpu_suppress",))
        done = enforcer.carry_out(seen, lambda _: plan.items)
        quota = next((target for target in plan.targets if target.path.endswith(("quota_us", "cpu.max"))), None)
        if quota is None or done.conflict:
            return "skipped", done.conflict or "no quota file: nothing can be suppressed by quota here"
        allowed = int(quota.value.split()[0]) / 100_000
        time.sleep(0.3)
        before, begin = sum(p.run_ns() for p in spinning), time.monotonic()
        time.sleep(SECONDS)
        had = (sum(p.run_ns() for p in spinning) - before) / 1e9 / (time.monotonic() - begin)
        for outcome in done.outcomes:
            if outcome.state != "written":
                return "fail", f"{outcome.item.path}: {outcome.state}: {outcome.detail}"
    text = f"offline work on {cpus} CPUs was held to {allowed:.2f} CPUs ({quota.reason}) and had {had:.2f}"
    if not had:
        return "skipped", f"{text}: something else takes all CPUs"
    return ("pass" if had <= allowed * SUPPRESSED_ROOM else "fail"), text


def evict(own: groups.Groups) -> tuple[State, str]:
    """A node said to be full of memory: the offline command is told to end, the online one stays."""
    end = ending.Ending(own.root, GRACE_SECONDS)
    writer = executor.Executor(own.root, evict=end)
    with workload.workloads(own, "evict") as loads:
        offline, online = loads.start("BE"), loads.start("LS")
        enforcer = enforcing.Enforcer(own.root, writer)
        units = _alone(loads.path("BE"), loads.path("LS"))
        full = enforcer.look((), units=units)
        capacity = full.node.capacity_memory_bytes
        if capacity is None:
            return "skipped", "the machine does not say how much memory it has"
        pods = {pod.key: Use(memory_bytes=capacity // 10) for pod in full.pods}
        usage = Usage(node=Use(memory_bytes=capacity * 9 // 10), pods=pods)
        slo = NodeSlo(threshold=ThresholdStrategy(enable=True, memory_evict_threshold_percent=80))
        seen = enforcer.look((), units=units, usage=usage)
        plan = planning.plan(seen, slo, ("memory_evict",))
        done = enforcer.carry_out(seen, lambda _: plan.items)
        if done.conflict:
            return "skipped", done.conflict
        begin = time.monotonic()
        ended = offline.wait(END_SECONDS) is not None
        seconds = time.monotonic() - begin
        stayed = online.wait(0.0) is None
    text = f"the offline command {'ended' if ended else 'did not end'} within {seconds:.1f} s"
    text += "" if stayed else "; the online one ended too"
    return ("pass" if ended and stayed else "fail"), text


def _alone(*paths: str) -> snapshot.Units:
    """Return these groups as units, held each by itself: their class directories may hold others' commands."""
    return managed.apart(managed.units([Cgroup(path=path) for path in paths], (), {}))
