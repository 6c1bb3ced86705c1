"""A node that no longer enforces gives back what was written: a limit that nobody adjusts any more is wrong soon.

Only a change of mode does this. SIGTERM, a restart or an upgrade leave limits in force: a mark beside the journal,
which outlives the agent but not the boot, says that they are this agent's own.
"""

import logging

from cotenant.api.report import Mode
from cotenant.kernel import enforcing, lock, paths
from cotenant.units.clock import Clock

_log = logging.getLogger(__name__)

RETRY_SECONDS = 30.0


class Releasing:
    """Watches the mode. :attr:`failures` counts files that could not be put back; :attr:`problem` says what is left."""

    def __init__(self, root: paths.Root, enforcer: enforcing.Enforcer, clock: Clock) -> None:
        self._mark = root.run_dir / "node-enforces"
        self._enforcer = enforcer
        self._clock = clock
        self._retry_at = 0.0
        self._failed: set[str] = set()
        self.failures = 0
        self.problem = ""

    def follow(self, mode: Mode) -> None:
        """Release what is held when the mode is no longer ``enforce``, again while something cannot be put back."""
        if mode == "enforce":
            self._failed, self.problem = set(), ""
            self._set_mark()
        elif self._clock.monotonic() >= self._retry_at and self._mark.exists():
            self._release(mode)

    def _set_mark(self) -> None:
        if not self._mark.exists():
            try:
                self._mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._mark.touch()
            except OSError as error:
                self.problem = f"{self._mark}: {error.strerror}: limits would outlive mode enforce"

    def _release(self, mode: Mode) -> None:
        self._retry_at = self._clock.monotonic() + RETRY_SECONDS
        if self._enforcer.conflict:
            self.problem = f"limits are not released while {self._enforcer.conflict} runs here"
            return
        try:
            done = self._enforcer.restore()
        except lock.Locked as error:
            self.problem = f"limits are not released: {error}"
            return
        failed = {left.path for left in done.failed}
        self.failures += len(failed - self._failed)
        self._failed |= failed
        _log.info("mode %s: %d values put back, %d not", mode, len(done.restored), len(failed))
        if failed:
            self.problem = f"{len(failed)} values could not be put back: {min(failed)}"
            return
        self.problem = ""
        self._mark.unlink(missing_ok=True)
