"""What everybody uses, worked out of one sample and the groups of the pods: the input of usage-driven strategies."""

from collections.abc import Mapping

from cotenant.model.node import Usage, Use
from cotenant.model.sample import Cgroup, Sample


def of_sample(
    sample: Sample,
    pods: Mapping[str, str],
    capacity_memory_bytes: int | None,
    applications: Mapping[str, str] | None = None,
    *,
    page_cache: bool = False,
) -> Usage:
    """Return the usage that a sample shows. ``pods`` maps the path of a pod's group to ``namespace/name``,
    ``applications`` that of a host application's group to its name.

    CPU is in millicores of the sample's period. Memory is what cannot be dropped, or with ``page_cache`` all that is
    not free. What the sample does not know stays None; ``system`` is what neither pods nor host applications use, and
    unknown as soon as one of them is.
    """
    online = sample.cpu.online
    groups = {group.path: group for group in sample.cgroups}
    used = {name: _use(groups.get(path), online, page_cache) for path, name in pods.items()}
    beside = {name: _use(groups.get(path), online, page_cache) for path, name in (applications or {}).items()}
    left_ratio = sample.memory.free_ratio if page_cache else sample.memory.available_ratio
    node = Use(
        cpu_millicores=_millicores(sample.cpu.used_ratio, online),
        memory_bytes=_memory(left_ratio, capacity_memory_bytes),
    )
    return Usage(node=node, system=_rest(node, [*used.values(), *beside.values()]), pods=used, host_applications=beside)


def _use(group: Cgroup | None, online: int | None, page_cache: bool) -> Use:
    if group is None:
        return Use()
    # A kernel that does not split the charge, or a sample of an older agent: the whole is what there is to say.
    anon = group.memory_anon_bytes
    return Use(
        cpu_millicores=_millicores(group.cpu_used_ratio, online),
        memory_bytes=group.memory_bytes if page_cache or anon is None else anon,
        throttled_ratio=group.throttled_ratio,
    )


def _millicores(ratio: float | None, online: int | None) -> float | None:
    return None if ratio is None or online is None else ratio * online * 1000


def _memory(left_ratio: float | None, capacity_bytes: int | None) -> int | None:
    return None if left_ratio is None or not capacity_bytes else round((1 - left_ratio) * capacity_bytes)


def _rest(node: Use, pods: list[Use]) -> Use:
    return Use(
        cpu_millicores=_less(node.cpu_millicores, [use.cpu_millicores for use in pods]),
        memory_bytes=_whole(_less(node.memory_bytes, [use.memory_bytes for use in pods])),
    )


def _less(total: float | None, parts: list[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    if total is None or len(known) != len(parts):
        return None
    return max(total - sum(known), 0.0)


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
