"""Choosing victims: in a fixed order, until enough is released, and nobody for nothing."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from cotenant.act.draft import Draft
from cotenant.model.node import Use
from cotenant.model.pod import EVICTION_ENABLED_LABEL, Pod
from cotenant.model.policy import ThresholdStrategy
from cotenant.model.snapshot import Snapshot
from cotenant.units.plan import PlanItem

EVICTION_COST_ANNOTATION = "scheduling.koordinator.sh/eviction-cost"
NEVER_EVICT = str(2**31 - 1)
DEFAULT_ALLOCATABLE_PERCENT, DEFAULT_ALLOCATABLE_LOWER_PERCENT = 110, 100
LOWER_BELOW_THRESHOLD = 2

Amount = Callable[[Pod], float]
Resource = Literal["cpu", "memory"]


@dataclasses.dataclass(slots=True)
class Ledger:
    """Who is evicted in this round. A pod that one reason chose counts for the later ones too."""

    draft: Draft
    chosen: dict[str, Pod] = dataclasses.field(default_factory=dict)

    def release(self, feature: str, victims: Sequence[Pod], need: float, amount: Amount, reason: str) -> None:
        """Evict the victims in order until so much is released; pods that are on their way out already count first."""
        snapshot = self.draft.snapshot
        leaving = [pod for pod in snapshot.pods if pod.terminating or pod.key in snapshot.evicting]
        terminating = [pod for pod in leaving if pod.key not in self.chosen]
        released = sum(amount(pod) for pod in (*terminating, *self.chosen.values()))
        for pod in victims:
            if released >= need:
                return
            gain = amount(pod)
            if pod.key in snapshot.evicting or pod.key in snapshot.spared:
                continue
            if pod.key in self.chosen or gain <= 0 or not pod.eviction_allowed(feature):
                continue
            self.chosen[pod.key] = pod
            released += gain
            self.draft.step(
                PlanItem(
                    op="evict",
                    new=pod.key,
                    strategy=self.draft.strategy,
                    reason=f"{feature}: {reason}; this pod releases {gain:.0f} of {need:.0f}",
                )
            )
        if released < need:
            self.draft.notices.append(f"{feature}: {reason}; only {released:.0f} of {need:.0f} can be released")


def use_of(snapshot: Snapshot, pod: Pod) -> Use | None:
    """Return what a pod uses, or None where it has no metrics."""
    return snapshot.usage.pods.get(pod.key) if snapshot.usage else None


def amount_used(snapshot: Snapshot, resource: Resource) -> Amount:
    """Return the function from a pod to what it uses; a pod without metrics releases nothing."""

    def used(pod: Pod) -> float:
        use = use_of(snapshot, pod)
        if use is None:
            return 0
        return (use.cpu_millicores if resource == "cpu" else use.memory_bytes) or 0

    return used


def amount_requested(names: tuple[str, ...]) -> Amount:
    """Return the function from a pod to what it asks of an extended resource."""
    return lambda pod: sum(container.extended_request(names) for container in pod.containers)


def offline_victims(pods: Iterable[Pod], used: Amount, weight: Amount) -> list[Pod]:
    """Return running pods labelled BE that may be evicted: lowest priority first, then the heaviest.

    Pods that opted out, that are finished or terminating, or that have no metrics are not among them.
    """
    able = [p for p in pods if p.qos_label == "BE" and _may(p) and p.labels.get(EVICTION_ENABLED_LABEL) != "false"]
    return sorted((p for p in able if used(p) > 0), key=lambda p: (p.priority or 0, -weight(p), p.key))


def priority_victims(pods: Iterable[Pod], threshold: int, used: Amount) -> list[Pod]:
    """Return running pods that opted in and are at or below a priority, in the order in which they go."""
    able = [p for p in pods if _may(p) and p.labels.get(EVICTION_ENABLED_LABEL) == "true"]
    able = [p for p in able if p.priority is not None and p.priority <= threshold]
    return sorted(able, key=lambda p: (p.eviction_priority, p.priority or 0, p.sub_priority, -used(p), p.key))


def _may(pod: Pod) -> bool:
    return pod.active and pod.annotations.get(EVICTION_COST_ANNOTATION) != NEVER_EVICT


def over(used: float, capacity: float, threshold: int, lower: int | None) -> float | None:
    """Return how much is above the lower mark, or None while the threshold is not reached.

    Exact, not in whole percents. The lower mark is two percent below the threshold unless it is set.
    """
    mark = threshold - LOWER_BELOW_THRESHOLD if lower is None else lower
    if capacity <= 0 or used * 100 < threshold * capacity:
        return None
    return used - mark * capacity / 100


def valid(draft: Draft, what: str, threshold: int | None, lower: int | None) -> bool:
    """Return whether a threshold is set and above its lower mark; the latter is noted where it is not."""
    if threshold is None:
        return False
    if lower is not None and lower >= threshold:
        draft.notices.append(f"{what}: the lower mark {lower} % is not below the threshold {threshold} %; not applied")
        return False
    return True


def by_allocatable(
    ledger: Ledger,
    threshold: ThresholdStrategy,
    feature: str,
    marks: tuple[int | None, int | None],
    resources: dict[str, Amount],
    used: Amount,
) -> None:
    """Evict pods by priority where they ask for more of an extended resource than the node (still) offers.

    A node that does not offer the resource at all is degraded, not overcommitted: nobody is evicted then.
    """
    draft, limit = ledger.draft, threshold.allocatable_evict_priority_threshold
    if limit is None:
        return
    percent = DEFAULT_ALLOCATABLE_PERCENT if marks[0] is None else marks[0]
    lower = DEFAULT_ALLOCATABLE_LOWER_PERCENT if marks[1] is None else marks[1]
    if not valid(draft, feature, percent, lower):
        return
    pods = [p for p in draft.snapshot.pods if (p.active or p.terminating) and p.priority is not None]
    for resource, request in resources.items():
        asked = sum(request(p) for p in pods if (p.priority or 0) <= limit)
        offered = draft.snapshot.node.extended_allocatable.get(resource, 0)
        if asked <= 0:
            continue
        if offered <= 0:
            draft.notices.append(f"{feature}: the node offers no {resource} now; nobody is evicted for that")
            continue
        if asked * 100 > percent * offered:
            victims = priority_victims(pods, limit, used)
            reason = f"pods ask for {asked:.0f} of {offered} {resource}, above {percent} %"
            ledger.release(feature, victims, asked - lower * offered / 100, request, reason)
