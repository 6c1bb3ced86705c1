"""The checklist after a change of kernel or of cotenant: each feature tried once with throw-away work."""

import contextlib
import mmap
import os
import pathlib
import signal
import time
from collections.abc import Callable
from typing import Literal

import msgspec

from cotenant.kernel import paths
from cotenant.local import acting, errors, groups, smt, workload
from cotenant.units import cpulist
from cotenant.units.limit import Limit
from cotenant.units.plan import PlanItem

State = Literal["pass", "fail", "skipped"]
SECONDS = 2.0
ATTEMPTS = 3
"""How often a row that measures is tried until it does not fail: other work may disturb one try, a defect each."""
OUT_OF_MEMORY_SECONDS = 120.0
"""How long a process may take to be killed at its memory limit, on a machine that stands still meanwhile."""
OFFLINE_SHARE_MAX = 0.15
QUOTA_MILLICORES, QUOTA_RATIO_MAX = 200, 0.26
MEMORY_BYTES, ALLOCATED_BYTES = 32 << 20, 96 << 20


class Row(msgspec.Struct, frozen=True):
    name: str
    state: State
    detail: str


def verify(managed: groups.Groups, *, force: bool) -> list[Row]:
    """Return one row for each feature, in the order of the checklist.

    :raises CannotMeasure: if the node is busy and ``force`` is not given.
    """
    if not force:
        smt.refuse_when_busy(managed.root)
    return [
        _tried("priority", lambda: _priority(managed), ATTEMPTS),
        _tried("smt", lambda: _smt(managed), ATTEMPTS),
        _tried("cpuset", lambda: _cpuset(managed)),
        _tried("cpu limit", lambda: _cpu_limit(managed), ATTEMPTS),
        _tried("memory limit", lambda: _memory_limit(managed)),
        _tried("suppress", lambda: acting.suppress(managed), ATTEMPTS),
        _tried("evict", lambda: acting.evict(managed)),
    ]


def _tried(name: str, attempt: Callable[[], tuple[State, str]], attempts: int = 1) -> Row:
    """Return the first result that is no failure, or else the last."""
    for _ in range(attempts):
        try:
            row = Row(name, *attempt())
        except (errors.GroupError, OSError) as error:
            return Row(name, "fail", str(error))
        if row.state != "fail":
            break
    return row


def _priority(managed: groups.Groups) -> tuple[State, str]:
    """Online and offline work on one CPU: the offline part must be small."""
    cpu = min(os.sched_getaffinity(0))
    with workload.workloads(managed, "priority") as loads:
        offline, online = loads.start("BE", cpus=[cpu]), loads.start("LS", cpus=[cpu])
        before = offline.run_ns(), online.run_ns()
        time.sleep(SECONDS)
        had = offline.run_ns() - before[0], online.run_ns() - before[1]
    share = had[0] / max(1, sum(had))
    text = f"offline work had {share:.1%} of a CPU that online work wanted ({managed.interface.name})"
    return ("pass" if share <= OFFLINE_SHARE_MAX else "fail"), text


def _smt(managed: groups.Groups) -> tuple[State, str]:
    result = smt.verify(managed, wanted=None, seconds=SECONDS, force=True)
    if result.verdict == "cannot tell":
        return "skipped", result.reason
    expected = managed.interface.smt_expulsion
    if expected is None:
        return "skipped", f"{result.verdict}; whether this kernel should is not known"
    agrees = expected == (result.verdict == "expelled")
    return ("pass" if agrees else "fail"), f"{result.verdict}: {result.reason}"


def _cpuset(managed: groups.Groups) -> tuple[State, str]:
    mount = managed.root.hierarchy("cpuset")
    if mount is None:
        return "skipped", "no cpuset controller is mounted"
    with workload.workloads(managed, "cpuset") as loads:
        process = loads.start("BE")
        cpu = max(os.sched_getaffinity(0))
        file = mount.path / loads.path("BE") / "cpuset.cpus"
        item = PlanItem(
            op="write", path=managed.root.relative(file), new=str(cpu), strategy="verify", reason="narrowed for a test"
        )
        managed.apply([item])
        time.sleep(0.2)
        allowed = os.sched_getaffinity(process.pid)
    text = f"the group's CPUs are {cpu}, its process may use {cpulist.render(allowed)}"
    return ("pass" if allowed == {cpu} else "fail"), text


def _cpu_limit(managed: groups.Groups) -> tuple[State, str]:
    with workload.workloads(managed, "limit") as loads:
        process = loads.start("LS", limits=groups.Limits(cpu_millicores=Limit(QUOTA_MILLICORES)))
        time.sleep(0.3)
        before, begin = process.run_ns(), time.monotonic()
        time.sleep(SECONDS)
        ratio = (process.run_ns() - before) / 1e9 / (time.monotonic() - begin)
    text = f"a limit of {QUOTA_MILLICORES / 1000} CPU gave {ratio:.2f}"
    if not ratio:
        return "skipped", f"{text}: something else takes all CPUs"
    return ("pass" if ratio <= QUOTA_RATIO_MAX else "fail"), text


def _memory_limit(managed: groups.Groups) -> tuple[State, str]:
    if managed.root.hierarchy("memory") is None:
        return "skipped", "no memory controller is mounted"
    if _swap_bytes(managed.root):
        return "skipped", "with swap the process would be paged out, not killed"
    with workload.workloads(managed, "memory") as loads:
        process = loads.start("LS", _allocate, limits=groups.Limits(memory_bytes=Limit(MEMORY_BYTES)))
        status = process.wait(OUT_OF_MEMORY_SECONDS)
    killed = status is not None and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    text = "was killed" if killed else "was not killed"
    allocated, limit = ALLOCATED_BYTES >> 20, MEMORY_BYTES >> 20
    return ("pass" if killed else "fail"), f"a process that took {allocated} MiB {text} at its limit of {limit} MiB"


def _allocate(units: mmap.mmap) -> None:
    kept = []
    for _ in range(ALLOCATED_BYTES >> 20):
        kept.append(bytearray(os.urandom(1 << 10) * (1 << 10)))
        time.sleep(0.001)


def _swap_bytes(root: paths.Root) -> int:
    with contextlib.suppress(OSError):
        for line in pathlib.Path(root.proc, "meminfo").read_text().splitlines():
            if line.startswith("SwapTotal:"):
                return int(line.split()[1]) * 1024
    return 0
