"""Noise that is there already is cured: the offline suspect is stepped down in the resource concerned, and only there.

Pure: a state and what is seen now give the next state and what to write. One resource and one suspect at a time, so
that it can be told what helped.
"""

import dataclasses
from collections.abc import Iterable, Mapping

from cotenant.act import cgroup
from cotenant.act.draft import ISOLATION, Draft
from cotenant.model.enforcement import HeldFile
from cotenant.model.evaluation import DetectionName, Evaluation, Suspect
from cotenant.model.snapshot import Snapshot
from cotenant.units import contents, ordering
from cotenant.units.limit import Limit
from cotenant.units.plan import PlanItem

ANONYMOUS_ROOM = 1.25
"""A v1 memory limit is never lower than this many times what cannot be reclaimed."""
AT_LIMIT_RATIO = 0.9
REASON_OFF = "isolation has ended"
WORST_FIRST: tuple[DetectionName, ...] = ("memoryPressure", "ioCongestion", "cpuContention", "cachePollution")


@dataclasses.dataclass(frozen=True, slots=True)
class Parameters:
    """How fast and how far."""

    min_confidence: float = 0.7
    """A suspect below this is not touched: 0..1."""
    step_ratio: float = 0.3
    """What each step takes from the suspect, of what it has then: 0..1."""
    look_seconds: float = 10.0
    """How long after a step its effect is looked at, in seconds."""
    patience_max_seconds: float = 600.0
    """Giving back waits twice as long each time that it brought the trouble back, and this long at most."""
    steps_max: int = 4
    """After so many steps the resource is not the cure: the suspect is evicted, if that is allowed."""
    evict: bool = False
    """Whether a suspect that steps do not tame is evicted; opt-in."""


@dataclasses.dataclass(frozen=True, slots=True)
class Use:
    """What one group uses now; None is unknown."""

    cpu_millicores: float | None = None
    memory_bytes: int | None = None
    read_bytes_per_sec: float | None = None
    write_bytes_per_sec: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Isolation:
    """One suspect that is held back, since when, and what it had before."""

    detection: DetectionName
    suspect: str
    victim: str
    started: float
    stepped: float
    steps: int
    original: Mapping[str, str]
    """What the files held before the first step, by path."""
    held: Mapping[str, str]
    """What they should hold now, by path."""
    recovered: float | None = None
    """When the victim had recovered, on the same clock."""
    evicted: bool = False
    patience_seconds: float = 10.0
    """How long the victim must be well before the next half step is given back."""

    @property
    def recovery_seconds(self) -> float | None:
        """How long the victim took to recover, or None while it has not."""
        return None if self.recovered is None else self.recovered - self.started


def decide(
    draft: Draft,
    state: Isolation | None,
    evaluation: Evaluation,
    uses: Mapping[str, Use],
    now: float,
    parameters: Parameters | None = None,
    disk: str | None = None,
    patience_seconds: float | None = None,
) -> Isolation | None:
    """Return the next state, with what it asks for in the draft; None when nobody is held back.

    ``uses`` is by group; only groups in it that hold offline pods can be suspects. ``disk`` is the ``major:minor`` of
    the disk that is congested, where it is known. ``patience_seconds`` is how long a new isolation waits with
    giving back.
    """
    chosen = parameters or Parameters()
    if state is None:
        patience = chosen.look_seconds if patience_seconds is None else patience_seconds
        state = _begin(draft, evaluation, uses, now, chosen, disk)
        state = state and dataclasses.replace(state, patience_seconds=patience)
    elif _is_gone(draft.snapshot, state):
        return None
    else:
        state = _look(draft, state, evaluation, now, chosen)
    if state is not None:
        for path, value in state.held.items():
            why = f"{state.victim} suffers from {state.detection}: {state.suspect} steps back ({state.steps})"
            _write(draft, path, value, why)
    return state


