"""Groups inside those of offline work that nobody lists: a host application's, one that a container made for itself.

On v1 a group cannot have fewer CPUs than one inside it (EBUSY): one forgotten group would keep all offline work wide.
"""

from collections.abc import Collection, Iterator

from cotenant.act import cgroup
from cotenant.act.cpu_pool import Cpus
from cotenant.model.snapshot import Snapshot
from cotenant.units import cpulist

_FILE = "/cpuset.cpus"


def narrowed(snapshot: Snapshot, listed: Collection[str], wanted: Cpus) -> dict[str, Cpus]:
    """Return the unlisted groups inside ``listed`` ones that stand in the way of ``wanted``, with CPUs for each.

    Those are what it had of the wanted CPUs, or else all of these. Groups that we narrowed before are among them, so
    that they follow; directories are looked through only where a listed group has to become narrower.
    """
    if snapshot.version("cpuset") != 1:
        return {}
    known = frozenset(listed)
    found = {group: _own(snapshot, group) for group in _journalled(snapshot, known)}
    for group in listed:
        here = cgroup.cpus(snapshot, group)
        if here is not None and not here <= wanted:
            found.update((inner, cpus) for inner, cpus in _inside(snapshot, group, known) if not cpus <= wanted)
    return {group: (cpus & wanted) or wanted for group, cpus in found.items()}


def _journalled(snapshot: Snapshot, known: frozenset[str]) -> Iterator[str]:
    prefix = f"{snapshot.hierarchies['cpuset'].path}/"
    for path in snapshot.journal:
        if path.endswith(_FILE) and path.startswith(prefix):
            group = path[len(prefix) : -len(_FILE)]
            if group not in known and any(above in known for above in _above(group)):
                yield group


def _above(group: str) -> Iterator[str]:
    while "/" in group:
        group = group.rpartition("/")[0]
        yield group


def _inside(snapshot: Snapshot, group: str, known: frozenset[str]) -> Iterator[tuple[str, Cpus]]:
    for name in snapshot.files.directories(f"{snapshot.hierarchies['cpuset'].path}/{group}"):
        inner = f"{group}/{name}"
        if inner not in known:
            cpus = _own(snapshot, inner)
            if cpus:  # an empty list is a group that was never used
                yield inner, cpus
            yield from _inside(snapshot, inner, known)


def _own(snapshot: Snapshot, group: str) -> Cpus:
    """Return the CPUs of a group as they were before we wrote any; none where that cannot be read."""
    path = cgroup.cpuset_path(snapshot, group) or ""
    try:
        return cpulist.parse(snapshot.journal.get(path) or snapshot.files.read(path) or "")
    except cpulist.BadCpuList:
        return frozenset()
