"""Block I/O limits, weights and cost models."""

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from cotenant.act import cgroup
from cotenant.act.draft import Draft
from cotenant.act.registry import strategy
from cotenant.model import policy
from cotenant.model.pod import BLKIO_QOS_ANNOTATION
from cotenant.model.policy import BlkioQos, Block, IoConfig, NodeSlo
from cotenant.model.snapshot import Snapshot
from cotenant.units import contents

DEFAULT_LATENCY_USEC = 3000
DEFAULT_LATENCY_PERCENT = 95
_DEVICE_NUMBER = re.compile(r"\d+:\d+")
_THROTTLES = (
    ("blkio.throttle.read_iops_device", "riops", "read_iops"),
    ("blkio.throttle.write_iops_device", "wiops", "write_iops"),
    ("blkio.throttle.read_bps_device", "rbps", "read_bps"),
    ("blkio.throttle.write_bps_device", "wbps", "write_bps"),
)
_FILES = frozenset(
    {*(file for file, _, _ in _THROTTLES), "blkio.cost.weight", "blkio.cost.qos", "blkio.cost.model"}
    | {"io.max", "io.weight", "io.cost.qos", "io.cost.model"}
)
_MODEL = (
    ("rbps", "model_read_bps"),
    ("rseqiops", "model_read_seq_iops"),
    ("rrandiops", "model_read_rand_iops"),
    ("wbps", "model_write_bps"),
    ("wseqiops", "model_write_seq_iops"),
    ("wrandiops", "model_write_rand_iops"),
)
_BLOCK_FIELDS = ("name", "type", *(f"ioCfg.{field.encode_name}" for field in msgspec.structs.fields(IoConfig)))


@strategy(
    "block_io",
    fields=tuple(
        f"spec.resourceQOSStrategy.{name}.blkioQOS.{field}"
        for name in ("beClass", "cgroupRoot")
        for field in ("enable", *(f"blocks[].{field}" for field in _BLOCK_FIELDS))
    ),
    features=("blkio.throttle.*", "blkio.cost.*", "io.max", "io.weight", "io.cost.*"),
)
def decide(draft: Draft, slo: NodeSlo) -> None:
    """Limit and weigh the block I/O of offline work and of pods with an annotation; set the cost model at the root.

    0 is no limit. On v2 a weight per device counts only where ``io.cost.qos`` is enabled for that device; where it is
    not, the weight is left out and that is said. LSR and LS have no directory of their own to limit. On v1 the kernel
    limits each group by itself, not what is below it: each offline container gets the class's limits too, in full.
    A disk, or a field, that the policy names no more gets back what was there before us.
    """
    snapshot = draft.snapshot
    for name in ("LSR", "LS", "SYSTEM"):
        if slo.qos.of(name).blkio_qos.enable:
            draft.notices.append(f"blkioQOS of class {name} is not supported: use the pod annotation")
    root = slo.qos.cgroup_root.blkio_qos
    costed = set(_root(draft, root.blocks or ())) if root.enable else set()
    offline = slo.qos.be_class.blkio_qos
    directory = snapshot.qos_paths.get("BestEffort")
    if directory and offline.enable:
        _group(draft, directory, offline.blocks or (), costed, "class BE")
    for group in snapshot.groups:
        if group.pod is None or not group.pod.active:
            continue
        blocks = _annotated(draft, group.pod.blkio_qos, group.pod.key)
        who = f"pod {group.pod.key}"
        if blocks is None and offline.enable and snapshot.version("blkio") == 1 and group.qos == "BestEffort":
            blocks, who = offline.blocks or (), f"class BE, {who}"
        for place in cgroup.block_groups(snapshot, group.path):
            _group(draft, place, blocks or (), costed, who)
    _give_back(draft)


def _annotated(draft: Draft, annotation: Mapping[str, object], key: str) -> Sequence[Block] | None:
    if not annotation:
        return None
    found, complaints = policy.override(BlkioQos(), annotation, f"pod {key}: annotation {BLKIO_QOS_ANNOTATION}")
    draft.notices.extend(complaints)
    if found.blocks is None and complaints:
        return None
    return found.blocks or ()


def _devices(draft: Draft, blocks: Sequence[Block], who: str) -> Iterator[tuple[str, IoConfig]]:
    for block in blocks:
        number = _device(draft.snapshot, block)
        if number is None:
            draft.notices.append(f"{who}: block {block.type} {block.name!r} is no disk of this node; not applied")
        else:
            yield number, block.io_cfg


def _device(snapshot: Snapshot, block: Block) -> str | None:
    """Return ``major:minor`` of a whole disk: limits on partitions are refused by the kernel."""
    if block.type != "device":
        return None
    if _DEVICE_NUMBER.fullmatch(block.name):
        return block.name
    name = block.name.removeprefix("/dev/").replace("/", "!")
    place = f"{snapshot.sys}/class/block/{name}"
    if snapshot.files.exists(f"{place}/partition"):
        return None
    return snapshot.files.read(f"{place}/dev") or snapshot.files.read(f"{snapshot.sys}/block/{name}/dev")


