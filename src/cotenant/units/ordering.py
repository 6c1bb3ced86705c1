"""In which order a plan's writes are safe: none is refused, and no leaf group is ever freer than at both ends.

Two movements for anything that limits: first everything that tightens, children before parents, then everything that
loosens, parents before children. A CPU set has no direction: its parents hold the union of before and after on the
way. What depends on something else in the same group (burst on quota, weight on idle, low on high) follows it.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

import msgspec

from cotenant.units import contents, cpulist
from cotenant.units.plan import PlanItem

QUOTA_FILES = ("cpu.cfs_quota_us", "cpu.max")
BURST_FILES = ("cpu.cfs_burst_us", "cpu.max.burst")
_BURST_BESIDE = dict(zip(QUOTA_FILES, BURST_FILES, strict=True))
WEIGHT_FILES = ("cpu.shares", "cpu.weight", "cpu.weight.nice")
CPUSET_FILES = ("cpuset.cpus", "cpuset.mems")
CHAINS: tuple[tuple[str, ...], ...] = (
    ("memory.min", "memory.low", "memory.high", "memory.max"),
    ("memory.min", "memory.low", "memory.high", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
)
"""Files of one group whose values ascend; kept ascending at every step."""

IDENTITY_SYSCTL = "sched_group_identity_enabled"
CORE_SYSCTL = "sched_core"
BVT_FILE = "cpu.bvt_warp_ns"

MAX_QUOTA = Fraction(1 << 62)
MIN_QUOTA_USEC = 1000
"""The kernel takes no less."""
_FIRST_OPS = ("mkdir",)
_LAST_OPS = {"move_task": 0, "set_policy": 1, "core_cookie": 2, "rmdir": 3, "evict": 4}


def order(items: Sequence[PlanItem], current: Mapping[str, str]) -> list[PlanItem]:
    """Return the items in a safe order, with the steps in between that safety needs.

    ``current`` is the content of every file that is known, by path; the more groups it covers, the safer the order.
    Directories are made first and tasks moved last; evictions come after everything else. Items that write the same
    file twice keep the last value. An item that the others make impossible (a weight of a group that is or becomes
    idle; core scheduling beside group identity) is left out.
    """
    writes = _last_of_each([item for item in items if item.op == "write"])
    writes = _without_impossible(writes, current)
    limits: list[PlanItem] = []
    before, after = _switches(writes, current)
    rest: list[PlanItem] = []
    for item in writes:
        if item in before or item in after:
            continue
        (limits if _is_limit(item) else rest).append(item)
    tighten, loosen = _limits(limits, current)
    others = [item for item in items if item.op != "write"]
    made = [item for item in others if item.op in _FIRST_OPS]
    last = sorted((item for item in others if item.op not in _FIRST_OPS), key=lambda item: _LAST_OPS[item.op])
    return [*before, *made, *tighten, *_after_idle(rest), *loosen, *after, *last]


def _directory(path: str) -> str:
    return path.rpartition("/")[0]


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _path(item: PlanItem) -> str:
    return item.path or ""


def _depth(path: str) -> int:
    return path.count("/")


def _last_of_each(items: Iterable[PlanItem]) -> list[PlanItem]:
    """Keep one write of each file (of each line of a keyed file), the last one."""
    kept: dict[tuple[str, ...], PlanItem] = {}
    for item in items:
        name = _name(_path(item))
        new = item.new or ""
        key = (_path(item), *sorted(contents.lines_of(name, new))) if contents.KEYED.match(name) else (_path(item),)
        if name in contents.TOGGLES:
            key = (_path(item), new)
        kept.pop(key, None)
        kept[key] = item
    return list(kept.values())


def _final(path: str, writes: Mapping[str, PlanItem], current: Mapping[str, str]) -> str | None:
    item = writes.get(path)
    return (item.new or "").strip() if item else current.get(path, "").strip() or None


def _without_impossible(items: list[PlanItem], current: Mapping[str, str]) -> list[PlanItem]:
    writes = {_path(item): item for item in items}

    def possible(item: PlanItem) -> bool:
        path = _path(item)
        if _name(path) in WEIGHT_FILES:
            return _final(f"{_directory(path)}/cpu.idle", writes, current) != "1"
        if _name(path) == CORE_SYSCTL and item.new == "1":
            return _final(f"{_directory(path)}/{IDENTITY_SYSCTL}", writes, current) != "1"
        return True

    return [item for item in items if possible(item)]


def _switches(items: list[PlanItem], current: Mapping[str, str]) -> tuple[list[PlanItem], list[PlanItem]]:
    """Return the node-wide switches that go before the groups, and those that go after.

    What excludes another feature is turned off before that one is turned on; a feature is turned off only after every
    group has been put back, and on before the first group is written.
    """
    before: list[PlanItem] = []
    after: list[PlanItem] = []
    identity_ends = any(_name(_path(item)) == IDENTITY_SYSCTL and item.new == "0" for item in items)
    for item in items:
        if not _path(item).startswith("proc/sys/kernel/") and not _path(item).startswith("proc/sys/vm/memcg"):
            continue
        name = _name(_path(item))
        if name == CORE_SYSCTL:
            # Never beside group identity: off comes first of all, on comes last of all. Where there is no such
            # identity (generation 2), levels need core scheduling on before they are written.
            (after if item.new != "0" and _has_identity(items, current) else before).insert(0, item)
        elif item.new == "0":
            after.insert(0, item)
        elif not identity_ends or name != IDENTITY_SYSCTL:
            before.append(item)
    if any(_name(_path(item)) == CORE_SYSCTL and item.new == "1" for item in after):
        after.sort(key=lambda item: _name(_path(item)) == CORE_SYSCTL)
    return before, after


def _has_identity(items: list[PlanItem], current: Mapping[str, str]) -> bool:
    """Return whether this kernel has the group identity that core scheduling excludes."""
    return any(_name(path) in (IDENTITY_SYSCTL, BVT_FILE) for path in (*map(_path, items), *current))


def _after_idle(items: list[PlanItem]) -> list[PlanItem]:
    """Put a group's weight after its ``cpu.idle``: leaving idle forgets the weight."""
    return sorted(items, key=lambda item: _name(_path(item)) in WEIGHT_FILES)


