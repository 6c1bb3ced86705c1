"""The executor's steps that change a task by a system call: its scheduling policy, and its core-scheduling cookie.

A cookie goes on to what its process starts, so what is ours is told by the cookies that the journal holds, not by its
processes.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping

from cotenant.kernel import core_cookie, journal, paths, tasks
from cotenant.kernel.outcome import Outcome
from cotenant.units.plan import PlanItem


class TaskWrites:
    """Carries them out for the executor, which holds the lock; journalled like every write."""

    def __init__(self, root: paths.Root, kept: journal.Journal) -> None:
        self._root = root
        self._journal = kept
        self._known_cookies: Mapping[int, str] = {}
        self._cookies_at = -1

    def set_policy(self, item: PlanItem, commit: bool) -> Outcome:
        """Give a task its scheduling policy."""
        if not self._root.is_machine:
            return Outcome(item, "left_out", "the tasks of another root are not this machine's")
        task = _task(item)
        old = tasks.policy(task)
        if old == item.new:
            return Outcome(item, "same", actual=old)
        if not commit:
            return Outcome(item, "planned", actual=old)
        key = self._change_of_task(item, old)
        tasks.set_policy(task, item.new or "")
        self._journal.done(key, tasks.policy(task))
        return Outcome(item, "written", actual=item.new)

    def set_cookie(self, item: PlanItem, commit: bool) -> Outcome:
        """Give a process its group's cookie: of a process that has it, else a new one; an empty name takes it away.

        A cookie that somebody else has given (a container runtime does, where it is told to) stays.
        """
        if not self._root.is_machine:
            return Outcome(item, "left_out", "the tasks of another root are not this machine's")
        task = _task(item)
        cookie = core_cookie.read(task)
        ours = self._cookies()
        group = ours.get(cookie)
        settled = group == item.new if item.new else cookie == 0
        if settled:
            return Outcome(item, "same", actual=str(cookie))
        if cookie and group is None:
            return Outcome(item, "left_out", "the process has a cookie that is not of our making", actual=str(cookie))
        if not commit:
            return Outcome(item, "planned", actual=str(cookie))
        key = self._change_of_task(item, "")
        self._give(task, item.new, ours)
        given = core_cookie.read(task)
        self._journal.done(key, f"{given:#x} {item.new}" if item.new else None)
        if bool(given) != bool(item.new):
            return Outcome(item, "not_taken", f"the cookie is {given} after the write", actual=str(given))
        return Outcome(item, "written", actual=str(given))

    def _give(self, task: int, group: str | None, ours: Mapping[int, str]) -> None:
        if not group:
            core_cookie.clear(task)
            return
        wanted = {cookie for cookie, name in ours.items() if name == group}
        leader = next((pid for pid, cookie in core_cookie.held(self._root).items() if cookie in wanted), None)
        if leader is None:
            core_cookie.create(task)
        else:
            core_cookie.share(leader, task)

    def _cookies(self) -> Mapping[int, str]:
        if self._cookies_at != self._journal.changes:
            self._known_cookies = cookies(self._root, self._journal.of_this_boot())
            self._cookies_at = self._journal.changes
        return self._known_cookies

    def keeping(self) -> Callable[[journal.Entry], bool]:
        """Return which entries of tasks are still needed: the task lives, or others have its cookie from it."""
        entries = list(self._journal.of_this_boot())
        in_use = set(core_cookie.held(self._root).values()) if any(e.line.op == "core_cookie" for e in entries) else ()

        def is_needed(entry: journal.Entry) -> bool:
            alive = tasks.start_time(self._root, entry.line.task) == entry.line.started != ""
            return alive or any(cookie in in_use for cookie, _ in _given(entry))

        return is_needed

    def last_moves(self) -> set[journal.Key]:
        """Return the keys of moved tasks that live, and of the last one of a group where none does.

        A group that we made still holds their children, and where it has them from is known by one of its entries.
        """
        found: dict[str, set[journal.Key]] = {}
        last: dict[str, journal.Key] = {}
        for entry in self._journal.of_this_boot():
            if entry.line.op != "move_task":
                continue
            last[entry.path] = entry.line.key
            if not entry.line.started or tasks.start_time(self._root, entry.line.task) == entry.line.started:
                found.setdefault(entry.path, set()).add(entry.line.key)
        return {key for path, one in last.items() for key in found.get(path, {one})}

    def _change_of_task(self, item: PlanItem, old: str) -> journal.Key:
        task = str(_task(item))
        started = tasks.start_time(self._root, task)
        return self._journal.change(item, item.path or "", (0, 0), old, task=task, started=started)


def _task(item: PlanItem) -> int:
    word = os.path.basename(item.path or "")
    return int(word) if word.isdigit() else 0


def cookies(root: paths.Root, entries: Iterable[journal.Entry]) -> dict[int, str]:
    """Return the cookies that a journal's entries show as given by us, with their group's name.

    That of a write whose result was not seen is what its process has now. Another root's are not this machine's.
    """
    found: dict[int, str] = {}
    for entry in entries if root.is_machine else ():
        if entry.line.op != "core_cookie":
            continue
        found.update(_given(entry))
        line = entry.line
        if not entry.complete and entry.values and tasks.start_time(root, line.task) == line.started != "":
            with contextlib.suppress(OSError):  # it ended meanwhile
                if cookie := core_cookie.read(int(line.task)):
                    found.setdefault(cookie, entry.values[-1])
    return found


def _given(entry: journal.Entry) -> Iterator[tuple[int, str]]:
    """Yield the cookies that were read back after a write, with the group's name: ``0x1f offline``."""
    if entry.line.op != "core_cookie":
        return
    for value in entry.values:
        number, separator, group = value.partition(" ")
        if separator:
            yield int(number, 16), group