def _lines(draft: Draft, group: str, file: str, lines: Sequence[str], who: str) -> None:
    """State lines of a file that keeps one per device; the kernel takes one line a write."""
    path = draft.snapshot.path("blkio", group, file)
    for line in lines:
        draft.line(path, line, who)


def _group(draft: Draft, group: str, blocks: Sequence[Block], costed: set[str], who: str) -> None:
    v2 = draft.snapshot.version("blkio") == 2
    for number, config in _devices(draft, blocks, who):
        values = {key: getattr(config, field) for _, key, field in _THROTTLES}
        if v2:
            given = {key: value for key, value in values.items() if value is not None}
            merged = _changed(draft.snapshot, group, number) | given
            text = " ".join(f"{key}={value or 'max'}" for key, value in sorted(merged.items()))
            if text:
                _lines(draft, group, "io.max", [f"{number} {text}"], who)
        else:
            for file, key, _ in _THROTTLES:
                if values[key] is not None:
                    _lines(draft, group, file, [f"{number} {values[key]}"], who)
        if config.io_weight_percent is not None:
            _weight(draft, group, number, config.io_weight_percent, costed, who)


def _weight(draft: Draft, group: str, number: str, percent: int, costed: set[str], who: str) -> None:
    if draft.snapshot.version("blkio") != 2:
        _lines(draft, group, "blkio.cost.weight", [f"{number} {percent}"], who)
        return
    path = draft.snapshot.path("blkio", "", "io.cost.qos")
    enabled = (draft.snapshot.files.read(path) or "").splitlines() if path else []
    if number in costed or any(line.startswith(f"{number} ") and "enable=1" in line for line in enabled):
        _lines(draft, group, "io.weight", [f"{number} {percent}"], who)
    else:
        draft.left_out.append(f"{who}: weight on {number} needs io.cost.qos enabled there (cgroupRoot.blkioQOS)")


def _root(draft: Draft, blocks: Sequence[Block]) -> Iterator[str]:
    prefix = "io" if draft.snapshot.version("blkio") == 2 else "blkio"
    for number, config in _devices(draft, blocks, "cgroupRoot"):
        percent = [config.read_latency_percent, config.write_latency_percent]
        latency = [config.read_latency, config.write_latency]
        rpct, wpct = (DEFAULT_LATENCY_PERCENT if value is None else value for value in percent)
        rlat, wlat = (DEFAULT_LATENCY_USEC if value is None else value for value in latency)
        line = f"{number} enable=1 ctrl=user rpct={rpct} rlat={rlat} wpct={wpct} wlat={wlat}"
        _lines(draft, "", f"{prefix}.cost.qos", [line], "cgroupRoot")
        if config.enable_user_model:
            model = " ".join(f"{key}={value}" for key, field in _MODEL if (value := getattr(config, field)) is not None)
            _lines(
                draft, "", f"{prefix}.cost.model", [f"{number} ctrl=user model=linear {model}".strip()], "cgroupRoot"
            )
        elif config.enable_user_model is False:
            _lines(draft, "", f"{prefix}.cost.model", [f"{number} ctrl=auto"], "cgroupRoot")
        yield number


def _changed(snapshot: Snapshot, group: str, number: str) -> dict[str, str]:
    """Return what the fields of a disk's line in ``io.max`` were before us, of those that are something else now."""
    path = snapshot.path("blkio", group, "io.max") or ""
    if path not in snapshot.journal:
        return {}
    before, now = (_fields(text, number) for text in (snapshot.journal[path], snapshot.files.read(path)))
    return {key: value for key, value in before.items() if now[key] != value}


def _fields(text: str | None, number: str) -> dict[str, str]:
    line = f"{contents.cleared('io.max')} {contents.lines_of('io.max', text or '').get(number, '')}"
    return {key: value for key, equals, value in (pair.partition("=") for pair in line.split()) if equals}


def _give_back(draft: Draft) -> None:
    """State what was there before us for each line of a file that we wrote, and that nobody wants now.

    A pod that is on its way out keeps its limits: it may run for a while yet.
    """
    snapshot = draft.snapshot
    wanted = {target.owned for target in draft.targets}
    leaving = tuple(
        f"{snapshot.path('blkio', group.path, '')}/" for group in snapshot.groups if group.pod and not group.pod.active
    )
    for path, text in snapshot.journal.items():
        file = path.rpartition("/")[2]
        if file not in _FILES or path.startswith(leaving):
            continue
        before = contents.lines_of(file, text or "")
        for number in contents.lines_of(file, snapshot.files.read(path) or ""):
            if _DEVICE_NUMBER.fullmatch(number) and f"{path}\n{number}" not in wanted:
                line = before.get(number) or contents.cleared(file)
                draft.line(path, f"{number} {line}", "block I/O: no longer in the policy")
