"""The reader of all control groups that matter, and of the classes that they make up."""

from collections.abc import Callable, Mapping, Sequence

from cotenant.kernel import paths
from cotenant.kernel.cgroup import classes
from cotenant.kernel.cgroup.counters import GroupCounters, add
from cotenant.kernel.cgroup.group import Group, Period, Reasons
from cotenant.kernel.cgroup.hierarchy import Hierarchy, open_hierarchy
from cotenant.kernel.cgroup.latency import Latencies
from cotenant.kernel.cgroup.tree import Tree
from cotenant.kernel.cgroup.v2 import Disks
from cotenant.kernel.cgroup.writers import Writers
from cotenant.kernel.reading import Reading
from cotenant.kernel.tracing import Feed
from cotenant.model.rate import Count
from cotenant.model.sample import Cgroup, MissingReason, Offline, Online

Cpus = Callable[[], int | None]
INNER_RESTS = 9
"""A group with groups below it and no process of its own is asked for processes once in ten periods (v1): a pod's."""


class CgroupReader:
    """Groups and classes. ``cpus`` returns the number of CPUs on line, None while unknown."""

    def __init__(
        self,
        root: paths.Root,
        feed: Feed,
        *,
        cpus: Cpus,
        disks: Disks,
        now: Callable[[], float],
        matches: Sequence[classes.Match] = (),
    ) -> None:
        self.classes = classes.Classes(matches)
        self._feed = feed
        self._cpus = cpus
        self._now = now
        self._hierarchy: Hierarchy | None = open_hierarchy(root, disks)
        tops = () if self._hierarchy is None else self._hierarchy.tops
        self._tree = Tree(tops, live=root.is_machine, wanted=self.classes.wants, deep=self.classes.beginnings)
        self._groups: dict[str, Group] = {}
        self._procs: dict[str, str] = {}
        self._writers = Writers(root)
        self._live = root.is_machine
        self._rests: dict[str, int] = {}
        """How often more an inner group's processes are not asked for."""
        self._writing: dict[str, list[bytes]] = {}
        """The processes of each group, as they were asked for last, where what they wrote is known."""
        cpu_top = None if self._hierarchy is None else self._hierarchy.cpu_top
        block_top = None if self._hierarchy is None else self._hierarchy.block_top
        self._run_queue = Latencies(cpu_top, lambda seen: seen.run_queue)
        self._block = Latencies(block_top, lambda seen: seen.block)
        self._no_occupancy: MissingReason = "no_resctrl" if root.resctrl() is None else "not_enabled"

    def label(self, labels: Mapping[str, classes.Label]) -> None:
        """Take what is known from outside of groups, by path, in place of what was known before."""
        if labels != self.classes.labels:
            self.classes.labels = labels
            self._tree.forget()

    def read(self, seconds: float | MissingReason) -> Reading:
        """Look for new groups, and read all of them."""
        if self._hierarchy is None:
            return Reading(
                {"cgroups": [], "online": Online(), "offline": Offline()},
                {"cgroups": "unsupported", "online": "no_class", "offline": "no_class"},
            )
        self._find(self._hierarchy)
        counters = {}
        for path, group in list(self._groups.items()):
            seen = group.files.read()
            if seen is None:
                self._drop(path)
                self._tree.forget()
            else:
                counters[path] = seen
        labels = self.classes.assign(list(counters))
        written = self._written(counters)
        period = self._period(seconds)
        reasons: Reasons = {}
        lines = [
            self._groups[path].line(counters[path], labels[path], period, written.get(path), reasons)
            for path in counters
        ]
        return _reading(lines, reasons)

    def _find(self, hierarchy: Hierarchy) -> None:
        found = self._tree.groups(self._now())
        for path in self._groups.keys() - set(found):
            self._drop(path)
        if len(self._groups) == len(found):
            return
        groups = {}
        for path in found:
            group = self._groups.get(path)
            if group is None:
                group = Group(path, hierarchy.open(path))
                procs = hierarchy.procs(path)
                if procs is not None:
                    self._procs[path] = procs
            groups[path] = group
        self._groups = groups  # in the order of the tree: parents first

    def _drop(self, path: str) -> None:
        self._groups.pop(path).files.close()
        self._rests.pop(path, None)
        self._procs.pop(path, None)
        self._writing.pop(path, None)

    def _written(self, counters: Mapping[str, GroupCounters]) -> dict[str, Count]:
        """Return what each group's processes wrote, those of the groups below included (v1 only)."""
        self._writers.step()
        written: dict[str, Count] = {}
        for path in reversed(self._groups):
            procs = self._procs.get(path)
            if procs is None:
                continue
            own = self._own(path, procs, inner=path in written, quiet=counters[path].quiet)
            total = add(own, written.get(path, 0))
            written[path] = total
            parent = classes.nearest(path, self._procs)
            if parent is not None:
                written[parent] = add(written.get(parent, 0), total)
        return written

    def _own(self, path: str, procs: str, *, inner: bool, quiet: bool) -> Count:
        """Return what the processes right in a group wrote; an inner one that had none is mostly taken to have none."""
        if quiet and path in self._writing:
            self._writers.rest(self._writing[path])
            return 0
        if self._rests.get(path, 0) > 0:
            self._rests[path] -= 1
            return 0
        pids = self._writers.tasks(procs)
        if inner and not pids and self._live:
            self._rests[path] = INNER_RESTS
        written = self._writers.written(pids)
        if isinstance(pids, str) or isinstance(written, str):
            self._writing.pop(path, None)
        else:
            self._writing[path] = pids
        return written

    def _period(self, seconds: float | MissingReason) -> Period:
        trace = self._feed.trace
        cpu_groups, block_groups = (trace, trace) if isinstance(trace, str) else (trace.cpu_groups, trace.block_groups)
        run_queue = self._run_queue.by_group(cpu_groups, self._groups, self._now())
        block = self._block.by_group(block_groups, self._groups, self._now())
        return Period(seconds, self._cpus() or "unsupported", run_queue, block, self._no_occupancy)

    def close(self) -> None:
        for path in list(self._groups):
            self._drop(path)


def _reading(lines: list[Cgroup], reasons: Reasons) -> Reading:
    online, offline, missing = classes.aggregate(lines, reasons)
    missing.update((f"cgroups.{field}", reason) for field, reason in reasons.items())
    return Reading({"cgroups": lines, "online": online, "offline": offline}, missing)
