"""The only writer: read, compare, write, read back; journalled before, and every refusal means one thing.

A steady state costs reads only: nothing is locked, journalled or written while every file holds what the plan says.
"""

import errno
import os
import time
from collections.abc import Callable, Sequence

from cotenant.kernel import (
    channel,
    errno_table,
    group_writes,
    journal,
    lock,
    paths,
    refusals,
    rewriter,
    task_writes,
    tasks,
)
from cotenant.kernel.outcome import EvictCallback, Outcome
from cotenant.model.enforcement import Contest
from cotenant.units import contents
from cotenant.units.clock import Clock, SystemClock
from cotenant.units.plan import PlanItem

RETRIES = 3
RETRY_SECONDS = 0.005

STICKY_FILES = frozenset({"cpu.qos_level"})
PRIORITY_FILES = STICKY_FILES | {
    "memory.qos_level",
    "cpu.bvt_warp_ns",
    "cpu.identity",
    "cpu.priority",
    "cpu.offline",
    "cpu.idle",
}
"""Never written in the root of a hierarchy."""

TASK_OPS = frozenset({"set_policy", "core_cookie"})
"""Steps that are system calls on a task, not writes to a file."""

LOST_BESIDE: dict[tuple[str, str], tuple[str, ...]] = {
    ("cpu.idle", "1"): ("cpu.shares", "cpu.weight"),
    ("cpu.cfs_quota_us", "-1"): ("cpu.cfs_burst_us",),
}
"""Which files of the same group forget their value when a value is written: idle forgets the weight, and openEuler's
burst goes with the quota."""

OWNED_BY_OTHERS = frozenset({"cpu.cfs_quota_us", "cpu.max", "memory.limit_in_bytes", "memory.max"})
"""Files that the kubelet changes when a pod is resized: what it wrote last is what a restore gives back."""

__all__ = ["EvictCallback", "Executor", "Outcome"]


