"""Offline pods are evicted before the node runs out of memory."""

from cotenant.act import eviction
from cotenant.act.draft import Draft
from cotenant.act.registry import strategy
from cotenant.model.pod import BATCH_MEMORY
from cotenant.model.policy import NodeSlo

DEFAULT_THRESHOLD_PERCENT = 70
MID_MEMORY = ("kubernetes.io/mid-memory",)
PREFIX = "spec.resourceUsedThresholdWithBE"


@strategy(
    "memory_evict",
    fields=(
        f"{PREFIX}.memoryEvictThresholdPercent",
        f"{PREFIX}.memoryEvictLowerPercent",
        f"{PREFIX}.memoryAllocatableEvictThresholdPercent",
        f"{PREFIX}.memoryAllocatableEvictLowerPercent",
    ),
    needs_usage=True,
)
def decide(draft: Draft, slo: NodeSlo) -> None:
    """Evict offline pods when the node's memory is past a threshold, down to the lower mark.

    Offline pods by priority and size first; then pods by priority where they ask for more than the node offers; then
    pods that opted in, up to a priority. Pods without metrics release nothing and are not chosen.
    """
    threshold = slo.threshold
    if not threshold.enable:
        return
    snapshot = draft.snapshot
    if snapshot.usage is None or snapshot.usage.node.memory_bytes is None:
        draft.skipped.append("the node's memory usage is not known (give --usage)")
        return
    if snapshot.node.capacity_memory_bytes is None:
        draft.skipped.append("the node's memory is not known (give --node)")
        return
    ledger = eviction.Ledger(draft)
    used = eviction.amount_used(snapshot, "memory")
    percent = threshold.memory_evict_threshold_percent
    percent = DEFAULT_THRESHOLD_PERCENT if percent is None else percent
    need = None
    if eviction.valid(draft, "BEMemoryEvict", percent, threshold.memory_evict_lower_percent):
        in_use, capacity = snapshot.usage.node.memory_bytes, snapshot.node.capacity_memory_bytes
        need = eviction.over(in_use, capacity, percent, threshold.memory_evict_lower_percent)
        reason = f"the node uses {in_use} of {capacity} bytes, above {percent} %"
    if need is not None:
        ledger.release("BEMemoryEvict", eviction.offline_victims(snapshot.pods, used, used), need, used, reason)
    eviction.by_allocatable(
        ledger,
        threshold,
        "MemoryAllocatableEvict",
        (threshold.memory_allocatable_evict_threshold_percent, threshold.memory_allocatable_evict_lower_percent),
        {names[0]: eviction.amount_requested(names) for names in (BATCH_MEMORY, MID_MEMORY)},
        used,
    )
    limit = threshold.evict_enabled_priority_threshold
    if need is not None and limit is not None:
        victims = [pod for pod in eviction.priority_victims(snapshot.pods, limit, used) if used(pod) > 0]
        ledger.release("MemoryEvict", victims, need, used, reason)
