"""One round of the ledger of offline work: what each pod asked for, got, and lost to a limit of ours. Pure."""

import math
from collections.abc import Mapping
from fractions import Fraction

from cotenant.act import cgroup, cpu_suppress, offline_quota, withheld
from cotenant.model.ledger import Entry
from cotenant.model.node import Use
from cotenant.model.pod import Pod
from cotenant.model.policy import NodeSlo
from cotenant.model.snapshot import Snapshot
from cotenant.units import quantity

BINDING_RATIO = 0.9
"""Offline work that uses less than this of what it may is not held back by it (Koordinator's line for eviction)."""


def requested_millicores(pod: Pod, ratio: Fraction = Fraction(1)) -> int | None:
    """Return the CPU of this node that a pod asks for, batch-cpu first; None where it states none.

    A limit alone is no request. ``ratio`` is the node's CPU normalization ratio: batch-cpu counts reference CPUs.
    """
    native = sum(quantity.millicores(c.requests["cpu"]) for c in pod.containers if "cpu" in c.requests)
    return math.ceil(pod.batch_request_millicores() / ratio) or native or None


def entries(
    snapshot: Snapshot, slo: NodeSlo, quotas: Mapping[str, float] | None, account: Mapping[str, str] | None = None
) -> list[Entry]:
    """Return an entry for each offline pod that runs. ``quotas``: :meth:`cotenant.act.withheld.Withheld.of`.

    ``account`` is where a pod is counted, by its key; its namespace where that says nothing. A pod loses where
    suppression binds: what its quota kept from it while it was ready to run, never more than it asked for; under
    suppression by CPU set, the rest of its request. A pod without a request asks for what it got and lost.
    """
    pods = {group.path: group.pod for group in cgroup.offline_groups(snapshot) if group.pod is not None}
    usage = snapshot.usage
    uses = {path: (usage.pods.get(pod.key, Use()) if usage else Use()).cpu_millicores for path, pod in pods.items()}
    used = {path: cpu for path, cpu in uses.items() if cpu is not None}
    lost = None if quotas is None else withheld.by_group(snapshot, quotas, used)
    bound = _is_bound(snapshot, slo, used, len(used) == len(pods))
    found = []
    for path, pod in pods.items():
        request, delivered = requested_millicores(pod, snapshot.node.cpu_normalization_ratio), uses[path]
        by_quota = None if lost is None else lost[path]
        suppressed = _suppressed(slo, request, delivered, by_quota, bound)
        asked: float | None = request
        if asked is None and delivered is not None and suppressed is not None:
            asked = delivered + suppressed
        found.append(
            Entry(
                key=pod.key,
                account=(account or {}).get(pod.key, pod.namespace),
                asked_millicores=asked,
                delivered_millicores=delivered,
                suppressed_millicores=suppressed,
            )
        )
    return found


def _suppressed(
    slo: NodeSlo, request: int | None, delivered: float | None, by_quota: float | None, bound: bool | None
) -> float | None:
    room = None if request is None or delivered is None else max(request - delivered, 0.0)
    if by_quota:  # held by a quota, of suppression or of isolation
        return by_quota if room is None else min(by_quota, room)
    if not slo.threshold.enable or bound is False:
        return 0.0
    if cpu_suppress.uses_quota(slo.threshold):
        return by_quota  # 0, or not known
    return room if bound else None


def _is_bound(snapshot: Snapshot, slo: NodeSlo, used: Mapping[str, float], complete: bool) -> bool | None:
    """Return whether offline work uses nearly all that suppression leaves it; None where that is not known."""
    if not slo.threshold.enable:
        return False
    target = cpu_suppress.target_millicores(snapshot, slo)
    if target is None or not complete:
        return None
    allowed = max(target, offline_quota.floor_cpus(snapshot.cpu_count) * 1000)
    return sum(used.values()) >= BINDING_RATIO * allowed
