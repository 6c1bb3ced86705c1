"""What strategies write into: targets for files, steps that are not writes, and what they have to say to a person.

A strategy states the value that a file *should* have, whether or not it has it already. Of two strategies that want
the same file the one earlier in :data:`cotenant.act.registry.STRATEGIES` wins, so that no two ever take turns on it.
A release (the value of a strategy that is switched off) gives way to every target, and is stated only where the
journal shows a write of ours.
"""

import dataclasses
from collections.abc import Callable, Iterable

from cotenant.model.snapshot import Controller, Snapshot
from cotenant.units import contents, ordering
from cotenant.units.limit import Limit
from cotenant.units.plan import PlanItem

ISOLATION = "isolate"
"""The strategy that holds one suspect back; it comes first, and of two quotas the tighter one counts."""


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """The value that one file should have."""

    path: str
    value: str
    strategy: str
    reason: str
    irreversible: bool = False
    key: str = ""
    """What is owned: the file (empty), or one line of it."""

    @property
    def owned(self) -> str:
        return self.key or self.path


@dataclasses.dataclass(slots=True)
class Draft:
    """What one strategy makes of one snapshot."""

    snapshot: Snapshot
    strategy: str
    targets: list[Target] = dataclasses.field(default_factory=list)
    releases: list[Target] = dataclasses.field(default_factory=list)
    steps: list[PlanItem] = dataclasses.field(default_factory=list)
    """Steps that are not writes; they come after the strategy's writes, in this order."""
    notices: list[str] = dataclasses.field(default_factory=list)
    """What a person should know, although nothing is wrong."""
    skipped: list[str] = dataclasses.field(default_factory=list)
    """Why the strategy, or a part of it, does nothing this time."""
    left_out: list[str] = dataclasses.field(default_factory=list)
    """What should be done and cannot be."""

    def write(self, path: str | None, value: str, reason: str, *, irreversible: bool = False) -> bool:
        """State the value of a file; return False where the file does not exist (nothing is stated then)."""
        if path is None or not self.snapshot.files.exists(path):
            return False
        self.targets.append(Target(path, value, self.strategy, reason, irreversible))
        return True

    def create(self, path: str, value: str, reason: str) -> None:
        """State the value of a file in a group that this plan makes first."""
        self.targets.append(Target(path, value, self.strategy, reason))

    def set(self, controller: Controller, group: str, file: str, value: str, reason: str) -> bool:
        """State the value of one file of a group; return False where it does not exist."""
        return self.write(self.snapshot.path(controller, group, file), value, reason)

    def line(self, path: str | None, line: str, reason: str) -> bool:
        """State one line of a file that keeps one per device; False where the file does not exist."""
        if path is None or not self.snapshot.files.exists(path):
            return False
        key = f"{path}\n{line.split(' ')[0]}"
        self.targets.append(Target(path, line, self.strategy, reason, key=key))
        return True

    def toggle(self, path: str, word: str, reason: str) -> None:
        """State one word of a file that lists what is on (``NAME`` or ``NO_NAME``)."""
        self.targets.append(Target(path, word, self.strategy, reason, key=f"{path}\n{word.removeprefix('NO_')}"))

    def release(self, path: str | None, value: str, reason: str) -> None:
        """State the value of a file that this strategy leaves, if we wrote it."""
        if path is not None and path in self.snapshot.journal and self.snapshot.files.exists(path):
            self.releases.append(Target(path, value, self.strategy, reason))

    def step(self, item: PlanItem) -> None:
        """Add a step that is not a write."""
        self.steps.append(item)


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What all strategies together want done, before it is put into the kernel's order."""

    items: tuple[PlanItem, ...]
    notices: tuple[str, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    """Strategy and reason."""
    left_out: tuple[str, ...] = ()
    targets: tuple[Target, ...] = ()
    """What every file that a strategy owns should hold, written now or before."""


Fitting = Callable[[Snapshot, Iterable[Target]], list[Target]]
"""What targets have to be in place of others, or besides, for the kernel to take them all."""


def merge(snapshot: Snapshot, drafts: list[Draft], fitting: Fitting = lambda snapshot, targets: []) -> Plan:
    """Return the plan of several drafts: one value a file, and nothing for a file that has its value already."""
    owners: dict[str, Target] = {}
    for draft in drafts:
        for target in draft.targets:
            owner = owners.setdefault(target.owned, target)
            if _is_tighter(target, owner):
                owners[target.owned] = target
    for draft in drafts:
        for target in draft.releases:
            owners.setdefault(target.owned, target)
    fitted = {target.owned: target for target in fitting(snapshot, owners.values())}
    owners |= fitted
    items = [item for target in fitted.values() if (item := step(snapshot, target))]
    for draft in drafts:
        own = [t for t in (*draft.targets, *draft.releases) if owners[t.owned] is t]
        # A group is made before its files are written; everything else follows the writes.
        items += [step for step in draft.steps if step.op == "mkdir"]
        items += [item for target in own if (item := step(snapshot, target))]
        items += [step for step in draft.steps if step.op != "mkdir"]
    return Plan(
        items=tuple(items),
        notices=tuple(dict.fromkeys(text for draft in drafts for text in draft.notices)),
        skipped=tuple((draft.strategy, text) for draft in drafts for text in dict.fromkeys(draft.skipped)),
        left_out=tuple(dict.fromkeys(text for draft in drafts for text in draft.left_out)),
        targets=tuple(owners.values()),
    )


def _is_tighter(target: Target, owner: Target) -> bool:
    """Return whether a quota is less than the one that isolation wants: of two limits the lower protects."""
    if owner.strategy != ISOLATION or target.path.rpartition("/")[2] not in ordering.QUOTA_FILES:
        return False
    wanted, held = (Limit.parse(value.partition(" ")[0]) for value in (target.value, owner.value))
    return wanted < held


def step(snapshot: Snapshot, target: Target) -> PlanItem | None:
    """Return the write that makes a file what it should be, or None where it is that already."""
    current = snapshot.files.read(target.path)
    if current is not None and contents.same(target.path.rpartition("/")[2], target.value, current):
        return None
    return PlanItem(
        op="write",
        path=target.path,
        old=current,
        new=target.value,
        strategy=target.strategy,
        reason=target.reason,
        irreversible=target.irreversible,
    )
