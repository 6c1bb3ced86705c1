"""Eviction on one host: an offline command is asked to end, and killed if it does not."""

import contextlib
import logging
import os
import signal
import threading

from cotenant.kernel import paths
from cotenant.kernel.outcome import Outcome
from cotenant.local import groups, managed
from cotenant.units.plan import PlanItem

log = logging.getLogger(__name__)

GRACE_SECONDS = 10.0


class Ending:
    """Ends every process of a managed group: SIGTERM, and SIGKILL to what is left after the grace."""

    def __init__(self, root: paths.Root, grace_seconds: float = GRACE_SECONDS) -> None:
        self._root = root
        self._grace_seconds = grace_seconds
        self._asked: set[str] = set()

    def __call__(self, item: PlanItem) -> Outcome:
        """Carry out an ``evict`` item whose pod is a managed group."""
        path = (item.new or "").removeprefix(f"{managed.NAMESPACE}/")
        members = groups.members_of(groups.mounts_of(self._root), path)
        if not members:
            self._asked.discard(path)
            return Outcome(item, "gone")
        if path in self._asked:
            return Outcome(item, "same", "was asked to end")
        self._asked.add(path)
        log.warning("%s is ended (processes %s): %s", path, ", ".join(map(str, members)), item.reason)
        _send(members, signal.SIGTERM)
        timer = threading.Timer(self._grace_seconds, self._kill, (path,))
        timer.daemon = True
        timer.start()
        return Outcome(item, "written", f"asked {len(members)} processes to end")

    def _kill(self, path: str) -> None:
        left = groups.members_of(groups.mounts_of(self._root), path)
        if left:
            log.warning("%s did not end within %g s: killed", path, self._grace_seconds)
        _send(left, signal.SIGKILL)
        self._asked.discard(path)


def _send(members: list[int], number: signal.Signals) -> None:
    for pid in members:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
