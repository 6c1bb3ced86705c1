"""One meaning, two spellings: CPU quota, weight, CPU sets and memory limits on cgroup v1 and v2.

Readers return None where the file is missing or unreadable; "no limit" is a :class:`Limit` without a value.
"""

from collections.abc import Iterable, Sequence

from cotenant.act.draft import Draft
from cotenant.model.pod import Container
from cotenant.model.snapshot import PodGroup, Snapshot
from cotenant.units import cpulist, ordering
from cotenant.units.limit import Limit

DEFAULT_PERIOD_USEC = 100_000
MIN_QUOTA_USEC = ordering.MIN_QUOTA_USEC
MIN_SHARES, MAX_SHARES = 2, 262_144


def shares_of(millicores: int) -> int:
    """Return the v1 ``cpu.shares`` of a CPU request."""
    return min(max(millicores * 1024 // 1000, MIN_SHARES), MAX_SHARES)


def weight_of(shares: int) -> int:
    """Return the v2 ``cpu.weight`` of a v1 ``cpu.shares``, as Kubernetes converts it."""
    return 1 + (shares - 2) * 9999 // 262142


def shares_path(snapshot: Snapshot, group: str) -> str | None:
    """Return the path of a group's weight file."""
    return snapshot.path("cpu", group, "cpu.weight" if snapshot.version("cpu") == 2 else "cpu.shares")


def set_shares(draft: Draft, group: str, millicores: int, reason: str) -> bool:
    """State the CPU weight of a group by its CPU request; False where the file does not exist."""
    shares = shares_of(millicores)
    value = weight_of(shares) if draft.snapshot.version("cpu") == 2 else shares
    return draft.write(shares_path(draft.snapshot, group), str(value), reason)


def period_usec(snapshot: Snapshot, group: str) -> int:
    """Return the length of a group's quota period; the kernel's default where it cannot be read."""
    if snapshot.version("cpu") == 2:
        text = (_read(snapshot, quota_path(snapshot, group)) or "").partition(" ")[2]
    else:
        text = _read(snapshot, snapshot.path("cpu", group, "cpu.cfs_period_us")) or ""
    return int(text) if text.isdigit() and int(text) > 0 else DEFAULT_PERIOD_USEC


def quota_path(snapshot: Snapshot, group: str) -> str | None:
    """Return the path of a group's quota file."""
    return snapshot.path("cpu", group, "cpu.max" if snapshot.version("cpu") == 2 else "cpu.cfs_quota_us")


def quota(snapshot: Snapshot, group: str) -> Limit | None:
    """Return a group's quota in microseconds a period."""
    return _limit((_read(snapshot, quota_path(snapshot, group)) or "").partition(" ")[0])


def quota_text(snapshot: Snapshot, group: str, limit: Limit) -> str:
    """Return what the quota file holds for a limit; v2 carries the period in the same file, and it is kept."""
    if snapshot.version("cpu") == 2:
        return f"{limit.v2()} {period_usec(snapshot, group)}"
    return limit.v1()


def set_quota(draft: Draft, group: str, limit: Limit, reason: str) -> bool:
    """State the CPU quota of a group; False where the file does not exist."""
    text = quota_text(draft.snapshot, group, limit)
    return draft.write(quota_path(draft.snapshot, group), text, reason)


def release_quota(draft: Draft, group: str, limit: Limit, reason: str) -> None:
    """State the quota of a group that is left, if we wrote it."""
    draft.release(quota_path(draft.snapshot, group), quota_text(draft.snapshot, group, limit), reason)


def limit_usec(containers: Sequence[Container], period_usec: int) -> int | None:
    """Return the quota of containers' native limits together, as the kubelet sets it; None where one has no limit."""
    limits = [container.limit_millicores() for container in containers]
    known = [limit for limit in limits if limit is not None]
    return max(sum(known) * period_usec // 1000, MIN_QUOTA_USEC) if known and len(known) == len(limits) else None


def cpu_statistics(snapshot: Snapshot, group: str) -> dict[str, int]:
    """Return the numbers of a group's ``cpu.stat`` by their names; none where it cannot be read."""
    text = _read(snapshot, snapshot.path("cpu", group, "cpu.stat")) or ""
    fields = (line.split(" ", 1) for line in text.splitlines() if " " in line)
    return {name: int(value) for name, value in fields if value.isdecimal()}


def cpu_time_usec(snapshot: Snapshot, group: str) -> int | None:
    """Return how long a group has run on CPUs since it was made, or None where that cannot be read."""
    if snapshot.version("cpu") == 2:
        return cpu_statistics(snapshot, group).get("usage_usec")
    text = _read(snapshot, snapshot.path("cpuacct", group, "cpuacct.usage")) or ""
    return int(text) // 1000 if text.isdecimal() else None


def cpuset_path(snapshot: Snapshot, group: str) -> str | None:
    """Return the path of a group's CPU list."""
    return snapshot.path("cpuset", group, "cpuset.cpus")


def cpus(snapshot: Snapshot, group: str) -> frozenset[int] | None:
    """Return the CPUs that a group may use; an empty list on v2 means all of its parent's, here: all."""
    text = _read(snapshot, cpuset_path(snapshot, group))
    if text is None:
        return None
    try:
        listed = cpulist.parse(text)
    except cpulist.BadCpuList:
        return None
    return listed or snapshot.topology.ids


def set_cpus(draft: Draft, group: str, wanted: Iterable[int], reason: str) -> bool:
    """State the CPU list of a group; False where the file does not exist. An empty list is never stated."""
    text = cpulist.render(wanted)
    return bool(text) and draft.write(cpuset_path(draft.snapshot, group), text, reason)


def keep_cpus(draft: Draft, group: str, wanted: frozenset[int], reason: str) -> None:
    """State the CPU list of a group; the one it has, if that means these CPUs (an empty one on v2 is all CPUs already).

    It is stated in any case: else a strategy that is switched off would take the file for its own and release it.
    """
    path = cpuset_path(draft.snapshot, group)
    if path is not None and cpus(draft.snapshot, group) == wanted:
        draft.write(path, _read(draft.snapshot, path) or "", reason)
    else:
        set_cpus(draft, group, wanted, reason)


def release_cpus(draft: Draft, group: str, wanted: Iterable[int], reason: str) -> None:
    """State the CPU list of a group that is left, if we wrote it. An empty list is never stated."""
    text = cpulist.render(wanted)
    if text:
        draft.release(cpuset_path(draft.snapshot, group), text, reason)


def memory_limit_path(snapshot: Snapshot, group: str) -> str | None:
    """Return the path of a group's memory limit."""
    return snapshot.path("memory", group, "memory.max" if snapshot.version("memory") == 2 else "memory.limit_in_bytes")


def set_memory_limit(draft: Draft, group: str, limit: Limit, reason: str) -> bool:
    """State the memory limit of a group; False where the file does not exist."""
    text = limit.v2() if draft.snapshot.version("memory") == 2 else limit.v1()
    return draft.write(memory_limit_path(draft.snapshot, group), text, reason)


def offline_groups(snapshot: Snapshot) -> tuple[PodGroup, ...]:
    """Return the groups of listed, unfinished pods that are offline work, wherever their cgroup is."""
    return tuple(g for g in snapshot.groups if g.pod is not None and g.pod.best_effort)


def _read(snapshot: Snapshot, path: str | None) -> str | None:
    return None if path is None else snapshot.files.read(path)


def _limit(text: str) -> Limit | None:
    try:
        return Limit.parse(text)
    except ValueError:
        return None


def block_groups(snapshot: Snapshot, group: str) -> tuple[str, ...]:
    """Return where a block I/O limit of a pod's group has to be stated for its tasks to have it.

    On v2 a limit reaches down. On v1 it counts for the tasks of the very group (the throttling hierarchy is for v2
    only, seen on 6.1), so it is stated for each container as well.
    """
    if snapshot.version("blkio") == 2:
        return (group,)
    below = next((one.containers for one in snapshot.groups if one.path == group), ())
    return (group, *(child.path for child in below))