def _is_limit(item: PlanItem) -> bool:
    name = _name(_path(item))
    return name in QUOTA_FILES or name in BURST_FILES or name in CPUSET_FILES or _chain_rank(name) is not None


def _chain_rank(name: str) -> int | None:
    for chain in CHAINS:
        if name in chain:
            return chain.index(name)
    return None


def _limits(items: list[PlanItem], current: Mapping[str, str]) -> tuple[list[PlanItem], list[PlanItem]]:
    tighten: list[PlanItem] = []
    loosen: list[PlanItem] = []
    for part in (_quotas, _chains, _cpusets):
        first, second = part(items, current)
        tighten += first
        loosen += second
    return tighten, loosen


# --- quota and burst ------------------------------------------------------------------------------------------------


def _period(path: str, current: Mapping[str, str]) -> Fraction:
    if _name(path) == "cpu.max":
        words = current.get(path, "").split()
        return Fraction(words[1]) if len(words) > 1 else Fraction(100000)
    return Fraction((current.get(f"{_directory(path)}/cpu.cfs_period_us") or "100000").strip() or "100000")


def _quota_usec(text: str | None) -> Fraction:
    """Return the quota of a file's text; no quota, and a text that is not one, are :data:`MAX_QUOTA`."""
    words = (text or "").split()
    try:
        value = Fraction(words[0]) if words and words[0] != "max" else MAX_QUOTA
    except ValueError:
        return MAX_QUOTA
    return MAX_QUOTA if value < 0 else value


def _ratio(path: str, text: str | None, current: Mapping[str, str]) -> Fraction:
    quota = _quota_usec(text)
    words = (text or "").split()
    period = Fraction(words[1]) if len(words) > 1 else _period(path, current)
    return quota if quota == MAX_QUOTA else quota / period


def _quota_text(path: str, ratio: Fraction, current: Mapping[str, str]) -> str:
    period = _period(path, current)
    usec = int(ratio * period)
    return f"{usec} {period}" if _name(path) == "cpu.max" else str(usec)


def _quotas(items: list[PlanItem], current: Mapping[str, str]) -> tuple[list[PlanItem], list[PlanItem]]:
    """Bring every group down to the tightest it will ever be, leaves first; then up to its own quota, parents first.

    A group without a quota of its own has its parent's: while that changes, it holds the tighter of both ends itself.
    v1 refuses a child above its parent and a parent below its child. Bursts are lowered before any quota and raised
    after all of them.
    """
    quotas = {_path(item): item for item in items if _name(_path(item)) in QUOTA_FILES}
    bursts = {_path(item): item for item in items if _name(_path(item)) in BURST_FILES}

    @functools.cache
    def limit(path: str, at_end: bool) -> Fraction:
        """Return the tightest of a group's own and its ancestors' quotas, at the start or at the end."""
        text = (
            _final(path, quotas, current) if at_end else current.get(path, quotas[path].old if path in quotas else None)
        )
        own = _ratio(path, text, current)
        parent = _parent_file(path)
        return min(own, limit(parent, at_end)) if parent in quotas or parent in current else own

    down: list[PlanItem] = []
    up: list[PlanItem] = []
    for path in sorted(quotas, key=lambda path: (-_depth(path), path)):
        item = quotas[path]
        old = _ratio(path, current.get(path, item.old), current)
        new = _ratio(path, item.new, current)
        low = min(limit(path, False), limit(path, True))
        if low < old and low != new and int(low * _period(path, current)) < MIN_QUOTA_USEC:
            down.append(item)  # too little to be said in so short a period: it is held by the one around it
        elif low < old:
            text = item.new if low == new else _quota_text(path, low, current)
            down.append(msgspec.structs.replace(item, new=text))
            if new > low:
                up.append(msgspec.structs.replace(item, old=text))
        else:
            up.append(item)
    up.sort(key=lambda item: _depth(_path(item)))
    lowered, raised = _bursts(bursts, [*down, *up], current)
    return [*lowered, *down], [*up, *raised]


