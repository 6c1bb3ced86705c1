"""CPU weight, CPU quota and memory limit of offline pods, from the batch resources that they ask for."""

from collections.abc import Sequence
from fractions import Fraction

from cotenant.act import cgroup, cpu_normalization, cpu_suppress
from cotenant.act.draft import Draft
from cotenant.act.registry import strategy
from cotenant.model.pod import BATCH_CPU, BATCH_MEMORY, Container
from cotenant.model.policy import NodeSlo
from cotenant.units.limit import NONE, Limit

TINY_MILLICORES = 100


def quota_usec(
    containers: Sequence[Container],
    period_usec: int = cgroup.DEFAULT_PERIOD_USEC,
    ratio: Fraction = Fraction(1),
) -> Limit:
    """Return the quota of containers' batch-cpu limits together: none as soon as one of them has no limit.

    ``ratio`` is the node's CPU normalization ratio, by which what it offers as batch-cpu was multiplied.
    """
    limits = [container.extended_limit(BATCH_CPU) for container in containers]
    known = [limit for limit in limits if limit is not None]
    if not limits or len(known) < len(limits):
        return NONE
    return Limit(cpu_normalization.normalized_usec(sum(known) * period_usec // 1000, ratio))


def memory_limit(containers: Sequence[Container]) -> Limit:
    """Return the sum of containers' batch-memory limits: none as soon as one of them has no limit."""
    limits = [container.extended_limit(BATCH_MEMORY) for container in containers]
    known = [limit for limit in limits if limit is not None]
    return Limit(sum(known)) if limits and len(known) == len(limits) else NONE


@strategy(
    "batch_resources",
    fields=(),
    features=("cpu.shares|cpu.weight", "cpu.cfs_quota_us|cpu.max", "memory.limit_in_bytes|memory.max"),
)
def decide(draft: Draft, slo: NodeSlo) -> None:
    """Hold pods labelled BE to the batch-cpu and batch-memory they asked for; sidecars count.

    The kubelet knows nothing of these resources and would leave such pods at the smallest weight and without limits.
    A container without a limit is unlimited, and so is its pod. While suppression is by quota, the pods themselves
    have none: the quota of all offline work together holds them. The quota is divided by the node's CPU normalization
    ratio, by which the batch-cpu that it offers was multiplied.
    """
    by_quota = cpu_suppress.uses_quota(slo.threshold)
    for group in draft.snapshot.groups:
        pod = group.pod
        if pod is None or pod.qos_label != "BE" or not pod.has_extended_spec or not pod.active:
            continue
        who = f"pod {pod.key} asks for batch resources"
        _warn_of_tiny(draft, pod.key, pod.containers)
        _state(draft, group.path, pod.containers, by_quota, who)
        for child in group.containers:
            if child.container is not None:
                _state(draft, child.path, (child.container,), by_quota, who)


def _state(draft: Draft, path: str, containers: Sequence[Container], by_quota: bool, who: str) -> None:
    snapshot = draft.snapshot
    request = sum(container.extended_request(BATCH_CPU) for container in containers)
    cgroup.set_shares(draft, path, request, who)
    period, ratio = cgroup.period_usec(snapshot, path), snapshot.node.cpu_normalization_ratio
    quota = NONE if by_quota else quota_usec(containers, period, ratio)
    cgroup.set_quota(draft, path, quota, "the offline quota holds it" if by_quota else who)
    cgroup.set_memory_limit(draft, path, memory_limit(containers), who)


def _warn_of_tiny(draft: Draft, key: str, containers: Sequence[Container]) -> None:
    for container in containers:
        limit = container.extended_limit(BATCH_CPU)
        if limit is not None and limit < TINY_MILLICORES:
            draft.notices.append(
                f"pod {key}: container {container.name} has a batch-cpu limit of {limit} thousandths of a CPU; "
                "the resource counts millicores"
            )
