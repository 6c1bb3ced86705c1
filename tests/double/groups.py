"""Groups, tasks and files of the double: what every controller is made of."""

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tests.double import text as kernel_text
from tests.double.text import refusal

if TYPE_CHECKING:
    from tests.double.model import Hierarchy, Kernel

NORMAL, BATCH, IDLE, BT = "other", "batch", "idle", "bt"


@dataclasses.dataclass
class Task:
    """One thread. ``policy`` is what the kernel made of it, by itself or because it was told to."""

    tid: int
    tgid: int
    policy: str = NORMAL
    command: str = "task"


class Group:
    """One directory of one hierarchy. Its files' values are kept by file name, as numbers or sets, not as text."""

    def __init__(self, hierarchy: "Hierarchy", name: str, parent: "Group | None", inode: int) -> None:
        self.hierarchy = hierarchy
        self.name = name
        self.parent = parent
        self.inode = inode
        self.children: dict[str, Group] = {}
        self.values: dict[str, Any] = {}
        self.tids: set[int] = set()
        self.gone = False

    @property
    def kernel(self) -> "Kernel":
        return self.hierarchy.kernel

    @property
    def path(self) -> str:
        """The path below the hierarchy's root, ``/`` for the root."""
        if self.parent is None:
            return "/"
        return f"{self.parent.path.rstrip('/')}/{self.name}"

    def subtree(self) -> Iterator["Group"]:
        """Yield this group and everything below it, parents first."""
        yield self
        for child in self.children.values():
            yield from child.subtree()

    def ancestors(self) -> Iterator["Group"]:
        """Yield the parents, nearest first."""
        group = self.parent
        while group is not None:
            yield group
            group = group.parent

    def tasks(self) -> list[Task]:
        """Return the threads that are in this very group."""
        return [self.kernel.tasks[tid] for tid in sorted(self.tids)]


class File:
    """One file of a group. Subclasses say what is read, which text is taken, and what else a write does."""

    on_root = True
    on_child = True
    writable = True
    readable = True
    inherits = False

    def __init__(self, name: str, initial: Any = 0) -> None:
        self.name = name
        self.initial = initial

    def create(self, group: Group) -> None:
        """Give a new group its value."""
        value = self.initial
        if self.inherits and group.parent is not None:
            value = group.parent.values.get(self.name, self.initial)
        group.values[self.name] = value

    def read(self, group: Group) -> str:
        """Return the text, with its newline."""
        return f"{group.values[self.name]}\n"

    def write(self, group: Group, text: str) -> None:
        """Take one write(2), or raise its errno."""
        self.put(group, self.parse(group, text))

    def parse(self, group: Group, text: str) -> Any:
        """Return the value that a text means."""
        raise NotImplementedError

    def put(self, group: Group, value: Any) -> None:
        """Store a value, or raise where the group cannot take it."""
        group.values[self.name] = value


class Integer(File):
    """A number within bounds; ``error`` is what another number answers, ``root_error`` any write to the root."""

    def __init__(
        self,
        name: str,
        initial: int = 0,
        bounds: tuple[int, int] | None = None,
        *,
        error: str = "EINVAL",
        root_error: str | None = "EINVAL",
        on_root: bool = True,
        unsigned: bool = False,
        inherits: bool = False,
    ) -> None:
        super().__init__(name, initial)
        self.bounds = bounds
        self.error = error
        self.root_error = root_error
        self.on_root = on_root
        self.unsigned = unsigned
        self.inherits = inherits

    def parse(self, group: Group, text: str) -> int:
        value = kernel_text.unsigned(text) if self.unsigned else kernel_text.signed(text)
        if group.parent is None and self.root_error:
            raise refusal(self.root_error)
        if self.bounds and not self.bounds[0] <= value <= self.bounds[1]:
            raise refusal(self.error)
        return value


class ReadOnly(File):
    """A file whose content is a function of the group; writes get EINVAL, as a cgroup file without a handler does."""

    writable = False

    def __init__(self, name: str, content: "Any", *, on_root: bool = True, on_child: bool = True) -> None:
        super().__init__(name)
        self.content = content
        self.on_root = on_root
        self.on_child = on_child

    def create(self, group: Group) -> None:
        return

    def read(self, group: Group) -> str:
        return str(self.content(group))

    def write(self, group: Group, text: str) -> None:
        raise refusal("EINVAL")


def pressure(_group: Group) -> str:
    """Return a pressure file of a group that never stalls."""
    line = "avg10=0.00 avg60=0.00 avg300=0.00 total=0"
    return f"some {line}\nfull {line}\n"
