"""Whether online work expels offline work from the sibling threads of its cores: tried, not read from a version.

Three runs: offline work alone on the siblings, online work beside it on the other thread of each core, and as a
control both at once on different cores.
"""

import time
from collections.abc import Sequence
from typing import Literal

import msgspec

from cotenant.kernel import core_cookie, paths, topology
from cotenant.local import errors, groups, workload
from cotenant.model.node import Topology
from cotenant.units.plan import PlanItem

Verdict = Literal["expelled", "not expelled", "cannot tell"]
EXPELLED_RATIO = 0.1
"""Offline work with no more than this of what it gets alone is expelled; the kernel's safety valve lets some by."""
KEPT_RATIO = 0.5
ALONE_RATIO = 0.5
"""Offline work that alone gets less than this of a CPU says nothing: the node is busy."""
BUSY_RATIO = 0.3


class Phase(msgspec.Struct, frozen=True):
    """One run. CPU time of offline work per CPU and second, and seconds per unit of online work."""

    name: str
    offline_cpus: tuple[int, ...]
    online_cpus: tuple[int, ...]
    offline_run_ratio: float | None
    online_unit_seconds: float | None


class Result(msgspec.Struct, frozen=True):
    verdict: Verdict
    reason: str
    interface: str
    phases: tuple[Phase, ...] = ()
    core_scheduling: bool = False
    """Offline work had a cookie of its own, online work none."""


class Places(msgspec.Struct, frozen=True):
    """Where the work goes: online CPUs, their sibling threads, and CPUs of other cores for the control."""

    online: tuple[int, ...]
    siblings: tuple[int, ...]
    others: tuple[int, ...]


def places(found: Topology, wanted: frozenset[int] | None) -> Places | str:
    """Return where to run, or why there is nowhere. Without a wish: half of the cores, at most four."""
    cores: dict[tuple[int, int], list[int]] = {}
    for cpu in found.cpus:
        cores.setdefault((cpu.socket, cpu.core), []).append(cpu.id)
    shared = [threads for threads in cores.values() if len(threads) > 1]
    if not shared:
        return "no core has two threads in use: SMT is off or absent"
    if wanted is None:
        chosen = shared[: min(4, max(1, len(shared) // 2))]
        wanted = frozenset(threads[0] for threads in chosen)
    chosen = [threads for threads in shared if wanted & set(threads)]
    siblings = tuple(cpu for threads in chosen for cpu in threads if cpu not in wanted)
    if not siblings:
        return "the chosen CPUs leave no sibling thread free"
    used = {cpu for threads in chosen for cpu in threads}
    others = tuple(cpu.id for cpu in found.cpus if cpu.id not in used and cpu.id not in wanted)
    return Places(tuple(sorted(wanted)), siblings, others[: len(siblings)])


def judge(phases: Sequence[Phase]) -> tuple[Verdict, str]:
    """Return the verdict on the three runs (the control may be missing) and its figures."""
    by_name = {phase.name: phase.offline_run_ratio for phase in phases}
    alone, both, control = by_name.get("alone"), by_name.get("both"), by_name.get("control")
    if alone is None or both is None:
        return "cannot tell", "a run is missing"
    if alone < ALONE_RATIO:
        return "cannot tell", f"offline work alone got only {alone:.0%} of its CPUs: something else is running"
    kept = both / alone
    figures = f"offline work on the sibling threads kept {kept:.0%} of the CPU time that it has alone"
    if kept >= KEPT_RATIO:
        return "not expelled", figures
    if kept > EXPELLED_RATIO:
        return "cannot tell", figures
    if control is not None and control < ALONE_RATIO * alone:
        return "cannot tell", f"{figures}, but on other cores it got only {control:.0%} too"
    return "expelled", figures


def verify(
    managed: groups.Groups,
    *,
    wanted: frozenset[int] | None,
    seconds: float,
    force: bool,
    found: Topology | None = None,
    core_scheduling: bool = False,
) -> Result:
    """Run the procedure; with ``core_scheduling`` offline work gets a cookie, as by the CPU policy ``coreSched``.

    :raises CannotMeasure: if the node is busy and ``force`` is not given, a wanted CPU does not exist, or this kernel
        has no core scheduling.
    """
    if core_scheduling and not core_cookie.is_available():
        raise errors.CannotMeasure("this kernel has no core scheduling (CONFIG_SCHED_CORE, 5.14 or newer)")
    known = found or topology.read(managed.root)
    missing = (wanted or frozenset()) - known.ids
    if missing:
        raise errors.CannotMeasure(f"CPUs {sorted(missing)} are not online here")
    chosen = places(known, wanted)
    name = managed.interface.name
    if isinstance(chosen, str):
        return Result("cannot tell", chosen, name, core_scheduling=core_scheduling)
    if not force:
        refuse_when_busy(managed.root)
    runs: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = [
        ("alone", chosen.siblings, ()),
        ("both", chosen.siblings, chosen.online),
    ]
    if chosen.others:
        runs.append(("control", chosen.others, chosen.online))
    phases = []
    with workload.workloads(managed, "smt") as loads:
        for phase, offline, online in runs:
            phases.append(_run(loads, phase, offline, online, seconds, core_scheduling))
            loads.stop()
        name = managed.interface.name
    return Result(*judge(phases), name, tuple(phases), core_scheduling)


def _run(
    loads: workload.Workloads,
    name: str,
    offline: tuple[int, ...],
    online: tuple[int, ...],
    seconds: float,
    core_scheduling: bool,
) -> Phase:
    held = [loads.start("BE", cpus=[cpu]) for cpu in offline]
    if core_scheduling:
        loads.managed.apply([_cookie(process.pid) for process in held])
    served = [loads.start("LS", cpus=[cpu]) for cpu in online]
    time.sleep(min(1.0, seconds / 5))  # pinned and under way
    before = sum(process.run_ns() for process in held), sum(process.units for process in served)
    begin = time.monotonic()
    time.sleep(seconds)
    length = time.monotonic() - begin
    run_ns = sum(process.run_ns() for process in held) - before[0]
    units = sum(process.units for process in served) - before[1]
    unit_seconds = length * len(served) / units if units else None
    return Phase(name, offline, online, round(run_ns / 1e9 / length / len(held), 4), unit_seconds)


def _cookie(pid: int) -> PlanItem:
    reason = "offline work shares cores with its own kind only"
    return PlanItem(op="core_cookie", path=f"proc/{pid}", new="verify", strategy="verify", reason=reason)


def refuse_when_busy(root: paths.Root) -> None:
    """Look for a second how busy the node is.

    :raises CannotMeasure: if it is: the measurement would disturb others, and they it.
    """
    first = _busy_and_total(root)
    time.sleep(1.0)
    second = _busy_and_total(root)
    total = second[1] - first[1]
    ratio = (second[0] - first[0]) / total if total else 0.0
    if ratio > BUSY_RATIO:
        raise errors.CannotMeasure(f"the node is busy ({ratio:.0%} of its CPU time): try later, or give --force")


def _busy_and_total(root: paths.Root) -> tuple[int, int]:
    words = (root.proc / "stat").read_text().split("\n", 1)[0].split()[1:9]
    values = [int(word) for word in words]
    return sum(values) - values[3] - values[4], sum(values)
