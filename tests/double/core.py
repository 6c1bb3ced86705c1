"""The files that every group has: membership, freezing, killing, which controllers the children get."""

from typing import Any

from tests.double.groups import File, Group, Integer, ReadOnly, pressure
from tests.double.text import refusal

THREADED = frozenset({"cpu", "cpuset", "pids"})


class Members(File):
    """``tasks`` and ``cgroup.procs``: a number moves a thread or a process in, 0 the writer itself."""

    def __init__(self, name: str, *, threads: bool, pid_writable_on: int) -> None:
        super().__init__(name)
        self.threads = threads
        self.version = pid_writable_on

    def create(self, group: Group) -> None:
        return

    def read(self, group: Group) -> str:
        members = {task.tid if self.threads else task.tgid for task in group.tasks()}
        return "".join(f"{member}\n" for member in sorted(members))

    def parse(self, group: Group, text: str) -> int:
        word = text.strip()
        if not word.isdigit():
            raise refusal("EINVAL")
        return int(word) or group.kernel.writer

    def put(self, group: Group, value: Any) -> None:
        moved = group.kernel.threads_of(value, whole=not self.threads)
        if not moved:
            raise refusal("ESRCH")
        if self.version == 2 and group.values.get("cgroup.subtree_control"):
            raise refusal("EBUSY")
        group.hierarchy.attach(group, moved)


class SubtreeControl(File):
    """v2: which controllers the children have; refused while the group itself has processes."""

    def __init__(self) -> None:
        super().__init__("cgroup.subtree_control", frozenset())

    def read(self, group: Group) -> str:
        return " ".join(name for name in group.hierarchy.controllers if name in group.values[self.name]) + "\n"

    def parse(self, group: Group, text: str) -> Any:
        wanted = set(group.values[self.name])
        for word in text.split():
            if word[0] not in "+-" or word[1:] not in group.kernel.known_controllers:
                raise refusal("EINVAL")
            if word[0] == "+" and word[1:] not in group.hierarchy.available(group):
                raise refusal("ENOENT")
            (wanted.add if word[0] == "+" else wanted.discard)(word[1:])
        return frozenset(wanted)

    def put(self, group: Group, value: Any) -> None:
        added, dropped = value - group.values[self.name], group.values[self.name] - value
        if added and group.parent is not None and group.tids:
            raise refusal("EBUSY")
        if any(dropped & child.values[self.name] for child in group.children.values()):
            raise refusal("EBUSY")
        group.values[self.name] = value
        for child in group.children.values():
            for file in group.hierarchy.files_of(child):
                if file.name not in child.values:
                    file.create(child)


class Kill(Integer):
    """v2 ``cgroup.kill``: 1 kills everything in the subtree."""

    readable = False

    def __init__(self) -> None:
        super().__init__("cgroup.kill", 0, (1, 1), error="ERANGE", on_root=False)

    def put(self, group: Group, value: int) -> None:
        for one in group.subtree():
            for tid in sorted(one.tids):
                group.kernel.end(tid)


class Stripped(Integer):
    """A number of a file that strips blanks around it first."""

    def parse(self, group: Group, text: str) -> int:
        return super().parse(group, text.strip())


def events(group: Group) -> str:
    """Return ``cgroup.events``."""
    populated = int(any(one.tids for one in group.subtree()))
    return f"populated {populated}\nfrozen {group.values.get('cgroup.freeze', 0)}\n"


def files(version: int) -> list[File]:
    """Return the files that do not belong to a controller."""
    if version == 1:
        return [
            Members("tasks", threads=True, pid_writable_on=1),
            Members("cgroup.procs", threads=False, pid_writable_on=1),
            Integer("notify_on_release", 0, unsigned=True, root_error=None),
            Integer("cgroup.clone_children", 0, unsigned=True, root_error=None),
        ]
    return [
        ReadOnly("cgroup.controllers", lambda group: " ".join(group.hierarchy.available(group)) + "\n"),
        SubtreeControl(),
        Members("cgroup.procs", threads=False, pid_writable_on=2),
        Members("cgroup.threads", threads=True, pid_writable_on=2),
        ReadOnly("cgroup.type", lambda group: "domain\n", on_root=False),
        ReadOnly("cgroup.events", events, on_root=False),
        Stripped("cgroup.freeze", 0, (0, 1), error="ERANGE", on_root=False),
        Kill(),
        ReadOnly(
            "cgroup.stat", lambda g: f"nr_descendants {sum(1 for _ in g.subtree()) - 1}\nnr_dying_descendants 0\n"
        ),
    ]


def pids(version: int) -> list[File]:
    """Return the pids controller's files."""

    class Maximum(File):
        on_root = False

        def parse(self, group: Group, text: str) -> Any:
            word = text.strip()
            if word == "max":
                return "max"
            if not word.isdigit():
                raise refusal("EINVAL")
            return int(word)

    count = ReadOnly("pids.current", lambda g: f"{sum(len(o.tids) for o in g.subtree())}\n", on_root=version == 1)
    return [Maximum("pids.max", "max"), count]


def cpuacct(*, with_pressure: bool) -> list[File]:
    """Return v1's accounting files; openEuler and Anolis have the pressure files there."""
    found: list[File] = [
        ReadOnly("cpuacct.usage", lambda group: "0\n"),
        ReadOnly("cpuacct.usage_percpu", lambda group: "0 " * group.kernel.cpus + "\n"),
        ReadOnly("cpuacct.stat", lambda group: "user 0\nsystem 0\n"),
    ]
    if with_pressure:
        found += [ReadOnly(f"{resource}.pressure", pressure) for resource in ("cpu", "memory", "io")]
    return found
