"""Ending a pod's containers by the runtime, where memory cannot wait for the Eviction API.

That is: a pod that was to go for memory is still there ten seconds later, a disruption budget refuses, or so little
memory is left that the kernel would choose a victim itself in a moment.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from cotenant.model.pod import Pod
from cotenant.node import errors
from cotenant.units.clock import Clock

if TYPE_CHECKING:
    from cotenant.node.runtime import Runtime

_log = logging.getLogger(__name__)

PATIENCE_SECONDS = 10.0
URGENT_AVAILABLE_RATIO = 0.03
AGAIN_SECONDS = 60.0
STRATEGY = "memory_evict"
"""Only memory is worth it: CPU that offline work keeps for longer is held back meanwhile."""


class Killing:
    """Kills a pod once in a while."""

    def __init__(self, runtime: "Runtime", clock: Clock) -> None:
        self._runtime = runtime
        self._clock = clock
        self._killed_at: dict[str, float] = {}

    def why_now(self, pod: Pod, strategy: str, waited_seconds: float, available_ratio: float | None) -> str:
        """Return why a pod that is to go for so long is to be killed now; empty when it is not.

        ``available_ratio`` is the share of the node's memory that is available, None where unknown.
        """
        if strategy != STRATEGY or self._was_killed(pod):
            return ""
        if available_ratio is not None and available_ratio < URGENT_AVAILABLE_RATIO:
            return f"less than {URGENT_AVAILABLE_RATIO:.0%} of the node's memory is available"
        return f"still there {waited_seconds:.0f} s after it was to go" if waited_seconds >= PATIENCE_SECONDS else ""

    def _was_killed(self, pod: Pod) -> bool:
        """Return whether the pod was killed a moment ago; one that came up again may have to be killed again."""
        now = self._clock.monotonic()
        self._killed_at = {uid: at for uid, at in self._killed_at.items() if now - at < AGAIN_SECONDS}
        return pod.uid in self._killed_at

    async def kill(self, pod: Pod, why: str) -> bool:
        """Stop all of a pod's running containers, sidecars too; return whether one was stopped."""
        if self._was_killed(pod):
            return False
        self._killed_at[pod.uid] = self._clock.monotonic()
        running = [one.container_id for one in pod.containers if one.running and one.container_id]
        try:
            stopped = await asyncio.to_thread(self._runtime.stop, running)
        except errors.RuntimeUnreachable as error:
            del self._killed_at[pod.uid]
            _log.warning("pod %s: %s: %s", pod.key, why, error)
            return False
        _log.warning("killed %d of %d containers of %s: %s", len(stopped), len(running), pod.key, why)
        return bool(stopped)