def _begin(
    draft: Draft, evaluation: Evaluation, uses: Mapping[str, Use], now: float, chosen: Parameters, disk: str | None
) -> Isolation | None:
    for name in WORST_FIRST:
        detection = evaluation.detections.get(name)
        if detection is None or not detection.triggered or not detection.victims:
            continue
        suspect = _suspect(draft.snapshot, detection.suspects, uses, chosen)
        if suspect is None:
            continue
        original, held = _first(draft.snapshot, name, suspect, uses[suspect], chosen, disk)
        if held:
            victim = detection.victims[0].name
            return Isolation(name, suspect, victim, now, now, 1, original, held)
        draft.left_out.append(f"{name}: {suspect} cannot be held back in that resource on this node")
    return None


def _suspect(snapshot: Snapshot, suspects: list[Suspect], uses: Mapping[str, Use], chosen: Parameters) -> str | None:
    offline = {group.path for group in cgroup.offline_groups(snapshot)}
    able = [s for s in suspects if s.confidence >= chosen.min_confidence and s.name in offline and s.name in uses]
    return max(able, key=lambda suspect: (suspect.confidence, suspect.name)).name if able else None


def _write(draft: Draft, path: str, value: str, why: str) -> None:
    """State a file, or of one that keeps a line per device that line, so that it is clear who owns it."""
    name = path.rpartition("/")[2]
    if name == "io.max" or name.startswith("blkio."):
        draft.line(path, value, why)
    else:
        draft.write(path, value, why)


def _is_gone(snapshot: Snapshot, state: Isolation) -> bool:
    return not any(snapshot.files.exists(path) for path in state.held)


def _look(draft: Draft, state: Isolation, evaluation: Evaluation, now: float, chosen: Parameters) -> Isolation | None:
    """Step on while the victim suffers; step back by halves once it does not; wait while that is unknown."""
    detection = evaluation.detections.get(state.detection)
    triggered = detection.triggered if detection else None
    if triggered is None:
        return state
    waited = now - state.stepped
    if not triggered:
        if state.recovered is None:
            return dataclasses.replace(state, recovered=now)
        well = now - max(state.stepped, state.recovered)
        return _step_back(draft, state, now) if well >= state.patience_seconds else state
    if state.recovered is not None:
        # It came back with what was given back: the next time that is done later.
        patience = min(state.patience_seconds * 2, chosen.patience_max_seconds)
        state = dataclasses.replace(state, recovered=None, patience_seconds=patience)
    if waited < chosen.look_seconds:
        return state
    if state.steps >= chosen.steps_max:
        return _give_up(draft, state, chosen)
    held = {path: _less(path, value, chosen.step_ratio) for path, value in state.held.items()}
    return dataclasses.replace(state, held=held, steps=state.steps + 1, stepped=now)


def adopted(held: Iterable[HeldFile], now: float) -> Isolation | None:
    """Return the isolation that an earlier process left in force, or None where it left none.

    Its victim and its steps are not known: it is given back at once when the detection is not triggered.
    """
    files = [file for file in held if file.strategy == ISOLATION and file.original is not None]
    group = files[0].path.rpartition("/")[0] if files else ""
    files = [file for file in files if file.path.startswith(f"{group}/")]
    if not files:
        return None
    return Isolation(
        detection=_detection_of(files[0].path.rpartition("/")[2]),
        suspect=group.split("/", 4)[-1],
        victim="online work",
        started=now,
        stepped=now,
        steps=1,
        original={file.path: file.original or "" for file in files},
        held={file.path: file.target for file in files},
    )


def _detection_of(file: str) -> DetectionName:
    if file in ordering.QUOTA_FILES:
        return "cpuContention"
    if file == "io.max" or file.startswith("blkio."):
        return "ioCongestion"
    return "cachePollution" if file == "schemata" else "memoryPressure"


def release(draft: Draft, state: Isolation) -> None:
    """State everything as it was before the first step, at once: isolation was switched off."""
    for path, value in state.original.items():
        _write(draft, path, _before(path, value, state.held[path]), REASON_OFF)


