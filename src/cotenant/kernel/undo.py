"""Put back what the journal says was there before us, in an order that the kernel accepts, and name the rest.

Never applied: what belongs to another boot or to a group that was made again under the same name (named once, then
forgotten); a newer value of the kubelet, the runtime or systemd in a file that they set by themselves; and what the
kernel does not take back (openEuler's -1). Any other file that we wrote gets its old content, whoever wrote since.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping

import msgspec

from cotenant.kernel import channel, core_cookie, errno_table, executor, journal, lock, task_writes, tasks
from cotenant.kernel.restoration import Left, Restoration, Restored
from cotenant.units import contents, ordering
from cotenant.units.plan import PlanItem

OWNED_ELSEWHERE = frozenset(
    {
        "cpu.shares", "cpu.weight", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.max",
        "cpuset.cpus", "memory.limit_in_bytes", "memory.max",
    }
)  # fmt: skip
"""What the kubelet, the runtime and systemd set in groups of theirs, at a resize or on reload. A value that they have
put there since is newer than the one that the journal keeps."""
_SILENT: Mapping[str, tuple[str, str]] = {
    f"net_qos_{name}": (
        "the file showed nothing before the first write, whatever was in force",
        f"set it with bwmcli -s {name}",
    )
    for name in ("bandwidth", "waterline")
}
"""Why some files cannot be put back that keep no level, and the remedy."""
NAMED_TASKS = 5
_NOT_OURS = "the tasks of another root are not this machine's"
_FORK_ROUNDS = 5
"""How often processes are looked for that were forked while those of the last look lost their cookie or group."""
_POD = re.compile(r"pod([0-9a-fA-F]{8}[-_0-9a-fA-F]{28}|[0-9a-f]{32})")


def restore(writer: executor.Executor) -> Restoration:
    """Undo everything that the journal of the executor's root holds. A second run finds nothing to do.

    :raises Locked: if another process keeps writing.
    """
    result = Restoration()
    if not writer.journal.path.exists():
        return result
    with lock.writing(writer.root):
        writer.journal.refresh()
        entries = list(writer.journal.entries.values())
        # First: after it the journal may forget which cookies are ours.
        _take_cookies(writer, result)
        wanted = [entry for entry in reversed(entries) if _is_ours_to_undo(writer, entry, result)]
        _undo(writer, wanted, result)
        writer.journal.compact()
    result.pods_to_recreate = sorted({left.pod_uid for left in result.irreversible if left.pod_uid})
    return result


def _is_ours_to_undo(writer: executor.Executor, entry: journal.Entry, result: Restoration) -> bool:
    line = entry.line
    if line.task and line.op != "move_task":
        alive = tasks.start_time(writer.root, line.task) == line.started
        inode: tuple[int, int] | None = (0, 0) if alive else None
    else:
        inode = writer.inode_of_parent(line.path)
    if inode is None:
        result.gone += 1
        writer.journal.undone(line.key)
        return False
    if line.boot != writer.journal.boot:
        remedy = "nothing: a value does not outlive its boot"
        result.stale.append(_left(writer, entry, f"written in another boot ({line.boot or 'of unknown id'})", remedy))
        writer.journal.undone(line.key)
        return False
    if inode != (line.dev, line.ino):
        remedy = "nothing: the group that was written is gone"
        result.stale.append(_left(writer, entry, "another group has this name now", remedy))
        writer.journal.undone(line.key)
        return False
    return True


def _left(writer: executor.Executor, entry: journal.Entry, reason: str, remedy: str) -> Left:
    match = _POD.search(entry.path)
    return Left(
        path=entry.path,
        found=_stripped(writer.channel.peek(entry.path)) if entry.line.op == "write" else None,
        original=_stripped(entry.old),
        reason=reason,
        remedy=remedy,
        pod_uid=match[1].replace("_", "-") if match else None,
    )


def _stripped(text: str | None) -> str | None:
    return None if text is None else text.strip()


def _undo(writer: executor.Executor, entries: list[journal.Entry], result: Restoration) -> None:
    # Tasks leave first: a group that we made takes no CPU set back, and cannot be removed, while they are in it.
    for entry in entries:
        if entry.line.op == "move_task":
            _undo_other(writer, entry, result)
    files = [entry for entry in entries if entry.line.op == "write"]
    files = [entry for entry in files if _may_be_written(writer, entry, result)]
    found = {entry.path: _stripped(writer.channel.peek(entry.path)) for entry in files}
    # Twice: what is refused because of a neighbour that comes later is accepted the second time.
    for _ in range(2):
        _write_back(writer, files)
    for entry in files:
        _finish(writer, entry, found[entry.path], result)
    for entry in entries:
        if entry.line.op == "set_policy":
            _undo_other(writer, entry, result)
        elif entry.line.op == "core_cookie":
            _end_cookie(writer, entry, result)
    for entry in sorted((e for e in entries if e.line.op == "mkdir"), key=lambda e: -e.path.count("/")):
        _remove(writer, entry, result)


# --- files ----------------------------------------------------------------------------------------------------------


def _may_be_written(writer: executor.Executor, entry: journal.Entry, result: Restoration) -> bool:
    name = os.path.basename(entry.path)
    current = writer.channel.peek(entry.path)
    if current is None:
        with writer.channel.parent(entry.path) as directory:
            there = directory.inode_of(name) is not None
        if there:
            result.failed.append(_left(writer, entry, "it cannot be read", "run restore as root"))
            return False
        result.gone += 1
        writer.journal.undone(entry.line.key)
        return False
    if entry.old is not None and current == entry.old:
        result.unchanged += 1
        writer.journal.undone(entry.line.key)
        return False
    sticky = name in executor.STICKY_FILES and current.strip() != "0"
    if entry.irreversible or sticky:
        why, remedy = _SILENT.get(name, ("the kernel keeps this level for the life of the group", "recreate the pod"))
        result.irreversible.append(_left(writer, entry, why, remedy))
        return False
    known = [*entry.values, entry.old or ""]
    newer = entry.complete and not entry.line.aside and not any(_explains(name, value, current) for value in known)
    if newer and name in OWNED_ELSEWHERE:
        result.foreign.append(
            _left(writer, entry, "somebody else has written this since", "nothing, if the other value is right")
        )
        writer.journal.undone(entry.line.key)
        return False
    return True


def _explains(name: str, value: str, current: str) -> bool:
    return contents.same(name, value, current)


def _write_back(writer: executor.Executor, entries: list[journal.Entry]) -> None:
    items = [item for entry in entries for item in _items_of(writer, entry)]
    emptied = []
    for item in ordering.order(items, _current(writer, items)):
        outcome = writer.carry_out(item)
        if outcome.state in ("refused", "held") and not item.new:
            emptied.append(item)
    for item in sorted(emptied, key=lambda item: (item.path or "").count("/")):  # what a parent has counts
        everything = _all_of_the_parent(writer, item.path or "")
        if everything:
            writer.carry_out(msgspec.structs.replace(item, new=everything))


def _all_of_the_parent(writer: executor.Executor, path: str) -> str | None:
    """Return what a v2 CPU or node list has when it is empty; None for other files.

    The kernel does not let a list become empty again while tasks are in the group (ENOSPC).
    """
    directory, _, name = path.rpartition("/")
    if name not in ("cpuset.cpus", "cpuset.mems"):
        return None
    return _stripped(writer.channel.peek(f"{os.path.dirname(directory)}/{name}.effective"))


def _items_of(writer: executor.Executor, entry: journal.Entry) -> Iterator[PlanItem]:
    name = os.path.basename(entry.path)
    current = writer.channel.peek(entry.path)
    if current is None or current == entry.old:
        return
    original = (entry.old or "").strip()
    if contents.KEYED.match(name):
        texts = _lines_back(name, original, current, entry.values)
    elif name in contents.TOGGLES:
        texts = _toggles_back(original, entry.values)
    else:
        texts = [original]
    for text in texts:
        yield PlanItem(
            op="write",
            path=entry.path,
            old=current.strip(),
            new=text,
            strategy=journal.UNDOING,
            reason="as it was before",
        )


def _lines_back(name: str, original: str, current: str, values: list[str]) -> list[str]:
    """Return one text for each device whose line we wrote: its line before, or what removes the line."""
    before = contents.lines_of(name, original)
    now = contents.lines_of(name, current)
    touched = dict.fromkeys(key for value in values for key in contents.lines_of(name, value))
    texts = []
    for key in touched:
        back = before.get(key) or contents.cleared(name)
        if now.get(key) == back or (key not in before and key not in now):
            continue
        if name == "schemata":
            resource, _, domain = key.partition(":")
            texts.append(f"{resource}:{domain}={back}")
        else:
            texts.append(f"{key} {back}")
    return texts


def _toggles_back(original: str, values: list[str]) -> list[str]:
    """Return the words that turn back what we turned."""
    words = dict.fromkeys(word for value in values for word in value.split())
    return [contents.opposite(word) for word in words if not contents.same("features", word, original)]


_NEIGHBOURS = ("cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.cfs_burst_us", "cpu.max", "cpu.max.burst", "cpu.idle")


def _current(writer: executor.Executor, items: list[PlanItem]) -> dict[str, str]:
    """Return what the order has to know: the files themselves, their neighbours, and the same files further up."""
    wanted: set[str] = set()
    for item in items:
        directory, _, name = (item.path or "").rpartition("/")
        wanted.update(f"{directory}/{neighbour}" for neighbour in (name, *_NEIGHBOURS))
        while directory.count("/") > 3:
            directory = os.path.dirname(directory)
            wanted.add(f"{directory}/{name}")
    texts = {path: writer.channel.peek(path) for path in sorted(wanted)}
    return {path: text.strip() for path, text in texts.items() if text is not None}


def _item_of(entry: journal.Entry) -> PlanItem:
    return PlanItem(op="write", path=entry.path, strategy=journal.UNDOING, reason="as it was before")


def _finish(writer: executor.Executor, entry: journal.Entry, found: str | None, result: Restoration) -> None:
    """Compare with the bytes of before, write those on an ordinary file system, and close or report the entry."""
    name = os.path.basename(entry.path)
    original = entry.old or ""
    try:
        with writer.channel.parent(entry.path) as directory:
            read = directory.read(name)
            if read != original and directory.is_plain(name):
                writer.journal.change(_item_of(entry), entry.path, directory.inode, entry.old)
                directory.write(name, original)
                read = directory.read(name)
    except OSError as error:
        decision = errno_table.decide(error.errno or 0, name)
        result.failed.append(_left(writer, entry, decision.meaning, "run restore again"))
        return
    everything = None if original.strip() else _all_of_the_parent(writer, entry.path)
    if read == original or contents.same(name, original.strip(), read):
        result.restored.append(Restored(entry.path, found, _stripped(entry.old)))
        writer.journal.undone(entry.line.key)
    elif everything and contents.same(name, everything, read):
        note = f"{everything}, all that its parent has: the kernel takes no empty list while tasks are in the group"
        result.restored.append(Restored(entry.path, found, _stripped(entry.old), note))
        writer.journal.undone(entry.line.key)
    else:
        reason = f"the kernel did not take {original.strip()!r} back"
        result.failed.append(_left(writer, entry, reason, "see the limits of its parent and children, and run again"))


# --- tasks and directories ------------------------------------------------------------------------------------------


def _move_back(writer: executor.Executor, entry: journal.Entry) -> None:
    """Move the task to where it came from; out of a group that we made, everybody: children came in with a parent."""
    line = entry.line
    group, name = os.path.split(line.path)
    with writer.channel.parent(line.path) as directory:
        if directory.is_plain(name):
            directory.write(name, line.old or "")
            return
        if line.old is None:
            return
        everybody = _is_made_by_us(writer, group)
        with writer.channel.directory(line.old) as origin:
            for _ in range(_FORK_ROUNDS if everybody else 1):
                members = directory.read(name).split()
                if not everybody:
                    same = line.started == tasks.start_time(writer.root, line.task)
                    members = [line.task] if same and line.task in members else []
                for task in members:
                    with contextlib.suppress(ProcessLookupError):  # ended meanwhile
                        origin.write(name, f"{task}\n")
                if not members:
                    return


def _is_made_by_us(writer: executor.Executor, path: str) -> bool:
    return any(entry.line.op == "mkdir" and entry.path == path for entry in writer.journal.of_this_boot())


def _policy_back(writer: executor.Executor, entry: journal.Entry) -> None:
    task = int(entry.line.task)
    if tasks.policy(task) in entry.values:
        tasks.set_policy(task, entry.old or "other")


_UNDO = {"move_task": _move_back, "set_policy": _policy_back}


def _undo_other(writer: executor.Executor, entry: journal.Entry, result: Restoration) -> None:
    try:
        if entry.line.op != "move_task" and not writer.root.is_machine:
            raise channel.BadPath(_NOT_OURS)
        _UNDO[entry.line.op](writer, entry)
    except (OSError, ValueError, channel.BadPath) as error:
        number = getattr(error, "errno", None) or 0
        decision = errno_table.decide(number, os.path.basename(entry.path))
        if decision.state != "gone":
            result.failed.append(_left(writer, entry, f"{error}", "run restore again"))
            return
    result.restored.append(Restored(entry.path, entry.line.task, None))
    writer.journal.undone(entry.line.key)


def _end_cookie(writer: executor.Executor, entry: journal.Entry, result: Restoration) -> None:
    """Close an entry, unless its cookie could not be taken from all who have it."""
    if not writer.root.is_machine:
        result.failed.append(_left(writer, entry, _NOT_OURS, "run restore again"))
    elif not any(left.path.startswith("proc/") for left in result.failed):
        writer.journal.undone(entry.line.key)


def _take_cookies(writer: executor.Executor, result: Restoration) -> None:
    """Take our cookies from every process that has one: children have theirs from a parent that the journal knows."""
    cookies = task_writes.cookies(writer.root, writer.journal.of_this_boot())
    taken, refused = core_cookie.take(writer.root, cookies) if cookies else ([], {})
    result.restored += [Restored(f"proc/{pid}", str(pid), None) for pid in taken]
    for pid, why in refused.items():
        reason, remedy = f"its core-scheduling cookie stays: {why}", "end the process, and run restore again"
        result.failed.append(Left(f"proc/{pid}", None, None, reason, remedy))


def _remove(writer: executor.Executor, entry: journal.Entry, result: Restoration) -> None:
    """Remove a group that we made, if it is still that one and nobody is in it."""
    item = PlanItem(op="rmdir", path=entry.path, strategy=journal.UNDOING, reason="made by us")
    name = os.path.basename(entry.path)
    try:
        with writer.channel.parent(entry.path) as parent:
            inode = parent.inode_of(name)
    except OSError:
        inode = None
    if inode is None or (entry.values and entry.values[-1] != str(inode[1])):
        result.gone += 1
        writer.journal.undone(entry.line.key)
        return
    outcome = writer.carry_out(item)
    if outcome.state in ("written", "same"):
        result.restored.append(Restored(entry.path, None, None))
    else:
        reason = _who_is_in(writer, entry.path) or outcome.detail
        result.failed.append(_left(writer, entry, reason, "end the tasks in it and run restore again"))


def _who_is_in(writer: executor.Executor, path: str) -> str:
    """Return which processes are in a group, or an empty text where there is none or that cannot be read."""
    found = (writer.channel.peek(f"{path}/cgroup.procs") or "").split()
    if not found:
        return ""
    more = f" and {len(found) - NAMED_TASKS} more" if len(found) > NAMED_TASKS else ""
    return f"processes are in it: {', '.join(found[:NAMED_TASKS])}{more}"
