"""Memory that a class keeps, and the point from which it is slowed down instead of others."""

import dataclasses
from collections.abc import Mapping

import msgspec

from cotenant.act.draft import Draft
from cotenant.act.registry import strategy
from cotenant.model import policy
from cotenant.model.pod import BATCH_MEMORY, MEMORY_QOS_ANNOTATION, Container, KubeQos, Pod
from cotenant.model.policy import DEFAULT_MEMORY_QOS, NO_MEMORY_QOS, ClassName, MemoryQos, NodeSlo
from cotenant.model.snapshot import ContainerGroup, PodGroup, Snapshot
from cotenant.units.limit import NONE, Limit

_CLASS_OF: Mapping[str, ClassName] = {"LSE": "LSR", "LSR": "LSR", "LS": "LS", "BE": "BE", "SYSTEM": "SYSTEM"}
_DIRECTORY_CLASS: Mapping[KubeQos, ClassName] = {"Guaranteed": "LSR", "Burstable": "LS", "BestEffort": "BE"}
_FIELDS = (
    "enable", "minLimitPercent", "lowLimitPercent", "throttlingPercent", "wmarkRatio", "wmarkScalePermill",
    "wmarkMinAdj", "priorityEnable", "priority", "oomKillGroup", "pageCacheEnable", "pageCacheLimitPercent",
    "pageCacheLimitSize", "pageCacheReclaimSync",
)  # fmt: skip
_HIGH_ASYNC_RATIO = 80
"""Percent of ``memory.high`` at which openEuler starts to reclaim in the background, before anybody is slowed."""


def high_bytes(request: int, limit: int, percent: int, page_bytes: int = 4096) -> int:
    """Return ``memory.high``: a share of the way from the request to the limit, in whole pages.

    A limit below the request counts as equal to it.
    """
    return (request * 100 + max(limit - request, 0) * percent) // 100 // page_bytes * page_bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Guarantee:
    """What one group keeps."""

    min_bytes: int
    low_bytes: int

    def __add__(self, other: "Guarantee") -> "Guarantee":
        return Guarantee(self.min_bytes + other.min_bytes, self.low_bytes + other.low_bytes)


def guarantee(request: int, qos: MemoryQos) -> Guarantee:
    """Return what a memory request keeps: ``low`` is at least ``min`` where it is set at all."""
    least = request * (qos.min_limit_percent or 0) // 100
    low = request * (qos.low_limit_percent or 0) // 100
    return Guarantee(least, max(low, least) if low else 0)


def settings(draft: Draft, slo: NodeSlo, pod: Pod) -> MemoryQos | None:
    """Return a pod's settings: annotation fields over its policy's template over its class; None for "leave alone"."""
    name = _CLASS_OF.get(pod.qos_label or "") or _DIRECTORY_CLASS[pod.kube_qos]
    chosen = pod.memory_qos.get("policy")
    given = {key: value for key, value in pod.memory_qos.items() if key not in ("policy", "enable")}
    if chosen == "auto":
        base = DEFAULT_MEMORY_QOS[name]
    elif chosen == "none":
        base = NO_MEMORY_QOS
    elif not enabled(slo, name) and not given:
        return None
    else:
        base = of_class(slo, name)
    merged, complaints = policy.override(base, given, f"pod {pod.key}: annotation {MEMORY_QOS_ANNOTATION}")
    draft.notices.extend(complaints)
    return merged


def enabled(slo: NodeSlo, name: ClassName) -> bool:
    """Return whether a class has memory QoS."""
    return bool(slo.qos.of(name).memory_qos.enable)


def of_class(slo: NodeSlo, name: ClassName) -> MemoryQos:
    """Return the settings of a class, defaults filled in; those of "none" where it is not enabled."""
    if not enabled(slo, name):
        return NO_MEMORY_QOS
    own = slo.qos.of(name).memory_qos
    given = {f: value for f in own.__struct_fields__ if (value := getattr(own, f)) is not None and f != "enable"}
    return msgspec.structs.replace(DEFAULT_MEMORY_QOS[name], **given)


