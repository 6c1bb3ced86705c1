"""Online containers that are throttled get a burst, or a larger quota while the node has room."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Literal

from cotenant.act import cgroup, cpu_normalization, cpu_pool
from cotenant.act.draft import Draft
from cotenant.act.registry import strategy
from cotenant.model import policy
from cotenant.model.pod import CPU_BURST_ANNOTATION, Pod
from cotenant.model.policy import CpuBurstStrategy, NodeSlo
from cotenant.model.snapshot import ContainerGroup, PodGroup, Snapshot
from cotenant.units.limit import Limit

DEFAULT_BURST_PERCENT = 1000
DEFAULT_QUOTA_BURST_PERCENT = 300
DEFAULT_SHARE_POOL_THRESHOLD_PERCENT = 50
COOLING_RATIO = 0.9
"""Of the threshold: from here on nobody gets more."""
STEP_UP, STEP_DOWN = 1.2, 0.8
MAX_BURST_USEC = 100_000_000
NAME = "cpu_burst"
PREFIX = "spec.cpuBurstStrategy"

Direction = Literal["up", "down"]


def burst_usec(base_usec: int, percent: int) -> int:
    """Return the burst of a container by the quota of its limit: what it may save up while it uses less than that."""
    return min(base_usec * percent // 100, MAX_BURST_USEC)


def quota_usec(base: int, current: Limit, direction: Direction, percent: int) -> int:
    """Return the next quota, a step up or down within base and base times percent; base where there is none now."""
    if current.value is None:
        return base
    wanted = round(current.value * (STEP_UP if direction == "up" else STEP_DOWN))
    return min(max(wanted, base), base * percent // 100)


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """One container that may have more than its limit."""

    pod: Pod
    pod_group: PodGroup
    group: ContainerGroup
    strategy: CpuBurstStrategy
    base_usec: int
    """The quota by its limit and the node's CPU normalization ratio: what an enlargement starts from."""
    limit_usec: int
    """The quota by its limit alone, as the kubelet set it."""
    current: Limit
    period_usec: int
    throttled: bool
    is_fresh: bool = False
    """Whether the quota is the kubelet's own, of which nobody enlarged anything yet."""
    is_spent: bool = False
    is_rebased: bool = False

    @property
    def excess(self) -> float:
        """How far the quota is above the limit: 1 is not at all."""
        return (self.current.value or self.base_usec) / self.base_usec

    @property
    def expected_usec(self) -> int:
        """The quota, or the limit where the quota is below it; 0 where there is none."""
        return 0 if self.current.value is None else max(self.current.value, self.base_usec)

    def next(self, direction: Direction) -> int:
        return quota_usec(self.base_usec, self.current, direction, self.percent)

    @property
    def percent(self) -> int:
        """How far the quota may go, of the limit."""
        return self.strategy.cfs_quota_burst_percent or DEFAULT_QUOTA_BURST_PERCENT

    @property
    def period_seconds(self) -> int | None:
        """For how long the quota may be at the most that it may go to; None for ever."""
        seconds = self.strategy.cfs_quota_burst_period_seconds
        return None if seconds is None or seconds < 0 else seconds

    def millicores(self, quota: int) -> float:
        """Return how much CPU a quota is more than the current one."""
        return (quota - (self.current.value or quota)) * 1000 / self.period_usec


