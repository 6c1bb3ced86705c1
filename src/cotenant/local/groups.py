"""Managed groups: one per started command, in every cgroup hierarchy, with the priority of its class.

A group is ``cotenant-<class>/<name>`` below the root of each hierarchy. The class directory carries the priority as
well: weights and idleness count among siblings only, so a group deeper down would be held back against its own kind and
nobody else. Every write is the executor's; a record in the run directory says what the group is.
"""

import contextlib
import os
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from cotenant.kernel import executor, journal, outcome, paths, priority, tasks
from cotenant.local import errors
from cotenant.model.policy import DEFAULT_GROUP_IDENTITY
from cotenant.model.priority import InterfaceName, PriorityInterface, Setting
from cotenant.units import ordering
from cotenant.units.limit import NONE, Limit
from cotenant.units.malformed import MALFORMED
from cotenant.units.plan import PlanItem

Qos = Literal["LSR", "LS", "BE", "SYSTEM"]
STRATEGY = journal.STARTING
V1_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "blkio")
V2_CONTROLLERS = ("cpu", "cpuset", "io", "memory")
PERIOD_USEC = 100_000
MADE_ATTEMPTS = 5
PREFIX = "cotenant"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_DONE: frozenset[outcome.State] = frozenset({"written", "same", "planned"})


class Limits(msgspec.Struct, frozen=True):
    """How much a group may use: thousandths of a CPU, bytes."""

    cpu_millicores: Limit = NONE
    memory_bytes: Limit = NONE


UNLIMITED = Limits()


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """``run/cotenant/groups/<name>.json``: what a group is, for the sampler, for ``run`` and for people."""

    path: str
    """The group below the root of its hierarchies, without a leading slash."""
    qos: Qos
    name: str
    pid: int
    owner: int
    """The process that started the command and removes the group."""
    owner_started: str
    """Its start time in clock ticks since boot, which tells it from a later process with the same id."""
    command: tuple[str, ...]
    started: str
    scope: str | None = None
    """The systemd unit that the group belongs to."""


def check_name(name: str) -> str:
    """Return a name that can be a directory and a unit.

    :raises GroupError: if it cannot.
    """
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise errors.GroupError(f"name {name!r}: use up to 64 letters, digits, '.', '_' and '-'")
    return name