@strategy(
    "memory_qos",
    fields=tuple(
        f"spec.resourceQOSStrategy.{name}Class.memoryQOS.{field}"
        for name in ("lsr", "ls", "be", "system")
        for field in _FIELDS
    ),
    features=("memory.min", "memory.low", "memory.high", "memory.soft_limit_in_bytes", "memory.wmark_ratio"),
)
def decide(draft: Draft, slo: NodeSlo) -> None:
    """Protect what online work asked for, and slow offline work down before the node runs short.

    ``min`` and ``low`` go to containers, pods and QoS directories (sums of the pods below, never more than the node);
    ``high`` to containers, and to a pod as the sum when all of its containers have one. Watermarks, priorities and
    pods' page-cache limits are written where the kernel has them (Anolis), background reclaim on openEuler. On v1
    without ``memory.low``, the soft limit stands in for it.
    """
    sums: dict[KubeQos, Guarantee] = {}
    touched = False
    for group in draft.snapshot.groups:
        if group.pod is None or not group.pod.active:
            continue
        qos = settings(draft, slo, group.pod)
        if qos is None:
            _release(draft, group)
            continue
        touched = True
        total = _pod(draft, group, group.pod, qos)
        sums[group.qos] = sums.get(group.qos, Guarantee(0, 0)) + total
    if touched or any(enabled(slo, name) for name in ("LSR", "LS", "BE")):
        _directories(draft, slo, sums)
    else:
        for path in draft.snapshot.qos_paths.values():
            _release_files(draft, path)


def _pod(draft: Draft, group: PodGroup, pod: Pod, qos: MemoryQos) -> Guarantee:
    snapshot = draft.snapshot
    who = f"pod {pod.key}"
    total = Guarantee(0, 0)
    highs: list[Limit] = []
    for container in pod.containers:
        total += guarantee(_request(pod, container), qos)
        highs.append(_high(snapshot, pod, container, qos))
    _guarantee(draft, group.path, total, who)
    known = [limit.value for limit in highs if limit.value is not None]
    pod_high = Limit(sum(known)) if highs and len(known) == len(highs) else NONE
    _state_high(draft, group.path, pod_high, who)
    _vendor(draft, group.path, qos, who)
    limits = [_limit(pod, container) for container in pod.containers]
    _page_cache(draft, group.path, qos, None if None in limits else sum(filter(None, limits)), who)
    by_name = dict(zip((c.name for c in pod.containers), highs, strict=True))
    for child in group.containers:
        if child.container is not None:
            _container(draft, pod, child, qos, by_name[child.container.name])
    return total


def _container(draft: Draft, pod: Pod, child: ContainerGroup, qos: MemoryQos, high: Limit) -> None:
    container = child.container
    if container is None:
        return
    who = f"pod {pod.key}: container {container.name}"
    _guarantee(draft, child.path, guarantee(_request(pod, container), qos), who)
    _state_high(draft, child.path, high, who)
    _vendor(draft, child.path, qos, who)


def _high(snapshot: Snapshot, pod: Pod, container: Container, qos: MemoryQos) -> Limit:
    limit = _limit(pod, container) or snapshot.node.allocatable_memory_bytes or snapshot.node.capacity_memory_bytes
    if not qos.throttling_percent or limit is None:
        return NONE
    request = _request(pod, container)
    high = high_bytes(request, limit, qos.throttling_percent, snapshot.page_bytes)
    return Limit(max(high, guarantee(request, qos).min_bytes))


def _request(pod: Pod, container: Container) -> int:
    batch = container.extended_request(BATCH_MEMORY)
    return batch if pod.qos_label == "BE" and batch else container.request_memory_bytes()


def _limit(pod: Pod, container: Container) -> int | None:
    batch = container.extended_limit(BATCH_MEMORY) if pod.qos_label == "BE" else None
    return batch or container.limit_memory_bytes()


def _guarantee(draft: Draft, path: str, kept: Guarantee, who: str) -> None:
    has_min = draft.set("memory", path, "memory.min", str(kept.min_bytes), f"{who}: keeps its share of the request")
    has_low = draft.set("memory", path, "memory.low", str(kept.low_bytes), f"{who}: keeps its share of the request")
    if not has_min and not has_low and draft.snapshot.version("memory") == 1 and kept.low_bytes:
        reason = f"{who}: no memory.low here, the soft limit stands in"
        draft.set("memory", path, "memory.soft_limit_in_bytes", str(kept.low_bytes), reason)