def _give_up(draft: Draft, state: Isolation, chosen: Parameters) -> Isolation:
    pod = next((g.pod for g in draft.snapshot.groups if g.path == state.suspect), None)
    if not chosen.evict or pod is None or state.evicted or not pod.active:
        return state
    reason = f"{state.victim} still suffers from {state.detection} after {state.steps} steps"
    draft.step(PlanItem(op="evict", new=pod.key, strategy=draft.strategy, reason=reason))
    return dataclasses.replace(state, evicted=True)


def _step_back(draft: Draft, state: Isolation, now: float) -> Isolation | None:
    """Give back half a step at a time; with the last one everything is as it was before."""
    if state.steps <= 1:
        release(draft, state)
        return None
    held = {path: _more(path, value) for path, value in state.held.items()}
    return dataclasses.replace(state, held=held, steps=state.steps - 1, stepped=now)


# --- one resource ---------------------------------------------------------------------------------------------------


def _first(
    snapshot: Snapshot, name: DetectionName, group: str, use: Use, chosen: Parameters, disk: str | None
) -> tuple[dict[str, str], dict[str, str]]:
    """Return what the files of a resource hold now, and after the first step; empty where nothing can be done."""
    keep = 1 - chosen.step_ratio
    if name == "cpuContention":
        found = _quota(snapshot, group, use, keep)
    elif name == "memoryPressure" and not _at_own_limit(snapshot, group, use):
        found = _memory(snapshot, group, use, keep)
    elif name in ("ioCongestion", "memoryPressure"):
        # What thrashes within a limit of its own hurts by what it reads again; less memory would make that more.
        found = _disk(snapshot, group, use, keep, disk)
    else:
        found = _bandwidth(snapshot, keep)
    original = {path: text for path in found if (text := snapshot.files.read(path)) is not None}
    return original, {path: value for path, value in found.items() if path in original}


def _quota(snapshot: Snapshot, group: str, use: Use, keep: float) -> dict[str, str]:
    path, limit = cgroup.quota_path(snapshot, group), cgroup.quota(snapshot, group)
    if path is None or limit is None or (limit.value is None and use.cpu_millicores is None):
        return {}
    period = cgroup.period_usec(snapshot, group)
    used = limit.value if use.cpu_millicores is None else use.cpu_millicores * period / 1000
    base = used if limit.value is None else min(used or 0, limit.value)
    wanted = Limit(max(int((base or 0) * keep), cgroup.MIN_QUOTA_USEC))
    return {path: cgroup.quota_text(snapshot, group, wanted)}


