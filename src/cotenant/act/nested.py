"""Groups inside those that are held back, of which nobody has to know: one that a container made for itself.

On v1 a group cannot have fewer CPUs than one inside it (EBUSY), nor a smaller quota (EINVAL): one forgotten group
would keep all offline work wide.
"""

import dataclasses
from collections.abc import Collection, Iterable, Iterator

from cotenant.act import cgroup
from cotenant.act.cpu_pool import Cpus
from cotenant.act.draft import Target
from cotenant.model.snapshot import Controller, Snapshot
from cotenant.units import cpulist
from cotenant.units.limit import NONE, Limit

_CPUS = "/cpuset.cpus"
_QUOTA = "/cpu.cfs_quota_us"


# --- CPU sets -------------------------------------------------------------------------------------------------------


def narrowed(snapshot: Snapshot, listed: Collection[str], wanted: Cpus) -> dict[str, Cpus]:
    """Return the unlisted groups inside ``listed`` ones that stand in the way of ``wanted``, with CPUs for each.

    Those are what it had of the wanted CPUs, or else all of these. Groups that we narrowed before are among them, so
    that they follow; directories are looked through only where a listed group has to become narrower.
    """
    if snapshot.version("cpuset") != 1:
        return {}
    known = frozenset(listed)
    ours = (group for group in _journalled(snapshot, "cpuset", _CPUS) if group not in known)
    found = {group: _own(snapshot, group) for group in ours if any(above in known for above in _above(group))}
    for group in listed:
        here = cgroup.cpus(snapshot, group)
        if here is not None and not here <= wanted:
            found.update((inner, cpus) for inner, cpus in _inside(snapshot, group, known) if not cpus <= wanted)
    return {group: (cpus & wanted) or wanted for group, cpus in found.items()}


def _inside(snapshot: Snapshot, group: str, known: frozenset[str]) -> Iterator[tuple[str, Cpus]]:
    for inner in _below(snapshot, "cpuset", group):
        if inner in known:
            continue
        cpus = _own(snapshot, inner)
        if cpus:  # an empty list is a group that was never used
            yield inner, cpus


def _own(snapshot: Snapshot, group: str) -> Cpus:
    """Return the CPUs of a group as they were before we wrote any; none where that cannot be read."""
    path = cgroup.cpuset_path(snapshot, group) or ""
    try:
        return cpulist.parse(snapshot.journal.get(path) or snapshot.files.read(path) or "")
    except cpulist.BadCpuList:
        return frozenset()


# --- quotas ---------------------------------------------------------------------------------------------------------


def quotas(snapshot: Snapshot, targets: Iterable[Target]) -> list[Target]:
    """Return the quotas that have to be in place of those wanted, or besides, for v1 to take them all.

    A group whose own quota is more than what a group around it is to have loses its own for as long: it is held by
    that one. So does a group that nobody lists, and it gets back what it had as soon as that fits again. Directories
    are looked through only below a quota that is to become less.
    """
    if snapshot.version("cpu") != 1:
        return []
    return _Quotas(snapshot, targets).fitting()


class _Quotas:
    """The quotas of one plan, and what the files of other groups hold."""

    def __init__(self, snapshot: Snapshot, targets: Iterable[Target]) -> None:
        self._snapshot = snapshot
        self._top = f"{snapshot.hierarchies['cpu'].path}/"
        found = ((target.path.removeprefix(self._top), target) for target in targets if target.path.endswith(_QUOTA))
        self._wanted = {path.removesuffix(_QUOTA): target for path, target in found}
        self._final: dict[str, Limit] = {group: _limit(target.value) for group, target in self._wanted.items()}
        known = {group.path for group in snapshot.groups} | set(snapshot.qos_paths.values())
        self._known = known | {child.path for group in snapshot.groups for child in group.containers}

    def fitting(self) -> list[Target]:
        """Return the targets that take the place of others or come besides."""
        inside = self._narrowed() | self._given_back()
        found = []
        for group in sorted({*self._wanted, *inside}, key=lambda path: path.count("/")):  # what is around counts
            around = self._around(group)
            own = inside[group] if group in inside else self._final[group]
            fits = around is None or self._fits(group, own, around)
            if group in inside:
                self._final[group] = own if fits else NONE
                found.append(self._besides(group, around))
            elif not fits and around in self._wanted:  # else it is the owner's of the other one to make room
                self._final[group] = NONE
                reason = f"held by the quota of {around}"
                found.append(dataclasses.replace(self._wanted[group], value=NONE.v1(), reason=reason))
        return found

    def _besides(self, group: str, around: str | None) -> Target:
        limit, held = self._final[group], self._wanted.get(around or "")
        reason = f"held by the quota of {around}" if limit is NONE else "its own quota fits again"
        strategy = "cpu_suppress" if held is None else held.strategy
        return Target(cgroup.quota_path(self._snapshot, group) or "", limit.v1(), strategy, reason)

    def _narrowed(self) -> dict[str, Limit]:
        """Return the quotas of groups that stand in the way of one that is to become less."""
        found = {}
        for group, limit in self._final.items():
            if limit.value is None or limit >= (cgroup.quota(self._snapshot, group) or limit):
                continue
            for inner in _below(self._snapshot, "cpu", group):
                own = cgroup.quota(self._snapshot, inner)
                if inner not in self._wanted and own is not None and not self._fits(inner, own, group):
                    found[inner] = own
        return found

    def _given_back(self) -> dict[str, Limit]:
        """Return the own quotas of groups that we took them from; of listed ones only what would hold them more."""
        found = {}
        for group in _journalled(self._snapshot, "cpu", _QUOTA):
            own = _limit(self._snapshot.journal.get(f"{self._top}{group}{_QUOTA}") or "")
            here = cgroup.quota(self._snapshot, group)
            lifted = here is not None and here.value is None and own.value is not None
            if group not in self._wanted and here is not None and (group not in self._known or lifted):
                found[group] = own
        return found

    def _around(self, group: str) -> str | None:
        """Return the nearest group around one that is to have a quota."""
        return next((above for above in _above(group) if self._quota(above).value is not None), None)

    def _quota(self, group: str) -> Limit:
        return self._final[group] if group in self._final else cgroup.quota(self._snapshot, group) or NONE

    def _fits(self, group: str, own: Limit, around: str) -> bool:
        """Return whether the kernel takes a quota inside another: no more of a period than that is of its own."""
        most = self._quota(around)
        if own.value is None or most.value is None:
            return True
        periods = cgroup.period_usec(self._snapshot, group), cgroup.period_usec(self._snapshot, around)
        return own.value * periods[1] <= most.value * periods[0]


def _limit(text: str) -> Limit:
    try:
        return Limit.parse(text)
    except ValueError:
        return NONE


# --- groups ---------------------------------------------------------------------------------------------------------


def _journalled(snapshot: Snapshot, controller: Controller, file: str) -> Iterator[str]:
    """Yield the groups of which we wrote one file."""
    prefix = f"{snapshot.hierarchies[controller].path}/"
    for path in snapshot.journal:
        if path.endswith(file) and path.startswith(prefix):
            yield path[len(prefix) : -len(file)]


def _above(group: str) -> Iterator[str]:
    """Yield the groups around one, nearest first."""
    while "/" in group:
        group = group.rpartition("/")[0]
        yield group


def _below(snapshot: Snapshot, controller: Controller, group: str) -> Iterator[str]:
    """Yield every group inside one, parents first."""
    for name in snapshot.files.directories(f"{snapshot.hierarchies[controller].path}/{group}"):
        yield f"{group}/{name}"
        yield from _below(snapshot, controller, f"{group}/{name}")