class Groups:
    """The managed groups of one root."""

    def __init__(
        self, root: paths.Root, *, interface: InterfaceName | None = None, writer: executor.Executor | None = None
    ) -> None:
        self.root = root
        self._chosen = interface is not None
        self.interface: PriorityInterface = priority.choose(root, interface) if interface else priority.probe(root)
        self.writer = writer or executor.Executor(root)
        self.directory = root.run_dir / "groups"
        self.mounts = mounts_of(root)
        if not any("cpu" in mount.controllers for mount in self.mounts):
            raise errors.GroupError(f"{root.directory}: no cgroup hierarchy with the cpu controller is mounted")

    # --- plans ------------------------------------------------------------------------------------------------------

    def directories(self, path: str, qos: Qos) -> list[PlanItem]:
        """Return the steps that make the group ``path`` in every hierarchy."""
        return list(self._made(path, f"{qos} work in {path}"))

    def contents(self, path: str, qos: Qos, limits: Limits) -> list[PlanItem]:
        """Return the steps that give the class directory and the group ``path`` their priority, and it its limits."""
        reason = f"{qos} work in {path}"
        return [
            *self._switches(reason, qos),
            *self._settings(path.split("/")[0], qos, reason),
            *self._settings(path, qos, reason),
            *self._limits(path, limits, reason),
        ]

    def entry(self, path: str, qos: Qos, pid: str) -> list[PlanItem]:
        """Return the steps that put a process in the group ``path``."""
        return list(self._moved(path, qos, pid, f"{qos} work in {path}"))

    def create(self, path: str, qos: Qos, limits: Limits, pid: str, *, in_scope: bool = False) -> None:
        """Make a group with its priority and limits, then put a process in it.

        With ``in_scope`` systemd has made it where systemd makes groups, and only the other hierarchies need one.

        :raises GroupError: at the first step that fails.
        """
        self._make(path, qos, in_scope)
        if not self._chosen:
            # Some files are in children only (v2; cpu.priority of Anolis): now there is one.
            self.interface = priority.probe(self.root)
        self.apply(self.contents(path, qos, limits))
        self.apply(self.entry(path, qos, pid))

    def _make(self, path: str, qos: Qos, in_scope: bool) -> None:
        """Make the group. Another command that ends may take the class directory away between plan and write."""
        first: errors.GroupError | None = None
        for _ in range(MADE_ATTEMPTS):
            steps = self.directories(path, qos)
            if in_scope:
                steps = [item for item in steps if not (item.path or "").endswith("cgroup.subtree_control")]
            try:
                self.apply(steps)
            except errors.GroupError as error:
                first = first or error  # what was refused is held back the next time, and says no more why
            else:
                return
        if first is not None:
            raise first

    def removal(self, path: str) -> list[PlanItem]:
        """Return the steps that remove a group, and its class directory where nobody else is in it."""
        items = []
        for mount in self.mounts:
            group = mount.path / path
            if group.is_dir():
                items.append(self._item("rmdir", group, "the command has ended"))
            if _only_child(group):
                items.append(self._item("rmdir", group.parent, "no group of this class is left"))
        return items

    def _item(self, op: Literal["mkdir", "rmdir"], path: pathlib.Path, reason: str) -> PlanItem:
        return PlanItem(op=op, path=self.root.relative(path), strategy=STRATEGY, reason=reason)

    def _write(self, path: pathlib.Path, new: str, reason: str, *, irreversible: bool = False) -> PlanItem:
        return PlanItem(
            op="write",
            path=self.root.relative(path),
            old=_text(path),
            new=new,
            strategy=STRATEGY,
            reason=reason,
            irreversible=irreversible,
        )

    def _switches(self, reason: str, qos: Qos) -> Iterator[PlanItem]:
        wanted = {setting.controller for setting in self._settings_of(qos)}
        for switch in self.interface.switches:
            if switch.controller in wanted:
                yield self._write(self.root.directory / switch.path, switch.value, f"{switch.reason}; {reason}")

    def _made(self, path: str, reason: str) -> Iterator[PlanItem]:
        for mount in self.mounts:
            above = mount.path
            for part in path.split("/"):
                if mount.version == 2:
                    yield from self._handed_down(mount, above, reason)
                group = above / part
                yield self._item("mkdir", group, reason)
                if mount.version == 1 and "cpuset" in mount.controllers:
                    yield from self._cpuset(mount, group, reason)
                above = group

    def _handed_down(self, mount: paths.CgroupMount, above: pathlib.Path, reason: str) -> Iterator[PlanItem]:
        wanted = [f"+{name}" for name in V2_CONTROLLERS if name in mount.controllers]
        if wanted:
            yield self._write(above / "cgroup.subtree_control", " ".join(wanted), reason)

    def _cpuset(self, mount: paths.CgroupMount, group: pathlib.Path, reason: str) -> Iterator[PlanItem]:
        """A v1 cpuset takes no task before it has CPUs and nodes: those of the whole hierarchy, unless it has some."""
        for file in ("cpuset.cpus", "cpuset.mems"):
            everything = _text(mount.path / file)
            if everything and not _text(group / file):
                yield self._write(group / file, everything, reason)

    def _settings_of(self, qos: Qos) -> Sequence[Setting]:
        return self.interface.settings.get(DEFAULT_GROUP_IDENTITY[qos], ())

    def _settings(self, path: str, qos: Qos, reason: str) -> Iterator[PlanItem]:
        for setting in self._settings_of(qos):
            mount = next((m for m in self.mounts if setting.controller in m.controllers), None)
            if mount is not None:
                file = mount.path / path / setting.file
                yield self._write(file, setting.value, reason, irreversible=setting.irreversible)

    def _limits(self, path: str, limits: Limits, reason: str) -> Iterator[PlanItem]:
        quota = limits.cpu_millicores.value
        quota_usec = None if quota is None else max(ordering.MIN_QUOTA_USEC, quota * PERIOD_USEC // 1000)
        memory = limits.memory_bytes.value
        for mount in self.mounts:
            group = mount.path / path
            if quota_usec is not None and "cpu" in mount.controllers:
                v1, v2 = ("cpu.cfs_quota_us", str(quota_usec)), ("cpu.max", f"{quota_usec} {PERIOD_USEC}")
                file, text = v1 if mount.version == 1 else v2
                yield self._write(group / file, text, reason)
            if memory is not None and "memory" in mount.controllers:
                file = "memory.limit_in_bytes" if mount.version == 1 else "memory.max"
                yield self._write(group / file, str(memory), reason)

    def _moved(self, path: str, qos: Qos, pid: str, reason: str) -> Iterator[PlanItem]:
        for mount in self.mounts:
            file = self.root.relative(mount.path / path / "cgroup.procs")
            yield PlanItem(op="move_task", path=file, new=pid, strategy=STRATEGY, reason=reason)
        if self.interface.policy_stays and DEFAULT_GROUP_IDENTITY[qos] >= 0 and self.root.is_machine:
            # This process may come out of an offline group itself, and its children keep that policy.
            yield PlanItem(op="set_policy", path=f"proc/{pid}", new="other", strategy=STRATEGY, reason=reason)

    # --- carrying out -----------------------------------------------------------------------------------------------

    def apply(self, items: Sequence[PlanItem]) -> None:
        """Carry out steps that must all succeed.

        :raises GroupError: naming the first one that did not.
        """
        for result in self.writer.apply(items):
            if result.state not in _DONE:
                item = result.item
                what = f"{item.op} {item.path}" + (f" {item.new!r}" if item.new else "")
                raise errors.GroupError(f"{what}: {result.detail or result.state}")

    def members(self, path: str) -> list[int]:
        """Return the processes in a group and below it, in any hierarchy."""
        return members_of(self.mounts, path)

    def remove(self, path: str) -> bool:
        """Remove a group; return False where something is still in it."""
        items = self.removal(path)
        outcomes = self.writer.apply(items) if items else []
        return not any((mount.path / path).is_dir() for mount in self.mounts) and not any(
            outcome.state in ("denied", "failed") for outcome in outcomes
        )

    # --- records ----------------------------------------------------------------------------------------------------

    def reserve(self, record: Record) -> None:
        """Write a group's record; its existence is the claim on the name.

        :raises GroupError: if a group of that name is in use, or the record cannot be written.
        """
        file = self.directory / f"{record.name}.json"
        beside = self._written_beside(record)
        try:
            # Linked when it is whole: a record that a full disk or a kill had cut short would keep its name for ever.
            os.link(beside, file)
        except FileExistsError:
            raise errors.GroupError(f"{record.name}: a group of that name is in use ({self._user(file)})") from None
        finally:
            beside.unlink()

    def _written_beside(self, record: Record) -> pathlib.Path:
        """Return a new file with a record, which is not one yet.

        :raises GroupError: if it cannot be written.
        """
        beside = self.directory / f".{record.name}.{os.getpid()}"
        data = msgspec.json.encode(record) + b"\n"
        try:
            self.directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            beside.write_bytes(data)
        except OSError as error:
            with contextlib.suppress(OSError):
                beside.unlink()
            remedy = "run as root" if isinstance(error, PermissionError) else "no record, so no group"
            raise errors.GroupError(f"{beside}: {error.strerror}; {remedy}") from error
        return beside

    def _user(self, file: pathlib.Path) -> str:
        record = _record(file)
        if record is None:
            return f"see {file}"
        members = self.members(record.path)
        return f"processes {', '.join(map(str, members))}" if members else f"process {record.owner}"

    def record(self, record: Record) -> None:
        """Replace a group's record."""
        os.replace(self._written_beside(record), self.directory / f"{record.name}.json")

    def forget(self, name: str) -> None:
        """Remove a group's record."""
        (self.directory / f"{name}.json").unlink(missing_ok=True)

    def records(self) -> list[Record]:
        """Return the records there are, by name."""
        return records_in(self.directory)

    def clean(self) -> list[Record]:
        """Remove groups whose command and starter are gone, as after kill -9; return those that were removed."""
        removed = []
        for record in self.records():
            alive = tasks.start_time(paths.Root(), str(record.owner)) == record.owner_started != ""
            if alive or self.members(record.path):
                continue
            if self.remove(record.path):
                self.forget(record.name)
                removed.append(record)
        return removed


def members_of(mounts: Sequence[paths.CgroupMount], path: str) -> list[int]:
    """Return the processes in a group and below it, in any of the hierarchies."""
    found: set[int] = set()
    for mount in mounts:
        for directory, _, _ in os.walk(mount.path / path):
            text = _text(pathlib.Path(directory, "cgroup.procs")) or ""
            found.update(int(word) for word in text.split() if word.isdigit())
    return sorted(found)


def records_in(directory: pathlib.Path) -> list[Record]:
    """Return the records in a directory, by name."""
    found = [_record(file) for file in sorted(directory.glob("*.json"))]
    return [record for record in found if record is not None]


def mounts_of(root: paths.Root) -> tuple[paths.CgroupMount, ...]:
    """Return the hierarchies in which a group is made: each v1 one with a controller of ours, and v2."""
    return tuple(
        mount for mount in root.cgroup_mounts() if mount.version == 2 or mount.controllers & set(V1_CONTROLLERS)
    )


def _only_child(group: pathlib.Path) -> bool:
    """Return whether no sibling of a group is left in its class directory."""
    if not group.parent.name.startswith(PREFIX):
        return False
    with contextlib.suppress(OSError), os.scandir(group.parent) as entries:
        return all(entry.name == group.name or not entry.is_dir() for entry in entries)
    return False


def _text(path: pathlib.Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def _record(file: pathlib.Path) -> Record | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Record)
    except (OSError, *MALFORMED):
        return None
