"""The executor's steps that make and remove groups, and put tasks into them."""

import os
from collections.abc import Callable

from cotenant.kernel import channel, journal, paths, refusals, tasks
from cotenant.kernel.outcome import Outcome
from cotenant.units.plan import PlanItem

Write = Callable[[channel.Directory, str, str], None]


class GroupWrites:
    """Carries them out for the executor, which holds the lock and gives its own way to ``write`` a file."""

    def __init__(
        self,
        root: paths.Root,
        files: channel.Channel,
        kept: journal.Journal,
        held: refusals.Refusals,
        write: Write,
    ) -> None:
        self._root = root
        self._channel = files
        self._journal = kept
        self._refusals = held
        self._write = write

    def mkdir(self, item: PlanItem, commit: bool) -> Outcome:
        """Make a group; it is known as ours by the inode that it gets."""
        path = item.path or ""
        name = os.path.basename(path)
        with self._channel.parent(path) as parent:
            if parent.is_directory(name):
                return Outcome(item, "same")
            if self._refusals.is_held(path, item.new, parent.inode):
                return Outcome(item, "held")
            if not commit:
                return Outcome(item, "planned")
            key = self._journal.change(item, path, parent.inode, None)
            try:
                parent.mkdir(name)
            except OSError:
                self._journal.undone(key)
                raise
            made = parent.inode_of(name)
            self._journal.done(key, None if made is None else str(made[1]))
        return Outcome(item, "written")

    def rmdir(self, item: PlanItem, commit: bool) -> Outcome:
        """Remove a group that we made, and forget what we wrote in it."""
        path = item.path or ""
        name = os.path.basename(path)
        with self._channel.parent(path) as parent:
            group = parent.inode_of(name)
            if group is None:
                return Outcome(item, "same")
            if not commit:
                return Outcome(item, "planned")
            key = self._journal.key(path, parent.inode, "mkdir")
            if key not in self._journal.entries:
                return Outcome(item, "left_out", f"{path}: only groups that cotenant made are removed")
            made = self._journal.entries[key].values
            if made and made[-1] != str(group[1]):
                self._journal.undone(key)
                return Outcome(item, "left_out", f"{path}: somebody made another group of that name")
            parent.rmdir(name)
            self._journal.undone(key)
        for entry in list(self._journal.of_this_boot()):  # what was in it went with it
            if os.path.dirname(entry.path) == path and (entry.line.dev, entry.line.ino) == group:
                self._journal.undone(entry.line.key)
        return Outcome(item, "written")

    def move_task(self, item: PlanItem, commit: bool) -> Outcome:
        """Put a task into a group; where it came from is what a restore gives back."""
        path, task = item.path or "", (item.new or "").strip()
        name = os.path.basename(path)
        with self._channel.parent(path) as directory:
            members = directory.read(name)
            if task in members.split():
                return Outcome(item, "same")
            if self._refusals.is_held(path, task, directory.inode):
                return Outcome(item, "held")
            if not commit:
                return Outcome(item, "planned")
            # On an ordinary file system the list is the state; in a kernel's, where the task came from is.
            plain = directory.is_plain(name)
            old = members if plain else item.old or tasks.group_of(self._root, task, path)
            started = tasks.start_time(self._root, task)
            key = self._journal.change(item, path, directory.inode, old, task=task, started=started)
            try:
                self._write(directory, name, f"{task}\n")
            except OSError:
                if not plain:  # else the list may have been emptied
                    self._journal.undone(key)
                raise
            self._journal.done(key, None)
        return Outcome(item, "written")
