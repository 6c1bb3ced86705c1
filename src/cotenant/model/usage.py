"""What everybody uses, worked out of one sample and the groups of the pods: the input of usage-driven strategies."""

from collections.abc import Mapping

from cotenant.model.node import Usage, Use
from cotenant.model.sample import Cgroup, Sample


def of_sample(sample: Sample, pods: Mapping[str, str], capacity_memory_bytes: int | None) -> Usage:
    """Return the usage that a sample shows. ``pods`` maps the path of a pod's group to ``namespace/name``.

    CPU is in millicores of the sample's period. What the sample does not know stays None; ``system`` is what no pod
    uses, and unknown as soon as one pod's CPU is.
    """
    online = sample.cpu.online
    groups = {group.path: group for group in sample.cgroups}
    used = {name: _use(groups.get(path), online) for path, name in pods.items()}
    node = Use(
        cpu_millicores=_millicores(sample.cpu.used_ratio, online),
        memory_bytes=_memory(sample.memory.available_ratio, capacity_memory_bytes),
    )
    return Usage(node=node, system=_rest(node, list(used.values())), pods=used)


def _use(group: Cgroup | None, online: int | None) -> Use:
    if group is None:
        return Use()
    return Use(
        cpu_millicores=_millicores(group.cpu_used_ratio, online),
        memory_bytes=group.memory_bytes,
        throttled_ratio=group.throttled_ratio,
    )


def _millicores(ratio: float | None, online: int | None) -> float | None:
    return None if ratio is None or online is None else ratio * online * 1000


def _memory(available_ratio: float | None, capacity_bytes: int | None) -> int | None:
    return None if available_ratio is None or not capacity_bytes else round((1 - available_ratio) * capacity_bytes)


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
