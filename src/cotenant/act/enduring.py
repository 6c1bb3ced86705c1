"""Evictions wait until what asks for them has lasted: one moment is no reason to end somebody's work."""

from collections.abc import Sequence

from cotenant.model.policy import ThresholdStrategy
from cotenant.units.plan import PlanItem

CPU_SECONDS = 5.0
"""For CPU, where the policy names no window: starved work loses time, and nothing else."""
MEMORY_SECONDS = 2.0
"""For memory: two looks in a row; a node that runs out of it does not wait."""
GAP_SECONDS = 3.0
"""A look that was left out, or came late, does not begin the window anew."""


class Enduring:
    """Since when each feature (``BECPUEvict``, ``BEMemoryEvict`` …) has asked for evictions without a break."""

    def __init__(self) -> None:
        self._asking: dict[str, tuple[float, float]] = {}

    def lasting(self, items: Sequence[PlanItem], threshold: ThresholdStrategy, now: float) -> tuple[PlanItem, ...]:
        """Return a plan without evictions whose feature has not asked for long enough."""
        kept: list[PlanItem] = []
        asking: dict[str, tuple[float, float]] = {}
        for item in items:
            seconds = window_s(item, threshold)
            if seconds is None:
                kept.append(item)
                continue
            feature = item.reason.partition(":")[0]
            since, last = self._asking.get(feature, (now, now))
            since = now if now - last > GAP_SECONDS else since
            asking[feature] = (since, now)
            if now - since >= seconds:
                kept.append(item)
        fresh = {feature: told for feature, told in self._asking.items() if now - told[1] <= GAP_SECONDS}
        self._asking = fresh | asking
        return tuple(kept)


def window_s(item: PlanItem, threshold: ThresholdStrategy) -> float | None:
    """Return how long a feature must ask for this eviction; None for what is none of a threshold's."""
    if item.op != "evict":
        return None
    if item.strategy == "cpu_evict":
        asked = threshold.cpu_evict_time_window_seconds
        return CPU_SECONDS if asked is None else float(asked)
    return MEMORY_SECONDS if item.strategy == "memory_evict" else None
