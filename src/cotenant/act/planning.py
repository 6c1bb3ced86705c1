"""All strategies together: one snapshot and one policy in, one plan out."""

import dataclasses
from collections.abc import Sequence

from cotenant.act import (
    batch_resources,
    block_io,
    core_sched,
    cpu_burst,
    cpu_evict,
    cpu_normalization,
    cpu_suppress,
    cpuset,
    group_identity,
    memory_evict,
    memory_qos,
    network,
    resctrl,
    system,
)
from cotenant.act.draft import Draft, Plan, merge
from cotenant.act.registry import ORDER, STRATEGIES
from cotenant.model.policy import NodeSlo
from cotenant.model.snapshot import Snapshot
from cotenant.units import ordering

_BESIDE = (
    *ordering.QUOTA_FILES,
    *ordering.BURST_FILES,
    *ordering.CPUSET_FILES,
    *dict.fromkeys(name for chain in ordering.CHAINS for name in chain),
    "cpu.cfs_period_us",
    "cpu.idle",
)
"""Files whose value decides in which order others of the same group may be written."""

MODULES = (
    group_identity,
    cpu_suppress,
    cpuset,
    batch_resources,
    cpu_burst,
    cpu_normalization,
    memory_qos,
    cpu_evict,
    memory_evict,
    resctrl,
    block_io,
    system,
    network,
    core_sched,
)
"""Importing them is what registers them."""


def plan(snapshot: Snapshot, slo: NodeSlo, names: tuple[str, ...] = ORDER, first: Sequence[Draft] = ()) -> Plan:
    """Return what the named strategies want done to a node; nothing for what is right already.

    ``first`` are drafts of whoever keeps state from one time to the next; they own what they want.
    """
    drafts = [*first]
    for name in names:
        draft = Draft(snapshot, name)
        STRATEGIES[name].decide(draft, slo)
        drafts.append(draft)
    merged = merge(snapshot, drafts)
    misread = tuple(f"pod {pod.key}: {problem}" for pod in snapshot.pods for problem in pod.problems)
    misread += snapshot.node.problems
    items = tuple(ordering.order(merged.items, _current(snapshot, merged)))
    return dataclasses.replace(merged, items=items, notices=misread + merged.notices)


def _current(snapshot: Snapshot, merged: Plan) -> dict[str, str]:
    """Return the content of what bears on the order of the plan's writes: files beside them, above and below."""
    groups = {group.path for group in snapshot.groups}
    groups |= {child.path for group in snapshot.groups for child in group.containers}
    groups |= set(snapshot.qos_paths.values())
    written = {(item.path or "").rpartition("/")[0] for item in merged.items if item.op == "write"}
    places = {f"{hierarchy.path}/{group}" for hierarchy in snapshot.hierarchies.values() for group in groups}
    related = {place for place in places if any(_related(place, other) for other in written)} | written
    found = {f"{place}/{name}": snapshot.files.read(f"{place}/{name}") for place in sorted(related) for name in _BESIDE}
    found |= {item.path: item.old for item in merged.items if item.op == "write" and item.path}
    return {path: text for path, text in found.items() if text is not None}


def _related(place: str, other: str) -> bool:
    return place == other or place.startswith(f"{other}/") or other.startswith(f"{place}/")
