"""Protection is never given up: when somebody keeps writing over a quota, it moves to where they do not write.

From the directory of offline work to each group's own quota, from there to CPU sets. After ten minutes the first place
is tried again.
"""

import msgspec

from cotenant.model.policy import NodeSlo
from cotenant.units import ordering

RETRY_SECONDS = 600.0


class Contesting:
    """Where protection is now, and until when."""

    def __init__(self) -> None:
        self._by_group_until = 0.0
        self._by_cpus_until = 0.0

    def take(self, path: str, directories: tuple[str, ...], now: float) -> str:
        """Take a contested file in and return what is done about it. ``directories`` hold several groups' quota."""
        place, _, name = path.rpartition("/")
        if name not in ordering.QUOTA_FILES:
            return "written again each time"
        if place in directories:
            self._by_group_until = now + RETRY_SECONDS
            return "each group has a quota of its own instead"
        self._by_cpus_until = now + RETRY_SECONDS
        return "offline work is held by CPU sets instead"

    def by_group(self, now: float) -> bool:
        """Return whether quotas go on each group instead of on the directory of all."""
        return now < self._by_group_until

    def policy(self, slo: NodeSlo, now: float) -> NodeSlo:
        """Return the policy with suppression by CPU set while quotas are contested."""
        if now >= self._by_cpus_until or not slo.threshold.enable:
            return slo
        threshold = msgspec.structs.replace(slo.threshold, cpu_suppress_policy="cpuset")
        return msgspec.structs.replace(slo, threshold=threshold)