@strategy(
    NAME,
    fields=(
        f"{PREFIX}.policy",
        f"{PREFIX}.cpuBurstPercent",
        f"{PREFIX}.cfsQuotaBurstPercent",
        f"{PREFIX}.cfsQuotaBurstPeriodSeconds",
        f"{PREFIX}.sharePoolThresholdPercent",
    ),
    features=("cpu.cfs_burst_us|cpu.max.burst", "cpu.cfs_quota_us|cpu.max"),
    needs_usage=True,
)
def decide(draft: Draft, slo: NodeSlo) -> None:
    """Let throttled online containers run ahead of their quota.

    The kernel's burst follows the limit and needs no measuring; on v2, and on v1 outside Anolis, it is no more than
    the quota, which is all those kernels take. The quota itself grows by fifths for containers that were throttled,
    as many as the share pool has room for, the least enlarged first; when the pool is past its threshold the most
    enlarged shrink, only as many as it takes. Many throttled pods at once therefore settle and do not swing. With a
    period, a container that was above its limit for that long shrinks too, until it has rested; that needs somebody
    who looks again and again.
    """
    limits = cpu_normalization.Limits.of(draft.snapshot)
    for group, chosen in _chosen(draft.snapshot, slo, draft.notices):
        _burst(draft, group, chosen, limits)
        if not _scales(chosen):
            _release_quota(draft, group, limits)
    wanted = candidates(draft.snapshot, slo)
    if wanted:
        _quotas(draft, slo, wanted)


def candidates(snapshot: Snapshot, slo: NodeSlo) -> list[Candidate]:
    """Return the containers whose quota may be enlarged."""
    limits = cpu_normalization.Limits.of(snapshot)
    chosen = _chosen(snapshot, slo, [])
    return [one for group, how in chosen if _scales(how) for one in _candidates(limits, group, how)]


def _chosen(snapshot: Snapshot, slo: NodeSlo, notices: list[str]) -> Iterable[tuple[PodGroup, CpuBurstStrategy]]:
    """Yield the groups of online pods, each with what the policy and the pod's annotation say."""
    for group in snapshot.groups:
        if group.pod is None or not _eligible(group.pod):
            continue
        if not group.pod.cpu_burst:
            yield group, slo.cpu_burst
            continue
        chosen, complaints = policy.override(
            slo.cpu_burst, group.pod.cpu_burst, f"pod {group.pod.key}: annotation {CPU_BURST_ANNOTATION}"
        )
        notices.extend(complaints)
        yield group, chosen


def _scales(chosen: CpuBurstStrategy) -> bool:
    return chosen.policy in ("auto", "cfsQuotaBurstOnly")


def _eligible(pod: Pod) -> bool:
    """Return whether a pod is online and shares CPUs: those of other classes have CPUs of their own, or are offline."""
    return pod.active and pod.qos_label in (None, "LS", "SYSTEM") and not pod.best_effort and not cpu_pool.own(pod)


def _burst(draft: Draft, group: PodGroup, chosen: CpuBurstStrategy, limits: cpu_normalization.Limits) -> None:
    snapshot = draft.snapshot
    file = _burst_file(snapshot)
    active = chosen.policy in ("auto", "cpuBurstOnly")
    total: int | None = 0
    for child in group.containers:
        path = snapshot.path("cpu", child.path, file)
        if not active:
            draft.release(path, "0", "CPU burst is off")
            continue
        base = None if group.pod is None else limits.base_usec(group.pod, child)
        quota = cgroup.quota(snapshot, child.path)
        if base is None or quota is None or quota.value is None:
            continue
        burst = _accepted(snapshot, burst_usec(base, _percent(chosen)), base)
        draft.write(path, str(burst), f"pod {group.pod.key if group.pod else ''}: {_percent(chosen)} % of its limit")
        total = None if total is None else total + burst
    path = snapshot.path("cpu", group.path, file)
    if not active:
        draft.release(path, "0", "CPU burst is off")
        return
    quota = cgroup.quota(snapshot, group.path)
    if total and quota is not None and quota.value is not None:
        draft.write(path, str(_accepted(snapshot, total, quota.value)), "sum of its containers")


def make_room(draft: Draft, container_id: str, quota_usec: int) -> None:
    """Lower the burst of a container, and of its pod, below the quota that it is about to get.

    The kernel refuses a quota below the burst: the kubelet's resize would fail until the burst has followed.
    """
    snapshot = draft.snapshot
    if not container_id or _is_free(snapshot):
        return
    for group in snapshot.groups:
        for child in group.containers:
            if container_id not in child.path.rpartition("/")[2]:
                continue
            before, pod = cgroup.quota(snapshot, child.path), cgroup.quota(snapshot, group.path)
            _lower(draft, child.path, quota_usec)
            if before is not None and before.value is not None and pod is not None and pod.value is not None:
                _lower(draft, group.path, pod.value - max(0, before.value - quota_usec))


