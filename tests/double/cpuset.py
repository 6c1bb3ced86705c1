"""The cpuset controller, v1 and v2."""

from collections.abc import Callable

from tests.double import text as kernel_text
from tests.double.groups import File, Group, Integer, ReadOnly
from tests.double.text import refusal

Members = frozenset[int]


def possible(group: Group, name: str) -> int:
    """Return how many CPUs or memory nodes there are."""
    return group.kernel.cpus if name.endswith("cpus") else group.kernel.nodes


class MembersV1(File):
    """v1 ``cpuset.cpus`` and ``cpuset.mems``: a subset of the parent's, a superset of every child's."""

    def create(self, group: Group) -> None:
        everything = frozenset(range(possible(group, self.name)))
        group.values[self.name] = everything if group.parent is None else frozenset()

    def read(self, group: Group) -> str:
        return kernel_text.render_list(group.values[self.name]) + "\n"

    def parse(self, group: Group, text: str) -> Members:
        if group.parent is None:
            raise refusal("EACCES")
        # Only as many nodes exist as can ever be: past them EINVAL for nodes, ERANGE for CPUs.
        try:
            return kernel_text.cpu_list(text, possible(group, self.name))
        except OSError:
            if self.name.endswith("mems") and text.strip().isdigit():
                raise refusal("EINVAL") from None
            raise

    def put(self, group: Group, value: Members) -> None:
        current: Members = group.values[self.name]
        if value == current:
            return
        if any(not child.values[self.name] <= value for child in group.children.values()):
            raise refusal("EBUSY")
        if group.parent is not None and not value <= group.parent.values[self.name]:
            raise refusal("EACCES")
        if not value and group.tids:
            raise refusal("ENOSPC")
        if self.name.endswith("cpus"):
            _check_exclusive(group, value, group.values["cpuset.cpu_exclusive"])
        group.values[self.name] = value


def _check_exclusive(group: Group, members: Members, exclusive: int) -> None:
    if group.parent is None:
        return
    for sibling in group.parent.children.values():
        if sibling is group or not (exclusive or sibling.values["cpuset.cpu_exclusive"]):
            continue
        if members & sibling.values["cpuset.cpus"]:
            raise refusal("EINVAL")


class Exclusive(Integer):
    """v1 ``cpuset.cpu_exclusive``: no sibling may overlap, and the parent must be exclusive as well."""

    def __init__(self) -> None:
        super().__init__("cpuset.cpu_exclusive", 0, unsigned=True)

    def create(self, group: Group) -> None:
        group.values[self.name] = int(group.parent is None)

    def put(self, group: Group, value: int) -> None:
        if value and group.parent is not None:
            if not group.parent.values[self.name]:
                raise refusal("EACCES")
            _check_exclusive(group, group.values["cpuset.cpus"], 1)
        if not value and any(child.values[self.name] for child in group.children.values()):
            raise refusal("EBUSY")
        group.values[self.name] = int(bool(value))


class MembersV2(File):
    """v2: any list of possible CPUs; what holds is the overlap with the parent's effective list."""

    on_root = False

    def __init__(self, name: str) -> None:
        super().__init__(name, frozenset())

    def read(self, group: Group) -> str:
        return kernel_text.render_list(group.values[self.name]) + "\n"

    def parse(self, group: Group, text: str) -> Members:
        return kernel_text.cpu_list(text, possible(group, self.name))

    def put(self, group: Group, value: Members) -> None:
        # Seen on 6.12: with tasks in the group or below it, a list that was set cannot become empty again.
        if group.values[self.name] and not value and _is_populated(group):
            raise refusal("ENOSPC")
        group.values[self.name] = value


def _is_populated(group: Group) -> bool:
    return bool(group.tids) or any(_is_populated(child) for child in group.children.values())


class Partition(File):
    """v2 ``cpuset.cpus.partition``: the three words; whether a root is valid is not modelled."""

    on_root = False
    WORDS = ("member", "root", "isolated")

    def __init__(self) -> None:
        super().__init__("cpuset.cpus.partition", "member")

    def parse(self, group: Group, text: str) -> str:
        if text.strip() not in self.WORDS:
            raise refusal("EINVAL")
        return text.strip()


def effective(name: str) -> Callable[[Group], str]:
    """Return the content of the effective list of ``cpuset.cpus`` or ``cpuset.mems``."""

    def members(group: Group) -> Members:
        if group.parent is None:
            return frozenset(range(possible(group, name)))
        above = members(group.parent)
        own: Members = group.values.get(name, frozenset())
        if group.hierarchy.version == 1:
            return own
        return own & above or above

    return lambda group: kernel_text.render_list(members(group)) + "\n"


def attachable(group: Group) -> None:
    """Refuse a task where the group has no CPU or no memory node (v1)."""
    if group.hierarchy.version == 1 and not (group.values["cpuset.cpus"] and group.values["cpuset.mems"]):
        raise refusal("ENOSPC")


def files(version: int) -> list[File]:
    """Return the controller's files."""
    if version == 2:
        return [
            MembersV2("cpuset.cpus"),
            MembersV2("cpuset.mems"),
            ReadOnly("cpuset.cpus.effective", effective("cpuset.cpus")),
            ReadOnly("cpuset.mems.effective", effective("cpuset.mems")),
            Partition(),
        ]
    return [
        MembersV1("cpuset.cpus"),
        MembersV1("cpuset.mems"),
        Exclusive(),
        ReadOnly("cpuset.effective_cpus", effective("cpuset.cpus")),
        ReadOnly("cpuset.effective_mems", effective("cpuset.mems")),
        *(
            Integer(f"cpuset.{n}", d, unsigned=True, root_error=None)
            for n, d in (("mem_exclusive", 0), ("memory_migrate", 0), ("sched_load_balance", 1))
        ),
    ]
