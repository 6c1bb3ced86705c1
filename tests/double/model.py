"""A kernel's cgroup files in memory: exact reads, accepted values, errno, inheritance, and what is pushed to children.

``Kernel(flavour("openeuler")).write("sys/fs/cgroup/cpu/a/cpu.qos_level", "-1")`` either takes the value or raises the
OSError that write(2) would. Paths are relative to the root, as in plan items. ``tests/double/fuse.py`` mounts it.
"""

import dataclasses
import fnmatch
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from tests.double import block, core, cpu, cpuset, machine, memory
from tests.double.groups import NORMAL, File, Group, Task
from tests.double.text import refusal

Vendor = Literal["mainline", "openeuler", "openeuler-multi", "anolis-bvt", "anolis-priority", "tencent"]
Operation = Literal["read", "write", "mkdir", "rmdir"]
V1_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "blkio", "pids")
V2_CONTROLLERS = ("cpuset", "cpu", "io", "memory", "pids")
CGROUP = "sys/fs/cgroup"


@dataclasses.dataclass(frozen=True)
class Flavour:
    """One family of kernels: which files there are, and where families answer differently."""

    vendor: Vendor
    version: Literal[1, 2] = 1
    release: str = "6.18.0"
    joined_cpu: bool = False
    """cpu and cpuacct are one hierarchy with two symbolic links, as distributions mount them."""
    burst_needs_quota: bool = False
    psi_v1: bool = False


FLAVOURS: dict[str, Flavour] = {
    "mainline-v1": Flavour("mainline"),
    "mainline-v2": Flavour("mainline", 2),
    "openeuler": Flavour("openeuler", 1, "5.10.0-216.0.0.oe2203sp4", True, True, True),
    "openeuler-multi": Flavour("openeuler-multi", 1, "6.6.0-72.0.0.oe2403sp1", True, True, True),
    "openeuler-v2": Flavour("openeuler", 2, "6.6.0-72.0.0.oe2403sp1", burst_needs_quota=True),
    "anolis-bvt": Flavour("anolis-bvt", 1, "5.10.134-16.al8", True, psi_v1=True),
    "anolis-bvt-v2": Flavour("anolis-bvt", 2, "5.10.134-16.al8"),
    "anolis-priority": Flavour("anolis-priority", 2, "6.6.25-2.an23"),
    "anolis-priority-v1": Flavour("anolis-priority", 1, "6.6.25-2.an23", True, psi_v1=True),
    "tencent": Flavour("tencent", 1, "5.4.119-19.0009", True),
}
"""The families by the name that tests use; one double each."""


class Hierarchy:
    """One mounted tree of groups."""

    def __init__(self, kernel: "Kernel", version: Literal[1, 2], controllers: Sequence[str], point: str) -> None:
        self.kernel = kernel
        self.version = version
        self.controllers = tuple(controllers)
        self.point = point
        self._core = core.files(version)
        self._own = {name: kernel.controller_files(name, version) for name in controllers}
        self.root = self._made("", None)
        self.root.tids = set(kernel.tasks)

    def _made(self, name: str, parent: Group | None) -> Group:
        group = Group(self, name, parent, next(self.kernel.inodes))
        # Files that are not shown (v2, controller not handed down) get their value when they appear.
        for file in self.files_of(group):
            file.create(group)
        return group

    def available(self, group: Group) -> tuple[str, ...]:
        """Return the controllers of a group: on v2 those that its parent hands down."""
        if self.version == 1 or group.parent is None:
            return self.controllers
        handed = group.parent.values["cgroup.subtree_control"]
        return tuple(name for name in self.controllers if name in handed)

    def files_of(self, group: Group) -> list[File]:
        """Return the files that a group shows."""
        shown = itertools.chain(self._core, *(self._own[name] for name in self.available(group)))
        return [file for file in shown if (file.on_root if group.parent is None else file.on_child)]

    def file_of(self, group: Group, name: str) -> File:
        """Return a group's file, or raise ENOENT."""
        for file in self.files_of(group):
            if file.name == name:
                return file
        raise refusal("ENOENT")

    def make(self, parent: Group, name: str) -> Group:
        """Make a child."""
        if name in parent.children or any(file.name == name for file in self.files_of(parent)):
            raise refusal("EEXIST")
        parent.children[name] = self._made(name, parent)
        return parent.children[name]

    def remove(self, group: Group) -> None:
        """Remove an empty group."""
        if group.parent is None or group.children or group.tids:
            raise refusal("EBUSY")
        group.gone = True
        del group.parent.children[group.name]

    def attach(self, group: Group, tids: Sequence[int]) -> None:
        """Move threads into a group."""
        if "cpuset" in self.controllers and self.version == 1:
            cpuset.attachable(group)
        for tid in tids:
            for one in self.root.subtree():
                one.tids.discard(tid)
            group.tids.add(tid)
            if "cpu" in self.controllers:
                cpu.attached(group, tid)