def _lower(draft: Draft, group: str, most_usec: int) -> None:
    path = draft.snapshot.path("cpu", group, _burst_file(draft.snapshot))
    current = draft.snapshot.files.read(path) if path else None
    if current is not None and current.isdecimal() and int(current) > most_usec:
        draft.write(path, str(max(0, most_usec)), "a smaller quota is about to be set")


def _burst_file(snapshot: Snapshot) -> str:
    return "cpu.max.burst" if snapshot.version("cpu") == 2 else "cpu.cfs_burst_us"


def _accepted(snapshot: Snapshot, burst: int, quota: int) -> int:
    """Return what the kernel takes: no more than the quota, except Anolis on v1."""
    return burst if _is_free(snapshot) else min(burst, quota)


def _is_free(snapshot: Snapshot) -> bool:
    return snapshot.version("cpu") == 1 and snapshot.priority.name.startswith("anolis")


def _percent(chosen: CpuBurstStrategy) -> int:
    return DEFAULT_BURST_PERCENT if chosen.cpu_burst_percent is None else chosen.cpu_burst_percent


def _candidates(limits: cpu_normalization.Limits, group: PodGroup, chosen: CpuBurstStrategy) -> Iterable[Candidate]:
    pod, snapshot = group.pod, limits.snapshot
    if pod is None:
        return
    use = snapshot.usage.pods.get(pod.key) if snapshot.usage else None
    throttled = bool(use and use.throttled_ratio)
    for child in group.containers:
        base, limit = limits.base_usec(pod, child), limits.limit_usec(child)
        current = cgroup.quota(snapshot, child.path)
        if base is None or limit is None or current is None:
            continue
        period = cgroup.period_usec(snapshot, child.path)
        is_fresh = current.value == limit and cgroup.quota_path(snapshot, child.path) not in snapshot.journal
        yield Candidate(
            pod=pod,
            pod_group=group,
            group=child,
            strategy=chosen,
            base_usec=base,
            limit_usec=limit,
            current=current,
            period_usec=period,
            throttled=throttled,
            is_fresh=is_fresh,
            is_spent=child.path in snapshot.burst_spent,
            is_rebased=child.path in snapshot.burst_rebased,
        )


def share_pool(snapshot: Snapshot) -> tuple[float, float] | None:
    """Return used and total millicores of the CPUs that online pods share, or None when usage is not known."""
    usage = snapshot.usage
    if usage is None or usage.node.cpu_millicores is None:
        return None
    own = [pod for pod in snapshot.pods if pod.active and pod.qos_label in ("LSE", "LSR")]
    apart = [pod for pod in snapshot.pods if pod.qos_label in ("LSE", "LSR", "BE")]
    total = snapshot.cpu_count * 1000 - sum(pod.request_millicores() for pod in own)
    known = [usage.pods[pod.key].cpu_millicores or 0 for pod in apart if pod.key in usage.pods]
    return max(usage.node.cpu_millicores - sum(known), 0), total


def _quotas(draft: Draft, slo: NodeSlo, candidates: Sequence[Candidate]) -> None:
    pool = share_pool(draft.snapshot)
    if pool is None:
        # A blind node is not an idle one, nor a busy one: what was enlarged stays so.
        draft.skipped.append("quota burst: the node's CPU usage is not known (give --usage)")
        _write(draft, candidates, _at_base(candidates), "without a burst, which needs usage")
        return
    used, total = pool
    percent = slo.cpu_burst.share_pool_threshold_percent
    limit = total * (DEFAULT_SHARE_POOL_THRESHOLD_PERCENT if percent is None else percent) / 100
    if total <= 0 or used >= limit:
        changes = _shrunk(candidates, used - limit)
    elif used >= COOLING_RATIO * limit:
        changes = {}
    else:
        changes = _grown(candidates, COOLING_RATIO * limit - used)
    changes = changes | _spent(candidates) | _at_base(candidates)
    reason = f"share pool uses {used:.0f} of {total:.0f} millicores, threshold {limit:.0f}"
    _write(draft, candidates, changes, reason)