def _memory(snapshot: Snapshot, group: str, use: Use, keep: float) -> dict[str, str]:
    """Lower ``memory.high``, on v1 the limit: the kernel reclaims what is above it from the suspect itself.

    A v1 limit kills where nothing can be reclaimed, so it stays clear of what is not file cache.
    """
    v1 = snapshot.version("memory") == 1
    path = snapshot.path("memory", group, "memory.limit_in_bytes" if v1 else "memory.high")
    if path is None or use.memory_bytes is None:
        return {}
    wanted = int(use.memory_bytes * keep)
    if v1:
        anonymous = _anonymous_bytes(snapshot, group)
        if anonymous is None or anonymous * ANONYMOUS_ROOM > use.memory_bytes:
            return {}
        wanted = max(wanted, int(anonymous * ANONYMOUS_ROOM))
    return {path: str(wanted // snapshot.page_bytes * snapshot.page_bytes)}


def _at_own_limit(snapshot: Snapshot, group: str, use: Use) -> bool:
    """Return whether a group fills a memory limit of its own."""
    path = cgroup.memory_limit_path(snapshot, group)
    text = (path and snapshot.files.read(path)) or ""
    limit = Limit.parse(text).value if text == "max" or text.lstrip("-").isdigit() else None
    return limit is not None and (use.memory_bytes or 0) >= limit * AT_LIMIT_RATIO


def _anonymous_bytes(snapshot: Snapshot, group: str) -> int | None:
    """Return what a v1 group holds that is not file cache, its descendants' included."""
    path = snapshot.path("memory", group, "memory.stat")
    text = (snapshot.files.read(path) if path else None) or ""
    values = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
    known = values.get("total_rss", "")
    return int(known) if known.isdigit() else None


def _disk(snapshot: Snapshot, group: str, use: Use, keep: float, disk: str | None) -> dict[str, str]:
    rates = {"rbps": use.read_bytes_per_sec, "wbps": use.write_bytes_per_sec}
    known = {key: max(int(rate * keep), 1 << 20) for key, rate in rates.items() if rate}
    if disk is None or not known:
        return {}
    if snapshot.version("blkio") == 2:
        path = snapshot.path("blkio", group, "io.max")
        return {path: f"{disk} " + " ".join(f"{k}={v}" for k, v in known.items())} if path else {}
    files = {"rbps": "blkio.throttle.read_bps_device", "wbps": "blkio.throttle.write_bps_device"}
    paths = {
        snapshot.path("blkio", place, files[key]): f"{disk} {value}"
        for place in cgroup.block_groups(snapshot, group)
        for key, value in known.items()
    }
    return {path: value for path, value in paths.items() if path is not None}


def _bandwidth(snapshot: Snapshot, keep: float) -> dict[str, str]:
    """Lower the memory bandwidth of the offline class, where it has a resctrl group."""
    path = f"{snapshot.resctrl}/BE/schemata"
    lines = contents.lines_of("schemata", snapshot.files.read(path) or "") if snapshot.resctrl else {}
    domains = {key.partition(":")[2]: value for key, value in lines.items() if key.startswith("MB:")}
    if not domains or not all(value.isdigit() for value in domains.values()):
        return {}
    stepped = (f"{domain}={max(int(int(value) * keep) // 10 * 10, 10)}" for domain, value in domains.items())
    return {path: "MB:" + ";".join(stepped)}


def _before(path: str, original: str, held: str) -> str:
    """Return what to write so that a file says again what it said; a line that was not there is "no limit"."""
    name = path.rpartition("/")[2]
    if name == "schemata":
        lines = (line.strip() for line in original.splitlines())
        return next((line for line in lines if line.startswith("MB:")), held)
    if name != "io.max" and not name.startswith("blkio."):
        return original
    device = held.split()[0]
    line = next((line for line in original.splitlines() if line.split()[:1] == [device]), None)
    if line is not None:
        return line
    keys = [pair.partition("=")[0] for pair in held.split()[1:]]
    return " ".join([device, *(f"{key}=max" for key in keys)]) if name == "io.max" else f"{device} 0"


def _less(path: str, value: str, ratio: float) -> str:
    return _scaled(path, value, 1 - ratio)


def _more(path: str, value: str) -> str:
    """Return a value half a step (of 30 %) larger."""
    return _scaled(path, value, 1.2)


def _scaled(path: str, value: str, factor: float) -> str:
    """Return the content of a limit with its numbers scaled: not a quota's period, a device's number or a domain's."""
    name = path.rpartition("/")[2]
    if name == "cpu.max":
        quota, _, period = value.partition(" ")
        return f"{max(int(int(quota) * factor), cgroup.MIN_QUOTA_USEC)} {period}"
    if name == "cpu.cfs_quota_us":
        return str(max(int(int(value) * factor), cgroup.MIN_QUOTA_USEC))
    if name == "io.max":
        device, *limits = value.split()
        pairs = (pair.partition("=") for pair in limits)
        return " ".join([device, *(f"{key}={max(int(int(number) * factor), 4096)}" for key, _, number in pairs)])
    if name.startswith("blkio."):
        device, _, number = value.partition(" ")
        return f"{device} {max(int(int(number) * factor), 4096)}"
    if name == "schemata":
        pairs = (pair.partition("=") for pair in value.removeprefix("MB:").split(";"))
        return "MB:" + ";".join(f"{d}={min(max(int(int(n) * factor) // 10 * 10, 10), 100)}" for d, _, n in pairs)
    return str(int(int(value) * factor) // 4096 * 4096)
