"""Start one command in a managed group of its class, and leave nothing behind."""

import dataclasses
import datetime
import os
import time
from collections.abc import Sequence

import msgspec

from cotenant.kernel import paths, tasks
from cotenant.local import errors, groups, scope, supervision
from cotenant.units.plan import PlanItem

REMOVAL_TRIES = 100
"""Not a time: a machine that stands still for a while does not use them up."""
"""How long a group may stay busy after its last process has ended: the kernel frees it a little later."""
POLL_SECONDS = 0.02


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """What to run and how. ``name`` is the command's with the process id where the user gives none."""

    command: Sequence[str]
    qos: groups.Qos
    name: str | None = None
    limits: groups.Limits = groups.UNLIMITED


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """How it ended; ``left`` are the processes that the command left in its group."""

    end: supervision.End
    path: str
    left: tuple[int, ...] = ()
    failure: str | None = None
    """Why the command could not be started."""


def path_of(name: str, qos: groups.Qos) -> str:
    """Return the group of a name, below the root of its hierarchies."""
    return f"cotenant-{qos.lower()}/{name}"


def name_of(request: Request, pid: int) -> str:
    """Return the group's name.

    :raises GroupError: if the user's cannot be one.
    """
    if request.name is not None:
        return groups.check_name(request.name)
    stem = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in _base(request.command[0]))
    return f"{stem[:40].lstrip('.') or 'command'}-{pid}"


def _base(word: str) -> str:
    return os.path.basename(word.rstrip("/")) or "command"


def plan(managed: groups.Groups, request: Request) -> list[PlanItem]:
    """Return what a run would write, with ``PID`` for the process that does not exist yet."""
    path = path_of(name_of(request, 0) if request.name else f"{name_of(request, 0)[:-2]}-PID", request.qos)
    return [
        *managed.directories(path, request.qos),
        *managed.contents(path, request.qos, request.limits),
        *managed.entry(path, request.qos, "PID"),
    ]


def run(managed: groups.Groups, request: Request) -> Result:
    """Run the command to its end.

    :raises GroupError: if its group cannot be made as asked for; the command was not started then.
    """
    managed.clean()
    child = supervision.Child(request.command)
    try:
        record = _reserved(managed, request, child.pid)
    except BaseException:
        child.abandon()
        raise
    try:
        record = _placed(managed, request, record)
    except BaseException:
        child.abandon()
        _removed(managed, record)
        raise
    failure = child.release()
    end = child.wait()
    left = _removed(managed, record)
    child.restore_signals()
    return Result(end, record.path, tuple(left), failure)


def _reserved(managed: groups.Groups, request: Request, pid: int) -> groups.Record:
    name = name_of(request, pid)
    record = groups.Record(
        path=path_of(name, request.qos),
        qos=request.qos,
        name=name,
        pid=pid,
        owner=os.getpid(),
        owner_started=tasks.start_time(paths.Root(), str(os.getpid())),
        command=tuple(word.encode(errors="surrogateescape").decode(errors="replace") for word in request.command),
        started=datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    )
    managed.reserve(record)
    return record


def _placed(managed: groups.Groups, request: Request, record: groups.Record) -> groups.Record:
    in_scope = scope.available(managed.root)
    if in_scope:
        path = scope.create(managed.root, record.name, record.qos, record.pid)
        record = msgspec.structs.replace(record, path=path, scope=os.path.basename(path))
        managed.record(record)
    managed.create(record.path, record.qos, request.limits, str(record.pid), in_scope=in_scope)
    return record


def _removed(managed: groups.Groups, record: groups.Record) -> list[int]:
    """Remove the group and its record; return the processes that keep it."""
    for _ in range(REMOVAL_TRIES):
        left = managed.members(record.path)
        if left:
            return left
        if managed.remove(record.path):
            managed.forget(record.name)
            return []
        time.sleep(POLL_SECONDS)
    raise errors.GroupError(f"{record.path}: the empty group cannot be removed; `cotenant restore` tries again")