def _grown(candidates: Sequence[Candidate], room: float) -> dict[str, int]:
    """Return the new quotas of throttled containers, the least enlarged first, as many as there is room for."""
    changes: dict[str, int] = {}
    for candidate in sorted(candidates, key=lambda c: (c.excess, c.group.path)):
        wanted = candidate.next("up")
        cost = candidate.millicores(wanted)
        if candidate.throttled and not candidate.is_spent and wanted != candidate.current.value and cost <= room:
            changes[candidate.group.path] = wanted
            room -= cost
    return changes


def _shrunk(candidates: Sequence[Candidate], over: float) -> dict[str, int]:
    """Return the new quotas of the most enlarged containers, only as many as bring the pool back."""
    changes: dict[str, int] = {}
    for candidate in sorted(candidates, key=lambda c: (-c.excess, c.group.path)):
        wanted = candidate.next("down")
        if candidate.current.value is None or wanted >= candidate.current.value:
            continue
        changes[candidate.group.path] = wanted
        over += candidate.millicores(wanted)
        if over <= 0:
            break
    return changes


def _spent(candidates: Sequence[Candidate]) -> dict[str, int]:
    """Return the next quotas of containers that were above their limit for as long as they may be."""
    return {
        candidate.group.path: candidate.next("down")
        for candidate in candidates
        if candidate.is_spent and candidate.current.value is not None and candidate.current.value > candidate.base_usec
    }


def _at_base(candidates: Sequence[Candidate]) -> dict[str, int]:
    """Return the quotas that go to where an enlargement starts from, whatever the pool has.

    A quota below it: a resize was answered by what was true before it, or the CPUs count for less now. The kubelet's
    own, where the CPUs count for more than that. And one that was enlarged from another limit.
    """
    return {
        candidate.group.path: candidate.base_usec
        for candidate in candidates
        if candidate.current.value is not None
        and (candidate.current.value < candidate.base_usec or candidate.is_fresh or candidate.is_rebased)
        and candidate.current.value != candidate.base_usec
    }


def _write(draft: Draft, candidates: Sequence[Candidate], changes: dict[str, int], reason: str) -> None:
    by_pod: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        by_pod.setdefault(candidate.pod_group.path, []).append(candidate)
    for path, members in by_pod.items():
        pod_quota = cgroup.quota(draft.snapshot, path)
        for member in members:
            value = changes.get(member.group.path, member.current.value)
            cgroup.set_quota(draft, member.group.path, Limit(value), f"pod {member.pod.key}: {reason}")
        if not any(m.group.path in changes for m in members) or pod_quota is None or pod_quota.value is None:
            continue
        # What brings a container back to its limit is in the pod's quota already, unless that was lowered with it.
        delta = sum(changes[m.group.path] - m.expected_usec for m in members if m.group.path in changes)
        least = sum(changes.get(m.group.path, m.current.value or 0) for m in members)
        # The kubelet's value is the least in any case: v1 refuses each new container whose limit the pod is below.
        own = min(sum(m.limit_usec for m in members), pod_quota.value)
        wanted = max(pod_quota.value + delta, least, own)
        cgroup.set_quota(draft, path, Limit(wanted), f"pod {members[0].pod.key}: {reason}")


def _release_quota(draft: Draft, group: PodGroup, limits: cpu_normalization.Limits) -> None:
    snapshot = draft.snapshot
    if group.pod is None:
        return
    for child in group.containers:
        base = limits.base_usec(group.pod, child)
        if base is not None:
            cgroup.release_quota(draft, child.path, Limit(base), "quota burst is off")
    containers = [child.container for child in group.containers if child.container is not None]
    total = cgroup.limit_usec(containers, cgroup.period_usec(snapshot, group.path))
    if total is not None:
        cgroup.release_quota(draft, group.path, Limit(total), "quota burst is off")