@dataclasses.dataclass
class Attempt:
    """One write(2), mkdir(2) or rmdir(2) that was made, and the errno's name that it got, None for success."""

    operation: Operation
    path: str
    text: str | None = None
    errno: int | None = None


@dataclasses.dataclass
class Failure:
    """Answer with an errno, whatever the file would say, ``times`` times (None: always)."""

    operation: Operation
    pattern: str
    errno: str
    times: int | None = None


class Kernel:
    """One machine. ``attempts`` is everything that was tried on it; ``before`` is called ahead of each operation."""

    def __init__(self, flavour: Flavour, *, cpus: int = 8, nodes: int = 1, threads_per_core: int = 2) -> None:
        self.flavour = flavour
        self.cpus, self.nodes, self.threads_per_core = cpus, nodes, threads_per_core
        self.devices = {"8:0", "254:0"}
        self.known_controllers = frozenset({*V2_CONTROLLERS, "hugetlb", "rdma", "misc"})
        self.inodes = itertools.count(2)
        self.tasks: dict[int, Task] = {1: Task(1, 1, command="init")}
        self.writer = 1
        self.usage_bytes: dict[int, int] = {}
        self.adopts: Callable[[int], bool] = lambda pid: False
        """Whether a pid that is none of the double's own may be moved: real processes, where it is mounted."""
        self._adopted: set[int] = set()
        self.attempts: list[Attempt] = []
        self.failures: list[Failure] = []
        self.before: list[Callable[[Operation, str, str | None], None]] = []
        self.links: dict[str, str] = {}
        self.hierarchies = self._mounted()
        self.files = machine.files(self)

    def _mounted(self) -> list[Hierarchy]:
        if self.flavour.version == 2:
            return [Hierarchy(self, 2, V2_CONTROLLERS, CGROUP)]
        joined = self.flavour.joined_cpu
        if joined:
            self.links = {f"{CGROUP}/{name}": "cpu,cpuacct" for name in ("cpu", "cpuacct")}
        sets: list[tuple[str, ...]] = [("cpu", "cpuacct")] if joined else [("cpu",), ("cpuacct",)]
        sets += [(name,) for name in V1_CONTROLLERS[2:]]
        return [Hierarchy(self, 1, names, f"{CGROUP}/{','.join(names)}") for names in sets]

    def controller_files(self, name: str, version: int) -> list[File]:
        """Return the files of one controller on this kernel."""
        vendor = self.flavour.vendor
        if name == "cpu":
            return cpu.files(version, vendor, joined_pressure=version == 2)
        if name == "cpuset":
            return cpuset.files(version)
        if name == "memory":
            return memory.files(version, vendor)
        if name == "pids":
            return core.pids(version)
        if name == "cpuacct":
            return core.cpuacct(with_pressure=self.flavour.psi_v1)
        return block.files(version, vendor)

    # What happens on the machine by itself.

    def spawn(self, *paths: str, tid: int | None = None, tgid: int | None = None, command: str = "task") -> int:
        """Start a thread in the groups of these directories (elsewhere in the root group); return its id."""
        number = tid if tid is not None else max(self.tasks) + 1
        self.tasks[number] = Task(number, tgid or number, command=command)
        for hierarchy in self.hierarchies:
            hierarchy.root.tids.add(number)
        for path in paths:
            group = self.group(path)
            group.hierarchy.attach(group, [number])
        return number

    def end(self, tid: int) -> None:
        """Let a thread end."""
        self.tasks.pop(tid, None)
        for hierarchy in self.hierarchies:
            for group in hierarchy.root.subtree():
                group.tids.discard(tid)

    def threads_of(self, pid: int, *, whole: bool) -> list[int]:
        """Return the threads that a written number moves; empty where nobody has it."""
        if pid not in self.tasks and self.adopts(pid):
            self.spawn(tid=pid, command="adopted")
            self._adopted.add(pid)
        if whole:
            return sorted(task.tid for task in self.tasks.values() if task.tgid == pid)
        return [pid] if pid in self.tasks else []

    def vanish(self, path: str) -> None:
        """Let a whole subtree go, with the threads in it, as when a pod ends."""
        group = self.group(path)
        for one in reversed(list(group.subtree())):
            for tid in sorted(one.tids):
                self.end(tid)
            one.hierarchy.remove(one)

    def memory_usage_bytes(self, group: Group) -> int:
        """Return what a subtree uses; tests set ``usage_bytes`` by inode."""
        return sum(self.usage_bytes.get(one.inode, 0) for one in group.subtree())

    def sysctl(self, name: str) -> str | None:
        """Return a sysctl's value without the newline, or None where this kernel has none of that name."""
        file = self.files.get(f"proc/sys/{name}")
        return file.text.strip() if file else None

    def fail(self, operation: Operation, pattern: str, errno: str, times: int | None = None) -> None:
        """Refuse an operation on paths that match a shell pattern."""
        self.failures.append(Failure(operation, pattern, errno, times))

    # The system calls.

    def read(self, path: str) -> str:
        """Return what reading a file gives."""
        self._ahead("read", path, None)
        if path in self.files:
            return self.files[path].text
        group, file = self._file(path)
        if not file.readable:
            raise refusal("EINVAL")
        return file.read(group)

    def write(self, path: str, text: str) -> None:
        """Make one write(2)."""
        with self._attempt(Attempt("write", path, text)):
            self._ahead("write", path, text)
            if path in self.files:
                self.files[path].write(text)
                return
            group, file = self._file(path)
            if text:  # nothing is handed to a file for an empty write
                file.write(group, text)

    def mkdir(self, path: str) -> None:
        """Make a group."""
        with self._attempt(Attempt("mkdir", path)):
            self._ahead("mkdir", path, None)
            above, _, name = path.rpartition("/")
            parent = self.group(above)
            parent.hierarchy.make(parent, name)

    def rmdir(self, path: str) -> None:
        """Remove a group."""
        with self._attempt(Attempt("rmdir", path)):
            self._ahead("rmdir", path, None)
            group = self.group(path)
            group.hierarchy.remove(group)

    def group(self, path: str) -> Group:
        """Return the group of a directory, or raise ENOENT."""
        for link, target in self.links.items():
            if path == link or path.startswith(link + "/"):
                path = f"{CGROUP}/{target}{path[len(link) :]}"
                break
        for hierarchy in self.hierarchies:
            if path != hierarchy.point and not path.startswith(hierarchy.point + "/"):
                continue
            group = hierarchy.root
            for name in filter(None, path[len(hierarchy.point) :].split("/")):
                if name not in group.children:
                    raise refusal("ENOENT")
                group = group.children[name]
            return group
        raise refusal("ENOENT")

    def state(self) -> dict[str, str]:
        """Return every file that can be written and read, by path: what a restore has to give back."""
        found = {path: file.text for path, file in self.files.items() if file.check is not None}
        for hierarchy in self.hierarchies:
            for group in hierarchy.root.subtree():
                for file in hierarchy.files_of(group):
                    if file.writable and file.readable:
                        found[f"{hierarchy.point}{group.path.rstrip('/')}/{file.name}"] = file.read(group)
        return found

    def _file(self, path: str) -> tuple[Group, File]:
        above, _, name = path.rpartition("/")
        group = self.group(above)
        return group, group.hierarchy.file_of(group, name)

    def _ahead(self, operation: Operation, path: str, text: str | None) -> None:
        for pid in [pid for pid in self._adopted if not self.adopts(pid)]:
            self._adopted.discard(pid)
            self.end(pid)
        for call in list(self.before):
            call(operation, path, text)
        for failure in self.failures:
            if failure.operation == operation and failure.times != 0 and fnmatch.fnmatch(path, failure.pattern):
                if failure.times is not None:
                    failure.times -= 1
                raise refusal(failure.errno)

    def _attempt(self, attempt: Attempt) -> "_Recorded":
        self.attempts.append(attempt)
        return _Recorded(attempt)

    def refused(self) -> Iterator[Attempt]:
        """Yield the attempts that were refused."""
        return (attempt for attempt in self.attempts if attempt.errno is not None)

    def policy(self, tid: int) -> str:
        """Return the scheduling policy of a thread."""
        return self.tasks[tid].policy if tid in self.tasks else NORMAL


class _Recorded:
    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            self.attempt.errno = error.errno


def kernel(name: str, **sizes: int) -> Kernel:
    """Return the double of one family."""
    return Kernel(FLAVOURS[name], **sizes)
