"""Offline pods that get too little CPU to make progress are evicted, so that they can run elsewhere."""

import math
from fractions import Fraction

from cotenant.act import cgroup, eviction
from cotenant.act.draft import Draft
from cotenant.act.registry import strategy
from cotenant.model.pod import BATCH_CPU, MID_CPU, Pod
from cotenant.model.policy import NodeSlo, ThresholdStrategy
from cotenant.model.snapshot import Snapshot

DEFAULT_USAGE_THRESHOLD_PERCENT = 90
LOWER_PERCENT_MAX = 60
SQUEEZED_MILLICORES = 1000
PREFIX = "spec.resourceUsedThresholdWithBE"


def satisfaction_release(request: float, limit: float | Fraction, lower: int, upper: int) -> int:
    """Return how many millicores of requests to release so that the limit satisfies them up to ``upper`` percent.

    0 while the limit is more than ``lower`` percent of the requests.
    """
    if request <= 0 or Fraction(limit) * 100 > lower * Fraction(request):
        return 0
    return max(math.floor(Fraction(request) * upper / 100 - Fraction(limit)), 0)


def real_limit(snapshot: Snapshot) -> float:
    """Return how much CPU offline work can have now: the narrowest of directory, containers and quota.

    Containers that the scheduler bound to some NUMA nodes say nothing of what the others can have.
    """
    directory = snapshot.qos_paths.get("BestEffort")
    groups = [*([directory] if directory else [])]
    free = (g for g in cgroup.offline_groups(snapshot) if g.pod and not g.pod.resource_status.numa_nodes)
    groups += [child.path for group in free for child in group.containers]
    widths = [len(cpus) for path in groups if (cpus := cgroup.cpus(snapshot, path))]
    limit = min([snapshot.cpu_count, *widths]) * 1000
    holding = [directory] if directory else []
    if "directory quota" in snapshot.left_to_others:
        holding = [group.path for group in cgroup.offline_groups(snapshot) if group.qos == "BestEffort"]
    quotas = [(cgroup.quota(snapshot, path), cgroup.period_usec(snapshot, path)) for path in holding]
    held = [quota.value * 1000 // period for quota, period in quotas if quota is not None and quota.value]
    return min(limit, sum(held)) if held and len(held) == len(holding) else limit


@strategy(
    "cpu_evict",
    fields=(
        f"{PREFIX}.cpuEvictBESatisfactionUpperPercent",
        f"{PREFIX}.cpuEvictBESatisfactionLowerPercent",
        f"{PREFIX}.cpuEvictBEUsageThresholdPercent",
        f"{PREFIX}.cpuEvictThresholdPercent",
        f"{PREFIX}.cpuEvictLowerPercent",
        f"{PREFIX}.cpuAllocatableEvictThresholdPercent",
        f"{PREFIX}.cpuAllocatableEvictLowerPercent",
        f"{PREFIX}.cpuEvictTimeWindowSeconds",
        f"{PREFIX}.cpuEvictPolicy",
        f"{PREFIX}.evictEnabledPriorityThreshold",
        f"{PREFIX}.allocatableEvictPriorityThreshold",
    ),
    needs_usage=True,
)
def decide(draft: Draft, slo: NodeSlo) -> None:
    """Evict offline pods that are starved although they want to run, then pods by priority on a node that is too full.

    Three reasons in turn: satisfaction (offline work gets less than the lower percentage of what it asked for and
    uses nearly all of it), requests above what the node offers, and the node's use of CPU. Each stops as soon as
    enough is released; pods that are terminating count, pods without metrics release nothing. How long a reason has to
    last is for whoever looks again and again; one look alone counts it as satisfied.
    """
    if not slo.threshold.enable:
        return
    snapshot = draft.snapshot
    if snapshot.usage is None:
        draft.skipped.append("usage is not known (give --usage)")
        return
    ledger = eviction.Ledger(draft)
    used = eviction.amount_used(snapshot, "cpu")
    _by_satisfaction(ledger, slo.threshold, used)
    eviction.by_allocatable(
        ledger,
        slo.threshold,
        "CPUAllocatableEvict",
        (
            slo.threshold.cpu_allocatable_evict_threshold_percent,
            slo.threshold.cpu_allocatable_evict_lower_percent,
        ),
        {BATCH_CPU[0]: eviction.amount_requested(BATCH_CPU), MID_CPU[0]: eviction.amount_requested(MID_CPU)},
        used,
    )
    _by_usage(ledger, slo.threshold, used)


def _by_satisfaction(ledger: eviction.Ledger, threshold: ThresholdStrategy, used: eviction.Amount) -> None:
    draft, snapshot = ledger.draft, ledger.draft.snapshot
    lower, upper = threshold.cpu_evict_be_satisfaction_lower_percent, threshold.cpu_evict_be_satisfaction_upper_percent
    if lower is None or upper is None:
        return
    if not (0 < lower <= LOWER_PERCENT_MAX and 0 < upper < 100 and lower <= upper):
        draft.notices.append(
            f"BECPUEvict: satisfaction {lower}..{upper} % is not usable: the lower mark must be 1..{LOWER_PERCENT_MAX} "
            "and not above the upper, which must be below 100"
        )
        return
    offline = [pod for pod in snapshot.pods if pod.qos_label == "BE" and (pod.active or pod.terminating)]
    request = sum(pod.batch_request_millicores() for pod in offline)
    usage = sum(used(pod) for pod in offline)
    limit = _limit(snapshot, threshold)
    if limit is None or not _usage_is_high(snapshot, threshold, usage, limit):
        return
    need = satisfaction_release(request, limit * snapshot.node.cpu_normalization_ratio, lower, upper)
    victims = eviction.offline_victims(offline, used, lambda pod: used(pod) / (pod.batch_request_millicores() or 1))
    reason = f"offline work asks for {request} millicores and may have {float(limit):.0f}"
    if need > 0:
        ledger.release("BECPUEvict", victims, need, Pod.batch_request_millicores, reason)


def _limit(snapshot: Snapshot, threshold: ThresholdStrategy) -> Fraction | None:
    """Return how much of this node's CPU, in thousandths, offline work may have; None where nothing is offered.

    What is offered and asked for as batch-cpu is that times the node's CPU normalization ratio.
    """
    if threshold.cpu_evict_policy != "evictByAllocatable":
        return Fraction(real_limit(snapshot))
    offered = snapshot.node.extended_allocatable.get(BATCH_CPU[0])
    return None if offered is None or offered < 0 else offered / snapshot.node.cpu_normalization_ratio


def _usage_is_high(snapshot: Snapshot, threshold: ThresholdStrategy, usage: float, limit: Fraction) -> bool:
    percent = threshold.cpu_evict_be_usage_threshold_percent
    percent = DEFAULT_USAGE_THRESHOLD_PERCENT if percent is None else percent
    if threshold.cpu_evict_policy == "evictByAllocatable" and limit < SQUEEZED_MILLICORES:
        # Nothing is offered to new pods; those that run are starved only if they use what they have.
        limit = Fraction(real_limit(snapshot))
    elif limit < SQUEEZED_MILLICORES:
        return limit > 0
    return usage * 100 >= percent * limit


def _by_usage(ledger: eviction.Ledger, threshold: ThresholdStrategy, used: eviction.Amount) -> None:
    draft, snapshot = ledger.draft, ledger.draft.snapshot
    percent, lower = threshold.cpu_evict_threshold_percent, threshold.cpu_evict_lower_percent
    if percent is None or not eviction.valid(draft, "CPUEvict", percent, lower):
        return
    limit = threshold.evict_enabled_priority_threshold
    node_use = snapshot.usage.node.cpu_millicores if snapshot.usage else None
    capacity = snapshot.node.capacity_millicores
    if limit is None or node_use is None or capacity is None:
        unknown = "the node's CPU usage is not known" if capacity is not None else "the node's CPUs are not known"
        missing = "evictEnabledPriorityThreshold is not set" if limit is None else unknown
        draft.skipped.append(f"CPUEvict: {missing}")
        return
    need = eviction.over(node_use, capacity, percent, lower)
    if need is not None:
        victims = [pod for pod in eviction.priority_victims(snapshot.pods, limit, used) if used(pod) > 0]
        reason = f"the node uses {node_use:.0f} of {capacity} millicores, above {percent} %"
        ledger.release("CPUEvict", victims, need, used, reason)