def _state_high(draft: Draft, path: str, high: Limit, who: str) -> None:
    if high.unlimited:
        draft.set("memory", path, "memory.high", "max", f"{who}: not throttled")
        return
    draft.set("memory", path, "memory.high", high.v2(), f"{who}: throttled before its limit")
    draft.set("memory", path, "memory.high_async_ratio", str(_HIGH_ASYNC_RATIO), f"{who}: reclaimed early")


def _vendor(draft: Draft, path: str, qos: MemoryQos, who: str) -> None:
    """State what only Anolis has; elsewhere the files do not exist (``memory.oom.group`` does, on v2)."""
    values = {
        "memory.wmark_ratio": qos.wmark_ratio,
        "memory.wmark_scale_factor": qos.wmark_scale_permill,
        "memory.wmark_min_adj": qos.wmark_min_adj,
        "memory.use_priority_oom": qos.priority_enable,
        "memory.priority": qos.priority,
        "memory.oom.group": qos.oom_kill_group,
    }
    for file, value in values.items():
        if value is not None:
            draft.set("memory", path, file, str(value), f"{who}: memory QoS of its class")


def page_cache_bytes(qos: MemoryQos, limit: int | None) -> int | None:
    """Return how much page cache a pod may hold, 0 for no limit of its own, or None where nothing is said of it.

    An absolute size wins over a percentage of the pod's memory limit, and neither is more than that limit.
    """
    if qos.page_cache_limit_size is not None:
        return qos.page_cache_limit_size if limit is None else min(qos.page_cache_limit_size, limit)
    if qos.page_cache_limit_percent is None or (limit is None and qos.page_cache_limit_percent):
        return None
    return (limit or 0) * qos.page_cache_limit_percent // 100


def _page_cache(draft: Draft, path: str, qos: MemoryQos, limit: int | None, who: str) -> None:
    """State what a pod's page cache is held to: the size before it is switched on."""
    size = page_cache_bytes(qos, limit)
    on = bool(size) if qos.page_cache_enable is None else qos.page_cache_enable
    if size is not None:
        draft.set("memory", path, "memory.pagecache_limit.size", str(size), f"{who}: page cache limit")
    if size:
        sync = "1" if qos.page_cache_reclaim_sync else "0"
        draft.set("memory", path, "memory.pagecache_limit.sync", sync, f"{who}: page cache limit")
    if size is not None or qos.page_cache_enable is not None:
        draft.set("memory", path, "memory.pagecache_limit.enable", "1" if on else "0", f"{who}: page cache limit")


def _directories(draft: Draft, slo: NodeSlo, sums: Mapping[KubeQos, Guarantee]) -> None:
    snapshot = draft.snapshot
    everything = sum(sums.values(), Guarantee(0, 0))
    most = snapshot.node.capacity_memory_bytes
    for qos, path in snapshot.qos_paths.items():
        kept = everything if qos == "Guaranteed" else sums.get(qos, Guarantee(0, 0))
        if most is not None:
            kept = Guarantee(min(kept.min_bytes, most), min(kept.low_bytes, most))
        who = f"sum of {'all' if qos == 'Guaranteed' else qos} pods"
        draft.set("memory", path, "memory.min", str(kept.min_bytes), who)
        draft.set("memory", path, "memory.low", str(kept.low_bytes), who)
        of = of_class(slo, _DIRECTORY_CLASS[qos])
        if qos != "Guaranteed" and enabled(slo, _DIRECTORY_CLASS[qos]):
            draft.set("memory", path, "memory.priority", str(of.priority or 0), f"class of {qos} pods")
            draft.set("memory", path, "memory.use_priority_oom", str(of.priority_enable or 0), f"class of {qos} pods")


_RELEASED: Mapping[str, str] = {
    "memory.min": "0",
    "memory.low": "0",
    "memory.high": "max",
    "memory.high_async_ratio": "0",
    "memory.soft_limit_in_bytes": "-1",
    "memory.wmark_ratio": "0",
    "memory.wmark_scale_factor": "50",
    "memory.wmark_min_adj": "0",
    "memory.use_priority_oom": "0",
    "memory.priority": "0",
    "memory.oom.group": "0",
    "memory.pagecache_limit.enable": "0",
}


def _release(draft: Draft, group: PodGroup) -> None:
    _release_files(draft, group.path)
    for child in group.containers:
        _release_files(draft, child.path)


def _release_files(draft: Draft, path: str) -> None:
    for file, value in _RELEASED.items():
        draft.release(draft.snapshot.path("memory", path, file), value, "memory QoS is off")
