"""What was written to the kernel and what was there before: lines appended before each write.

A change is known by boot, path and the inode of the directory: neither the values nor this file's truth outlive a
boot or a group. ``run/cotenant`` is a tmpfs, so nothing waits for a disk. A line is one write(2); a torn last line is a
change that did not happen.
"""

import contextlib
import dataclasses
import errno
import os
import stat
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from cotenant.kernel import errors, paths
from cotenant.units.malformed import MALFORMED
from cotenant.units.plan import Op, PlanItem

COMPACTED_ABOVE_BYTES = 1 << 20
STARTING = "run"
"""The strategy of items that set a group up for a command: what they write is the group's own to whoever enforces."""
UNDOING = "restore"
"""The strategy of items that undo: what they lose beside themselves was lost already, and they may go unrecorded."""


class JournalUnusable(errors.KernelError):
    """The journal cannot be read, or a line cannot be added to it: then nothing new is written to the kernel."""


Key = tuple[str, str, int, int, str, Op]
"""Boot, path, device and inode of the directory, the task for what is done to one, and what is done."""


class Line(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One line. ``change`` comes before a write, ``done`` after it with what was read back, ``undone`` ends a key."""

    kind: Literal["change", "done", "undone"]
    boot: str
    path: str
    dev: int
    ino: int
    task: str = ""
    """The id of the task that is moved or whose policy is set."""
    op: Op = "write"
    old: str | None = None
    """The whole content before, final newline and all; for a task, the group or policy that it had."""
    values: tuple[str, ...] = ()
    """What was written, or read back."""
    complete: bool = True
    rebased: bool = False
    """The file's owner has written since our last write: ``old`` is what it wrote, and counts from now on."""
    aside: bool = False
    """Not written by us, but lost by what we wrote beside it (the weight of a group that is made idle)."""
    strategy: str = ""
    reason: str = ""
    given: str | None = None
    """What the start of the group's command had put there, while somebody who enforces holds the file."""
    irreversible: bool = False
    started: str = ""
    """The task's start time, which tells it from a later one with the same id."""

    @property
    def key(self) -> Key:
        return (self.boot, self.path, self.dev, self.ino, self.task, self.op)


@dataclasses.dataclass(slots=True)
class Entry:
    """Everything that is known of one key: what was there first, and every value that may be there because of us."""

    line: Line
    values: list[str]
    complete: bool
    """False while a write may have happened whose result was not seen."""

    @property
    def path(self) -> str:
        return self.line.path

    @property
    def old(self) -> str | None:
        return self.line.old

    @property
    def own(self) -> str | None:
        """What the file held before anybody enforced: a command's start gives its group files of their own."""
        return self.old if self.line.given is None else self.line.given

    @property
    def is_held(self) -> bool:
        """Return whether somebody who enforces wrote it, and not only the start of a command."""
        return self.line.strategy != STARTING

    @property
    def irreversible(self) -> bool:
        return self.line.irreversible


class Journal:
    """The file and what it says. Only the holder of the lock appends; anybody may read."""

    def __init__(self, root: paths.Root, write: Callable[[int, bytes], int] = os.write) -> None:
        self.path = root.run_dir / "journal"
        self.boot = boot_id(root)
        self.entries: dict[Key, Entry] = {}
        self.unreadable_lines = 0
        self.lost_marks = 0
        """Marks that there was no room for. A restore then finds a change that it need not make, never one too few."""
        self.changes = 0
        """Grows with every change of :attr:`entries`."""
        self._write = write
        self._seen: tuple[int, int, int] | None = None
        self._torn = False
        self._compacted_bytes = 0

    def refresh(self) -> None:
        """Read the file again if another process has changed it.

        :raises JournalUnusable: if it is there and cannot be read.
        """
        try:
            status = os.stat(self.path, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode):
                raise JournalUnusable(f"{self.path}: not a plain file: move it away")
            seen = (status.st_ino, status.st_size, status.st_mtime_ns)
            if seen == self._seen:
                return
            data = self.path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            self._forget()
            return
        except OSError as error:
            raise JournalUnusable(f"{self.path}: {error.strerror}; run as the user who wrote it, as root") from error
        self._forget()
        self.unreadable_lines = 0
        self._torn = bool(data) and not data.endswith(b"\n")
        for text in data.splitlines():
            try:
                self._take(msgspec.json.decode(text, type=Line))
            except MALFORMED:
                self.unreadable_lines += 1
        self._seen = seen

    def _forget(self) -> None:
        self.entries.clear()
        self.changes += 1
        self._seen = None

    def _take(self, line: Line) -> None:
        self.changes += 1
        entry = self.entries.get(line.key)
        if line.kind == "undone":
            self.entries.pop(line.key, None)
        elif line.kind == "done":
            if entry is not None:
                entry.values += line.values
                entry.complete = True
                given = entry.line.given
                if given is not None and line.values and line.values[-1] == given.strip():
                    entry.line = msgspec.structs.replace(entry.line, given=None, strategy=STARTING)
        elif entry is None:
            self.entries[line.key] = Entry(line, list(line.values), line.complete)
        else:
            entry.values += line.values
            entry.complete = line.complete
            if not entry.is_held and line.strategy not in (STARTING, UNDOING):
                entry.line = msgspec.structs.replace(
                    entry.line, given=line.old, strategy=line.strategy, reason=line.reason
                )
            if line.rebased:
                entry.line = msgspec.structs.replace(entry.line, old=line.old, given=None)
            if line.irreversible and not entry.line.irreversible:
                entry.line = msgspec.structs.replace(entry.line, irreversible=True, reason=line.reason)

    def key(self, path: str, inode: tuple[int, int], op: Op) -> Key:
        return (self.boot, path, *inode, "", op)

    def change(
        self,
        item: PlanItem,
        path: str,
        inode: tuple[int, int],
        old: str | None,
        *,
        task: str = "",
        started: str = "",
        rebased: bool = False,
    ) -> Key:
        """Record what is about to be done; return the key for :meth:`done`.

        ``old`` counts for the first change of a key only, unless it is ``rebased``. What undoes a recorded change is
        let pass when there is no room for its line: what it writes is known by the change itself.

        :raises JournalUnusable: if the line cannot be added.
        """
        line = Line(
            kind="change",
            boot=self.boot,
            path=path,
            dev=inode[0],
            ino=inode[1],
            task=task,
            op=item.op,
            old=old,
            values=() if item.new is None else (item.new,),
            complete=False,
            rebased=rebased,
            strategy=item.strategy,
            reason=item.reason,
            irreversible=item.irreversible,
            started=started,
        )
        try:
            self._append(line)
        except JournalUnusable:
            if item.strategy != UNDOING or line.key not in self.entries:
                raise
            self.lost_marks += 1
        return line.key

    def aside(self, item: PlanItem, path: str, inode: tuple[int, int], old: str) -> None:
        """Record what a write is about to lose beside its own file, unless it is known already."""
        if self.key(path, inode, "write") in self.entries:
            return
        reason = f"lost by {item.path}; {item.reason}"
        line = Line(
            kind="change", boot=self.boot, path=path, dev=inode[0], ino=inode[1], old=old, aside=True,
            strategy=item.strategy, reason=reason,
        )  # fmt: skip
        self._append(line)

    def done(self, key: Key, read: str | None, inode: tuple[int, int] | None = None) -> None:
        """Record that a change was made and what the file said then."""
        self._mark(_mark("done", key, () if read is None else (read,)))

    def undone(self, key: Key) -> None:
        """Record that what was there before is there again."""
        self._mark(_mark("undone", key))

    def _mark(self, line: Line) -> None:
        """Append what comes after a write; without it the change counts as one whose result was not seen."""
        try:
            self._append(line)
        except JournalUnusable:
            self.lost_marks += 1
            self._take(line)

    def _append(self, line: Line) -> None:
        data = msgspec.json.encode(line) + b"\n"
        try:
            status = self._append_bytes(b"\n" + data if self._torn else data)
        except OSError as error:
            raise JournalUnusable(f"{self.path}: {error.strerror}: nothing is written without a journal") from error
        self._torn = False
        self._seen = (status.st_ino, status.st_size, status.st_mtime_ns)
        self._take(line)

    def _append_bytes(self, data: bytes) -> os.stat_result:
        """Append some bytes, all or none of them, and return the file's status then."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.path, flags, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if self._write(descriptor, data) != len(data):
                os.ftruncate(descriptor, size)  # the next line must not be lost with this one
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)

    def compact(self, keep: Callable[[Entry], bool] = lambda entry: True) -> None:
        """Write the file anew with one line a key, without the keys that are not to be kept; remove it when empty.

        Where there is no room for it, the file stays as it is.
        """
        kept = {key: entry for key, entry in self.entries.items() if keep(entry)}
        if not kept:
            self.path.unlink(missing_ok=True)
            self._forget()
            return
        lines = [
            msgspec.structs.replace(entry.line, values=tuple(dict.fromkeys(entry.values)), complete=entry.complete)
            for entry in kept.values()
        ]
        beside = self.path.with_suffix(".new")
        try:
            beside.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
            os.replace(beside, self.path)
        except OSError:
            with contextlib.suppress(OSError):
                beside.unlink()
            self._compacted_bytes = self.path.stat().st_size  # tried again when it has doubled
            return
        self._seen = None
        self.refresh()
        self._compacted_bytes = self.path.stat().st_size

    def is_large(self) -> bool:
        """Return whether compaction is worth while: past a bound, and twice as large as it was after the last one."""
        return self._seen is not None and self._seen[1] > max(COMPACTED_ABOVE_BYTES, 2 * self._compacted_bytes)

    def of_this_boot(self) -> Iterator[Entry]:
        """Yield the entries of this boot, oldest first."""
        return (entry for entry in self.entries.values() if entry.line.boot == self.boot)


def _mark(kind: Literal["done", "undone"], key: Key, values: tuple[str, ...] = ()) -> Line:
    boot, path, dev, ino, task, op = key
    return Line(kind=kind, boot=boot, path=path, dev=dev, ino=ino, task=task, op=op, values=values)


def boot_id(root: paths.Root) -> str:
    """Return the boot's id, or the empty id where it cannot be read."""
    try:
        return (root.proc / "sys/kernel/random/boot_id").read_text(errors="replace").strip()
    except OSError:
        return ""
