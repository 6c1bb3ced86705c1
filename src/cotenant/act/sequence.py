"""The steps of a plan in an order that the kernel accepts, by what files hold beside, above and below those written."""

from collections.abc import Iterable, Iterator

from cotenant.model.snapshot import Snapshot
from cotenant.units import ordering
from cotenant.units.plan import PlanItem

_BESIDE = (
    *ordering.QUOTA_FILES,
    *ordering.BURST_FILES,
    *ordering.CPUSET_FILES,
    *dict.fromkeys(name for chain in ordering.CHAINS for name in chain),
    "cpu.cfs_period_us",
    "cpu.idle",
)
"""Files whose value decides in which order others of the same group may be written."""


def ordered(snapshot: Snapshot, items: Iterable[PlanItem]) -> tuple[PlanItem, ...]:
    """Return the items in a safe order, with the steps in between that safety needs."""
    steps = tuple(items)
    return tuple(ordering.order(steps, _current(snapshot, steps)))


def _current(snapshot: Snapshot, items: tuple[PlanItem, ...]) -> dict[str, str]:
    """Return the content of what bears on the order of the writes: files beside them, above and below."""
    written = {(item.path or "").rpartition("/")[0] for item in items if item.op == "write"}
    if not written:
        return {}
    groups = {group.path for group in snapshot.groups}
    groups |= {child.path for group in snapshot.groups for child in group.containers}
    groups |= set(snapshot.qos_paths.values())
    above = {place for path in written for place in _upwards(path)}
    tops = {hierarchy.path for hierarchy in snapshot.hierarchies.values()} & above
    places = {f"{top}/{group}" for top in tops for group in groups}
    related = {place for place in places if place in above or any(p in written for p in _upwards(place))} | written
    # Groups that nobody lists may be between: what they hold counts as well.
    related |= {place for place in above if any(place.startswith(f"{top}/") for top in tops)}
    files = snapshot.files
    paths = (f"{place}/{name}" for place in sorted(related) for name in _BESIDE)
    found = {path: files.read(path) for path in paths if files.exists(path)}
    found |= {item.path: item.old for item in items if item.op == "write" and item.path}
    return {path: text for path, text in found.items() if text is not None}


def _upwards(path: str) -> Iterator[str]:
    """Yield a path and every directory above it."""
    while path:
        yield path
        path = path.rpartition("/")[0]
