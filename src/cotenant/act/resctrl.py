"""Last-level cache ways and memory bandwidth by class."""

from collections.abc import Mapping

from cotenant.act import tasks
from cotenant.act.draft import Draft
from cotenant.act.registry import strategy
from cotenant.model.policy import DEFAULT_CAT_RANGE, ClassName, NodeSlo, ResctrlQos
from cotenant.model.snapshot import Snapshot
from cotenant.units import contents
from cotenant.units.plan import PlanItem

CLASSES: tuple[ClassName, ...] = ("LSR", "LS", "BE")
_CLASS_OF: Mapping[str, ClassName] = {"LSE": "LSR", "LSR": "LSR", "LS": "LS", "BE": "BE"}
AMD_UNLIMITED = 2048
AMD_UNITS = 160
"""Eighths of a GB/s that a share of 100 % would be, short of no limit."""
_OWN = frozenset({"info", "mon_data", "mon_groups"})


def cache_mask(ways: int, start_percent: int, end_percent: int, min_bits: int = 1) -> int:
    """Return the contiguous mask of a range of a cache with so many ways; never fewer bits than the kernel takes.

    :raises ValueError: if the range is empty or backwards.
    """
    if not 0 <= start_percent < end_percent <= 100:
        raise ValueError(f"cache range {start_percent}..{end_percent} % is empty")
    bits = min(max(min_bits, 1), ways)
    end = -(-ways * end_percent // 100)
    start = min(-(-ways * start_percent // 100), ways - bits)
    end = max(end, start + bits)
    return (1 << end) - (1 << start)


def bandwidth(percent: int, *, amd: bool, step: int = 10, least: int = 10) -> int:
    """Return the ``MB`` value of a share: percent in the hardware's steps, on AMD eighths of a GB/s."""
    if amd:
        return AMD_UNLIMITED if percent >= 100 else max(AMD_UNITS * percent // 100, 1)
    return min(max(-(-percent // step) * step, least), 100)


@strategy(
    "resctrl",
    fields=tuple(
        f"spec.resourceQOSStrategy.{name}Class.resctrlQOS.{field}"
        for name in ("lsr", "ls", "be")
        for field in ("enable", "catRangeStartPercent", "catRangeEndPercent", "mbaPercent")
    ),
    features=("resctrl",),
)
def decide(draft: Draft, slo: NodeSlo) -> None:
    """Give each class its own group with cache ways and bandwidth, and move all threads of its pods there.

    A mask is contiguous, has at least one bit, and is written for every cache that the hardware lists. When the
    hardware has no group left, the class stays in the default group and that is said.
    """
    enabled = [name for name in CLASSES if slo.qos.of(name).resctrl_qos.enable]
    base = draft.snapshot.resctrl
    if base is None:
        if enabled:
            draft.skipped.append("resctrl is not mounted (mount -t resctrl resctrl, on hardware that has it)")
        return
    for name in CLASSES:
        if name not in enabled and f"{base}/{name}/schemata" in draft.snapshot.journal:
            item = PlanItem(op="rmdir", path=f"{base}/{name}", strategy=draft.strategy, reason=f"class {name} is off")
            draft.step(item)
    room = _groups_left(draft.snapshot, base)
    for name in enabled:
        exists = draft.snapshot.files.exists(f"{base}/{name}")
        if not exists and room <= 0:
            draft.left_out.append(f"class {name}: the hardware has no resctrl group left; it stays in the default one")
            continue
        if not exists:
            room -= 1
            item = PlanItem(op="mkdir", path=f"{base}/{name}", strategy=draft.strategy, reason=f"group of class {name}")
            draft.step(item)
        _schemata(draft, base, name, slo.qos.of(name).resctrl_qos)
        _move(draft, base, name)


def _groups_left(snapshot: Snapshot, base: str) -> int:
    counts = [
        int(text)
        for resource in snapshot.files.directories(f"{base}/info")
        if (text := snapshot.files.read(f"{base}/info/{resource}/num_closids")) and text.isdigit()
    ]
    used = sum(name not in _OWN for name in snapshot.files.directories(base))
    return min(counts, default=1) - 1 - used


def _schemata(draft: Draft, base: str, name: ClassName, qos: ResctrlQos) -> None:
    """State one line for each resource, with every domain that the default group lists."""
    snapshot = draft.snapshot
    domains: dict[str, dict[str, str]] = {}
    for key, full in contents.lines_of("schemata", snapshot.files.read(f"{base}/schemata") or "").items():
        resource, _, domain = key.partition(":")
        domains.setdefault(resource, {})[domain] = full
    lines = []
    for resource, present in domains.items():
        value: str | None = None
        if resource in ("L3", "L3CODE", "L3DATA"):
            value = _mask(draft, base, resource, name, qos)
        elif resource == "MB" and qos.mba_percent is not None:
            value = _bandwidth(draft, base, qos.mba_percent, present)
        if value is not None:
            lines.append(f"{resource}:" + ";".join(f"{domain}={value}" for domain in present))
    if lines:
        path = f"{base}/{name}/schemata"
        draft.create(path, "\n".join(lines), f"cache ways and bandwidth of class {name}")


def _mask(draft: Draft, base: str, resource: str, name: ClassName, qos: ResctrlQos) -> str | None:
    default = DEFAULT_CAT_RANGE[name]
    start = default[0] if qos.cat_range_start_percent is None else qos.cat_range_start_percent
    end = default[1] if qos.cat_range_end_percent is None else qos.cat_range_end_percent
    try:
        full = int(draft.snapshot.files.read(f"{base}/info/{resource}/cbm_mask") or "", 16)
        least = int(draft.snapshot.files.read(f"{base}/info/{resource}/min_cbm_bits") or "1")
        if full <= 0 or full & (full + 1):
            raise ValueError(f"cbm_mask {full:x} is not contiguous from bit 0")
        return f"{cache_mask(full.bit_length(), start, end, least):x}"
    except ValueError as error:
        draft.notices.append(f"class {name}: {resource}: {error}; not written")
        return None


def _bandwidth(draft: Draft, base: str, percent: int, present: Mapping[str, str]) -> str | None:
    snapshot = draft.snapshot
    values = [int(value) for value in present.values() if value.isdigit()]
    if values and max(values) > AMD_UNLIMITED:
        draft.notices.append("resctrl is mounted with mba_MBps: bandwidth in percent does not apply; not written")
        return None
    vendor = snapshot.files.read(f"{snapshot.proc}/cpuinfo") or ""
    amd = "AuthenticAMD" in vendor or bool(values and max(values) > 100)
    return str(
        bandwidth(
            percent,
            amd=amd,
            step=_number(snapshot, f"{base}/info/MB/bandwidth_gran", 10),
            least=_number(snapshot, f"{base}/info/MB/min_bandwidth", 10),
        )
    )


def _number(snapshot: Snapshot, path: str, default: int) -> int:
    text = snapshot.files.read(path) or ""
    return int(text) if text.isdigit() and int(text) > 0 else default


def _move(draft: Draft, base: str, name: ClassName) -> None:
    snapshot = draft.snapshot
    path = f"{base}/{name}/tasks"
    there = set((snapshot.files.read(path) or "").split())
    homes = {task: other for other in CLASSES for task in _tasks(snapshot, f"{base}/{other}/tasks")}
    for group in snapshot.groups:
        if group.pod is None or not group.pod.active or _CLASS_OF.get(group.pod.qos) != name:
            continue
        for task in tasks.subtree(snapshot, group.path):
            if task in there:
                continue
            draft.step(
                PlanItem(
                    op="move_task",
                    path=path,
                    old=f"{base}/{homes[task]}" if task in homes else base,
                    new=task,
                    strategy=draft.strategy,
                    reason=f"pod {group.pod.key} is of class {name}",
                )
            )


def _tasks(snapshot: Snapshot, path: str) -> tuple[str, ...]:
    return tuple((snapshot.files.read(path) or "").split())