def _parent_file(path: str) -> str:
    return f"{_directory(_directory(path))}/{_name(path)}"


def _bursts(
    bursts: Mapping[str, PlanItem], quota_steps: list[PlanItem], current: Mapping[str, str]
) -> tuple[list[PlanItem], list[PlanItem]]:
    """Return the bursts to lower first and to raise last. A burst that a coming quota does not allow is lowered too,
    asked for or not, since the kernel would refuse the quota; and put back if the last quota allows it. Where a burst
    passes its quota now, the kernel (Anolis, v1) has no such rule."""
    allowed: dict[str, int] = {}
    last: dict[str, Fraction] = {}
    causes: dict[str, PlanItem] = {}
    free: set[str] = set()
    for step in quota_steps:
        path = f"{_directory(_path(step))}/{_BURST_BESIDE[_name(_path(step))]}"
        burst = current.get(path, bursts[path].old if path in bursts else None)
        if path not in last and step.old is not None and _whole(burst) > _quota_usec(step.old):
            free.add(path)
        quota_usec = last[path] = _quota_usec(step.new)
        if path not in free and quota_usec < allowed.get(path, MAX_QUOTA):
            allowed[path], causes[path] = int(quota_usec), step
    lowered, raised = [], []
    for path in sorted({*bursts, *causes}):
        wanted = bursts.get(path)
        have = _whole(current.get(path, wanted.old if wanted else None))
        target = have if wanted is None else _whole(wanted.new)
        low = min(have, target, allowed.get(path, have))
        if low < have:
            source = wanted or causes[path]
            reason = source.reason if low == target and wanted else f"a burst may not pass its quota; {source.reason}"
            lowered.append(msgspec.structs.replace(source, path=path, old=str(have), new=str(low), reason=reason))
            if wanted is None and low < last[path] < MAX_QUOTA:
                back = str(min(have, int(last[path])))
                raised.append(msgspec.structs.replace(source, path=path, old=str(low), new=back, reason=reason))
        if wanted is not None and (target > low or low == have):
            raised.append(msgspec.structs.replace(wanted, old=str(low)) if low < have else wanted)
    return lowered, raised


def _whole(text: str | None) -> int:
    """Return a burst's text as a number; unknown is none."""
    word = (text or "").strip()
    return int(word) if word.isdigit() else 0


# --- chains of memory limits ----------------------------------------------------------------------------------------


def _bytes(file: str, text: str | None) -> int:
    value = contents.normal(file, text or "max")
    return int(value) if value.lstrip("-").isdigit() else contents.PAGE_COUNTER_MAX_BYTES


def _chains(items: list[PlanItem], current: Mapping[str, str]) -> tuple[list[PlanItem], list[PlanItem]]:
    """Lower from the smallest of the chain up and from the leaves up; raise from the largest down, parents first."""
    first: list[tuple[int, int, PlanItem]] = []
    second: list[tuple[int, int, PlanItem]] = []
    for item in items:
        path = _path(item)
        rank = _chain_rank(_name(path))
        if rank is None:
            continue
        old = _bytes(_name(path), current.get(path, item.old))
        if _bytes(_name(path), item.new) > old:
            second.append((_depth(path), -rank, item))
        else:
            first.append((-_depth(path), rank, item))
    return [row[2] for row in sorted(first, key=_row)], [row[2] for row in sorted(second, key=_row)]


def _row(row: tuple[int, int, PlanItem]) -> tuple[int, int, str]:
    return row[0], row[1], _path(row[2])


# --- CPU sets -------------------------------------------------------------------------------------------------------


def _cpus(text: str | None) -> frozenset[int]:
    try:
        return cpulist.parse(text or "")
    except cpulist.BadCpuList:
        return frozenset()


def _cpusets(items: list[PlanItem], current: Mapping[str, str]) -> tuple[list[PlanItem], list[PlanItem]]:
    """Widen parents to the union on the way down, then write the final sets on the way up.

    Only a parent whose children in the plan name CPUs of their own needs the union. Everything is in the second
    movement: a CPU set neither tightens nor loosens as a whole.
    """
    sets = {_path(item): item for item in items if _name(_path(item)) in CPUSET_FILES}
    parents = {
        _parent_file(path) for path, item in sets.items() if _cpus(item.new) or _cpus(current.get(path, item.old))
    }
    down: list[PlanItem] = []
    held: dict[str, str] = {}
    for path in sorted(parents & sets.keys(), key=_depth):
        item = sets[path]
        old, new = _cpus(current.get(path, item.old)), _cpus(item.new)
        if new <= old:
            continue
        held[path] = (item.new or "") if old <= new else cpulist.render(old | new)
        reason = item.reason if old <= new else f"holds both while groups move; {item.reason}"
        down.append(msgspec.structs.replace(item, new=held[path], reason=reason))
    up = [
        msgspec.structs.replace(sets[path], old=held.get(path, sets[path].old))
        for path in sorted(sets, key=lambda path: (-_depth(path), path))
        if held.get(path) != (sets[path].new or "")
    ]
    return [], [*down, *up]