class Executor:
    """Carries out plans on one root's kernel files."""

    def __init__(
        self,
        root: paths.Root,
        *,
        dry_run: bool = False,
        evict: EvictCallback | None = None,
        clock: Clock | None = None,
        write: Callable[[int, bytes], int] = os.write,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.root = root
        self.dry_run = dry_run
        self.clock = clock or SystemClock()
        self.channel = channel.Channel(root, write)
        self.journal = journal.Journal(root, write)
        self.rewrites = rewriter.Rewrites(self.clock)
        self.writes_total = 0
        """Kernel files written since the start, for a metric: it stands still in a steady state."""
        self._tasks = task_writes.TaskWrites(root, self.journal)
        self._evict = evict
        self._sleep = sleep
        self._refusals = refusals.Refusals(self.clock)
        self._groups = group_writes.GroupWrites(root, self.channel, self.journal, self._refusals, self._write_retrying)
        self._ours: dict[str, tuple[tuple[int, int], str]] = {}
        self._tops = frozenset(root.relative(mount.path) for mount in root.cgroup_mounts())
        self._load()

    def _load(self) -> None:
        self.journal.refresh()
        for entry in self.journal.of_this_boot():
            if entry.line.op == "write" and entry.complete and entry.values and not entry.line.aside:
                self._ours[entry.path] = ((entry.line.dev, entry.line.ino), entry.values[-1])

    # --- what others ask --------------------------------------------------------------------------------------------

    def journalled(self) -> dict[str, str | None]:
        """Return the files that hold something because somebody enforces, with their content before that.

        What the start of a command gave its group is the group's own, and no business of a strategy's. A process that
        was given a core-scheduling cookie is there as ``proc/<pid>``: it had none.
        """
        self.journal.refresh()
        found: dict[str, str | None] = {}
        inodes: dict[str, tuple[int, int] | None] = {}
        for entry in self.journal.of_this_boot():
            if entry.line.op == "core_cookie":
                found[entry.path] = ""
            if entry.line.op != "write" or not entry.is_held:
                continue
            directory = os.path.dirname(entry.path)
            if directory not in inodes:
                inodes[directory] = self._quick_inode(directory)
            known = (entry.line.dev, entry.line.ino)
            if inodes[directory] is not None and known in (inodes[directory], (0, 0)):
                found[entry.path] = None if entry.own is None else entry.own.removesuffix("\n")
        return found

    def _quick_inode(self, directory: str) -> tuple[int, int] | None:
        """Return a directory's device and inode by one call: for telling only, a write looks at what it has opened."""
        try:
            status = os.stat(self.root.directory / directory)
        except OSError:
            return None
        return (status.st_dev, status.st_ino)

    @property
    def remembered(self) -> int:
        """How many files' values are kept in memory, to tell when somebody else has written them."""
        return len(self._ours)

    def contested(self) -> list[Contest]:
        """Return the files that somebody keeps writing over: protect on another level."""
        return self.rewrites.contests()

    def inode_of_parent(self, path: str) -> tuple[int, int] | None:
        """Return what a path's directory is known by now, or None where it is gone."""
        try:
            with self.channel.parent(path) as directory:
                return directory.inode
        except (OSError, channel.BadPath):
            return None

    # --- carrying out -----------------------------------------------------------------------------------------------

    def apply(self, items: Sequence[PlanItem]) -> list[Outcome]:
        """Carry out a plan in its order and return what became of each item.

        :raises Locked: if another process keeps writing.
        :raises RunDirectoryUnusable: if there is no place for lock and journal.
        """
        outcomes = self._examine(items)
        if self.dry_run or all(outcome.state != "planned" for outcome in outcomes):
            return outcomes
        if any(outcome.state == "planned" and outcome.item.op != "evict" for outcome in outcomes):
            with lock.writing(self.root, sleep=self._sleep):
                self.journal.refresh()
                outcomes = [
                    # What is the same, or refused, now may not be after an earlier item: it is looked at in its turn.
                    self.carry_out(outcome.item) if outcome.state in ("planned", "same", "held") else outcome
                    for outcome in outcomes
                ]
                if self.journal.is_large():
                    self._compact()
        return [self._do_evict(o.item) if o.item.op == "evict" and o.state == "planned" else o for o in outcomes]

    def _compact(self) -> None:
        keeping = self._tasks.keeping()
        moves = self._tasks.last_moves()

        def is_alive(entry: journal.Entry) -> bool:
            if entry.line.op in TASK_OPS:
                return keeping(entry)
            if self.inode_of_parent(entry.path) != (entry.line.dev, entry.line.ino):
                return False
            return entry.line.op != "move_task" or entry.line.key in moves

        self.journal.compact(is_alive)
        # Groups come and go: what is known of their files is no more than what the journal keeps.
        kept = {entry.path for entry in self.journal.of_this_boot()}
        self._ours = {path: ours for path, ours in self._ours.items() if path in kept}
        self.rewrites.keep(kept)

    def _examine(self, items: Sequence[PlanItem]) -> list[Outcome]:
        """Return ``planned`` for each item that would change something, else why not; reads only."""
        made: list[str] = []
        outcomes = []
        for item in items:
            if any((item.path or "").startswith(path) for path in made):
                outcomes.append(Outcome(item, "planned"))
                continue
            outcome = self._do(item, commit=False)
            if item.op == "mkdir" and outcome.state == "planned":
                made.append(f"{item.path}/")
            outcomes.append(outcome)
        return outcomes

    def carry_out(self, item: PlanItem) -> Outcome:
        """Do one item now. The caller holds the lock and has refreshed the journal."""
        return self._do(item, commit=True)

    def _do(self, item: PlanItem, *, commit: bool) -> Outcome:
        if item.op == "evict":
            # Done when the lock is free again: it waits for an API server.
            return Outcome(item, "planned")
        operation = {
            "write": self._write,
            "mkdir": self._groups.mkdir,
            "rmdir": self._groups.rmdir,
            "move_task": self._groups.move_task,
            "set_policy": self._tasks.set_policy,
            "core_cookie": self._tasks.set_cookie,
        }[item.op]
        try:
            return self._on_task(operation, item, commit) if item.op in TASK_OPS else operation(item, commit)
        except channel.BadPath as error:
            return Outcome(item, "refused", str(error))
        except journal.JournalUnusable as error:
            return Outcome(item, "failed", str(error))
        except OSError as error:
            return self._refusal(item, error)

    def _do_evict(self, item: PlanItem) -> Outcome:
        if self._evict is None:
            return Outcome(item, "left_out", "nobody here can evict pods: no API server")
        return self._evict(item)

    # --- one write --------------------------------------------------------------------------------------------------

    def _write(self, item: PlanItem, commit: bool) -> Outcome:
        path, new = item.path or "", item.new or ""
        name = os.path.basename(path)
        with self.channel.parent(path) as directory:
            if not directory.has(name):
                return self._without_file(item, directory)
            current = directory.read(name) if directory.readable(name) else None
            forbidden = self._forbidden(item, current)
            if forbidden:
                return Outcome(item, "left_out", forbidden, actual=_stripped(current))
            if current is not None and contents.same(name, new, current):
                self._refusals.release(path)
                return Outcome(item, "same", actual=_stripped(current))
            # An undo is tried twice: what a neighbour stood in the way of is accepted after that one.
            if item.strategy != journal.UNDOING and self._refusals.is_held(path, new, directory.inode):
                return Outcome(item, "held", actual=_stripped(current))
            rewritten = self._was_rewritten(path, current, directory.inode)
            if not commit:
                return Outcome(item, "planned", actual=_stripped(current), rewritten=rewritten)
            if rewritten:
                self.rewrites.seen(path, _stripped(current) or "")
            read = self._write_journalled(item, directory, name, current)
            self._refusals.written(path)
            if read is None or contents.same(name, new, read):
                return Outcome(item, "written", actual=_stripped(read), rewritten=rewritten)
            self._refusals.hold(path, new, directory.inode, errno_table.REFUSED)
            detail = f"the file reads {_stripped(read)!r} after {new!r} was written"
            return Outcome(item, "not_taken", detail, actual=_stripped(read), rewritten=rewritten)

    def _write_journalled(
        self, item: PlanItem, directory: channel.Directory, name: str, current: str | None
    ) -> str | None:
        """Write one file and return what it reads then, or None where it cannot be read."""
        path, text = item.path or "", f"{item.new or ''}\n"
        if current is None:
            # What only takes commands (memory.reclaim) has no state to give back.
            self._write_retrying(directory, name, text)
            return None
        if item.strategy != journal.UNDOING:
            self._journal_losses(item, directory, name)
        key = self.journal.change(item, path, directory.inode, current, rebased=self._is_anothers(path, name, current))
        try:
            self._write_retrying(directory, name, text)
        except OSError:
            self.journal.done(key, current)
            if self.journal.entries[key].old == current == self.channel.peek(path):
                self.journal.undone(key)  # nothing is there because of us
            raise
        read = directory.read(name)
        self.journal.done(key, _stripped(read))
        if self.journal.entries[key].old == read:
            self.journal.undone(key)
        taken = contents.same(name, item.new or "", read)
        self._ours[path] = (directory.inode, (item.new if taken else _stripped(read)) or "")
        return read

    def _journal_losses(self, item: PlanItem, directory: channel.Directory, name: str) -> None:
        """Record what a write is about to change beside its own file: in its group, or below it where it is pushed."""
        group = os.path.dirname(item.path or "")
        for beside in LOST_BESIDE.get((name, item.new or ""), ()):
            if directory.has(beside):
                self.journal.aside(item, f"{group}/{beside}", directory.inode, directory.read(beside))
        if name in STICKY_FILES:
            for below in self.channel.directories_below(group):
                with self.channel.directory(below) as child:
                    if child.has(name):
                        self.journal.aside(item, f"{below}/{name}", child.inode, child.read(name))

    def _is_anothers(self, path: str, name: str, current: str) -> bool:
        """Return whether a file holds what its owner wrote after us."""
        ours = self._ours.get(path)
        return name in OWNED_BY_OTHERS and ours is not None and not contents.same(name, ours[1], current)

    def _write_retrying(self, directory: channel.Directory, name: str, text: str) -> None:
        for attempt in range(1, RETRIES + 1):
            try:
                directory.write(name, text)
            except OSError as error:
                if errno_table.decide(error.errno or 0, name).state != "busy" or attempt == RETRIES:
                    raise
                self._sleep(RETRY_SECONDS * attempt)
            else:
                self.writes_total += 1
                return

    def _forbidden(self, item: PlanItem, current: str | None) -> str | None:
        """Return why a write must not even be tried, or None."""
        directory, _, name = (item.path or "").rpartition("/")
        if name in PRIORITY_FILES and directory in self._tops:
            return "the root of a hierarchy is never written"
        level = _stripped(current)
        if name in STICKY_FILES and level not in (None, "", "0") and level != item.new:
            return f"level {level} stays for the life of the group: recreate the pod"
        return None

    def _was_rewritten(self, path: str, current: str | None, inode: tuple[int, int]) -> bool:
        """Return whether a file does not hold what was written last, whatever it is to hold now."""
        ours = self._ours.get(path)
        return (
            current is not None
            and ours is not None
            and ours[0] == inode
            and not contents.same(os.path.basename(path), ours[1], current)
        )

    # --- refusals ---------------------------------------------------------------------------------------------------

    def _without_file(self, item: PlanItem, directory: channel.Directory) -> Outcome:
        path = item.path or ""
        if self._refusals.is_held(path, None, directory.inode):
            return Outcome(item, "held")
        self._refusals.hold(path, None, directory.inode, errno_table.NO_FILE)
        return Outcome(item, "refused", errno_table.NO_FILE.meaning, errno.ENOENT)

    def _refusal(self, item: PlanItem, error: OSError) -> Outcome:
        path = item.path or ""
        number = error.errno or errno.EIO
        decision = errno_table.decide(number, os.path.basename(path))
        if decision.state == "gone":
            self._forget(path)
        else:
            inode = self._task(item) if item.op in TASK_OPS else self.inode_of_parent(path)
            self._refusals.hold(path, item.new, inode or (0, 0), decision)
        return Outcome(item, decision.state, f"{path}: {os.strerror(number)}: {decision.meaning}", number)

    def _forget(self, path: str) -> None:
        self._refusals.release(path)
        self._ours.pop(path, None)
        self.rewrites.forget(path)

    # --- tasks ------------------------------------------------------------------------------------------------------

    def _on_task(self, operation: Callable[[PlanItem, bool], Outcome], item: PlanItem, commit: bool) -> Outcome:
        path = item.path or ""
        if path in self._refusals and self._refusals.is_held(path, item.new, self._task(item)):
            return Outcome(item, "held")
        return operation(item, commit)

    def _task(self, item: PlanItem) -> tuple[int, int]:
        """Return what tells a task from a later one with its number, in the place of a directory's inode."""
        return (0, int(tasks.start_time(self.root, os.path.basename(item.path or "")) or 0))


def _stripped(text: str | None) -> str | None:
    return None if text is None else text.strip()
