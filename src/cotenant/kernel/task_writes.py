"""The executor's steps that change a task by a system call: its scheduling policy, and its core-scheduling cookie."""

import os

from cotenant.kernel import core_cookie, journal, paths, tasks
from cotenant.kernel.outcome import Outcome
from cotenant.units.plan import PlanItem


class TaskWrites:
    """Carries them out for the executor, which holds the lock; journalled like every write."""

    def __init__(self, root: paths.Root, kept: journal.Journal) -> None:
        self._root = root
        self._journal = kept

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
        """Give a process its group's cookie: of a process that has it by our journal, else a new one."""
        if not self._root.is_machine:
            return Outcome(item, "left_out", "the tasks of another root are not this machine's")
        task = _task(item)
        cookie = core_cookie.read(task)
        leader, known = self._cookie_leader(item.new)
        wanted = known if item.new else 0
        if cookie == wanted and (cookie or not item.new):
            return Outcome(item, "same", actual=str(cookie))
        if not commit:
            return Outcome(item, "planned", actual=str(cookie))
        key = self._change_of_task(item, "")
        if not item.new:
            core_cookie.clear(task)
        elif leader is None:
            core_cookie.create(task)
        else:
            core_cookie.share(leader, task)
        self._journal.done(key, item.new)
        return Outcome(item, "written", actual=item.new)

    def _cookie_leader(self, group: str | None) -> tuple[int | None, int]:
        for entry in self._journal.of_this_boot():
            line = entry.line
            alive = line.op == "core_cookie" and tasks.start_time(self._root, line.task) == line.started != ""
            if alive and group in entry.values:
                cookie = core_cookie.read(int(line.task))
                if cookie:
                    return int(line.task), cookie
        return None, 0

    def _change_of_task(self, item: PlanItem, old: str) -> journal.Key:
        task = str(_task(item))
        started = tasks.start_time(self._root, task)
        return self._journal.change(item, item.path or "", (0, 0), old, task=task, started=started)


def _task(item: PlanItem) -> int:
    word = os.path.basename(item.path or "")
    return int(word) if word.isdigit() else 0
