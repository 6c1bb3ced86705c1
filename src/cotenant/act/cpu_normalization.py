"""What a CPU limit is worth on this node: less time is enough where CPUs are faster than the fleet's reference CPU.

The manager writes the ratio of a node's CPU model into the Node's annotation; batch resources are multiplied by it
where they are offered, and quotas are divided by it here.
"""

import dataclasses
from fractions import Fraction

from cotenant.act import cgroup, cpu_pool
from cotenant.act.draft import Draft
from cotenant.act.registry import strategy
from cotenant.model.node import CPU_NORMALIZATION_ANNOTATION
from cotenant.model.pod import Pod
from cotenant.model.policy import NodeSlo
from cotenant.model.snapshot import ContainerGroup, PodGroup, Snapshot
from cotenant.units.limit import Limit

NAME = "cpu_normalization"


def normalized_usec(quota_usec: int, ratio: Fraction) -> int:
    """Return a quota divided by the ratio, rounded up to a microsecond, and never less than the kernel takes."""
    return max(-(-quota_usec * ratio.denominator // ratio.numerator), cgroup.MIN_QUOTA_USEC)


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """The quotas that online containers' limits come to on one node."""

    snapshot: Snapshot
    pinned: cpu_pool.Cpus

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Limits":
        return cls(snapshot, cpu_pool.kubelet_pinned(snapshot))

    def ratio(self, pod: Pod, child: ContainerGroup) -> Fraction:
        """Return what a container's limit is divided by: 1 for all that do not share CPUs with others by time.

        CPUs of a container's own (LSE, LSR, whatever the scheduler or the kubelet pinned) are counted in whole ones.
        """
        if pod.qos_label not in (None, "LS") or pod.best_effort or cpu_pool.own(pod):
            return Fraction(1)
        present = cgroup.cpus(self.snapshot, child.path) if self.pinned else None
        if present and present <= self.pinned and pod.kube_qos == "Guaranteed":
            return Fraction(1)
        return self.snapshot.node.cpu_normalization_ratio

    def base_usec(self, pod: Pod, child: ContainerGroup) -> int | None:
        """Return the quota of a container by its limit and the ratio; None where it has no limit."""
        own = self.limit_usec(child)
        return None if own is None else normalized_usec(own, self.ratio(pod, child))

    def limit_usec(self, child: ContainerGroup) -> int | None:
        """Return the quota of a container by its limit alone, as the kubelet sets it; None where it has no limit."""
        period = cgroup.period_usec(self.snapshot, child.path)
        return None if child.container is None else cgroup.limit_usec((child.container,), period)


@strategy(
    NAME,
    fields=(),
    features=("cpu.cfs_quota_us|cpu.max",),
)
def decide(draft: Draft, slo: NodeSlo) -> None:
    """Divide the CPU quota of LS and unlabelled containers by the CPU normalization ratio of the node.

    The ratio is that of the Node's annotation ``node.koordinator.sh/cpu-normalization-ratio``; without it, or at 1,
    containers have what the kubelet gave them, and get it back where it was divided before. Containers with CPUs of
    their own are left alone. The pod's own quota stays: its containers hold it, and cgroup v1 would refuse each new
    container in a pod whose quota is below the container's limit. A quota burst starts from the divided quota.
    """
    snapshot = draft.snapshot
    limits = Limits.of(snapshot)
    reason = f"CPU normalization ratio {float(snapshot.node.cpu_normalization_ratio):g}"
    for group in snapshot.groups:
        pod = group.pod
        if pod is None or not pod.active or pod.qos_label not in (None, "LS") or pod.best_effort:
            continue
        _raise_pod(draft, group, f"pod {pod.key}: its containers could not start again below their limits")
        for child in group.containers:
            ratio = limits.ratio(pod, child)
            if ratio == 1 and cgroup.quota_path(snapshot, child.path) not in snapshot.journal:
                continue  # whole, and never anything else
            base, quota = limits.base_usec(pod, child), cgroup.quota(snapshot, child.path)
            if base is None or quota is None or quota.value is None:
                continue  # no limit, or one that somebody lifted on purpose
            if ratio > 1:
                cgroup.set_quota(draft, child.path, Limit(base), f"pod {pod.key}: {reason}")
            else:
                text = f"the node has no {CPU_NORMALIZATION_ANNOTATION} above 1"
                cgroup.release_quota(draft, child.path, Limit(base), f"pod {pod.key}: {text}")


def _raise_pod(draft: Draft, group: PodGroup, reason: str) -> None:
    """Give a pod that koordlet divided what the kubelet gave it."""
    snapshot = draft.snapshot
    ratio = snapshot.node.cpu_normalization_ratio
    if ratio == 1:
        return
    containers = [child.container for child in group.containers if child.container is not None]
    whole = cgroup.limit_usec(containers, cgroup.period_usec(snapshot, group.path))
    if whole is not None and cgroup.quota(snapshot, group.path) == Limit(normalized_usec(whole, ratio)) < Limit(whole):
        cgroup.set_quota(draft, group.path, Limit(whole), reason)
