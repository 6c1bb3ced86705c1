"""``cotenant up --enforce``: after each sample, one round that looks, decides and writes, in a thread of its own.

Sampling never waits for it: a round that is late works on the newest sample and skips those between.
"""

import dataclasses
import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from cotenant.act import contesting, cpu_suppress, curing, isolate, ledger, planning, registry, steadying, withheld
from cotenant.act.draft import Draft, Plan
from cotenant.kernel import disk, enforcing, executor, fast_path, holdings, paths, restoration, ticking
from cotenant.kernel.cgroup.classes import Match
from cotenant.local import managed, outlay
from cotenant.model import enforcement as model
from cotenant.model import usage as usages
from cotenant.model.evaluation import Evaluation
from cotenant.model.ledger import Books
from cotenant.model.policy import ClassQos, CpuQos, NodeSlo, QosStrategy, ThresholdStrategy
from cotenant.model.sample import Sample
from cotenant.model.snapshot import Snapshot
from cotenant.units.clock import Clock, SystemClock

log = logging.getLogger(__name__)

EVICTING = ("cpu_evict", "memory_evict")
LOG_EVERY_SECONDS = 60.0
ROUND_LIMIT_SECONDS = 10.0
"""A round that took longer is a gap: what happened in it is not known."""
SUPPRESS_PERCENT = 65
_ON = ClassQos(cpu_qos=CpuQos(enable=True))
DEFAULT_SLO = NodeSlo(
    threshold=ThresholdStrategy(
        enable=True, cpu_suppress_threshold_percent=SUPPRESS_PERCENT, cpu_suppress_policy="cfsQuota"
    ),
    qos=QosStrategy(lsr_class=_ON, ls_class=_ON, be_class=_ON),
)
DEFAULT_POLICY = f"priority by class; offline work may fill the machine up to {SUPPRESS_PERCENT} % of its CPUs"


class Observed(Protocol):
    """One tick, as the sampling thread hands it over."""

    @property
    def sample(self) -> Sample: ...

    @property
    def evaluation(self) -> Evaluation: ...


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What to enforce on whom. ``evict`` lets the loop end offline commands that nothing else tames."""

    slo: NodeSlo = DEFAULT_SLO
    policy: str = DEFAULT_POLICY
    matches: tuple[Match, ...] = ()
    evict: bool = False
    isolation: isolate.Parameters = isolate.Parameters()
    dry_run: bool = False
    beside_others: bool = False


class Enforcement:
    """The loop. Its newest round is in :meth:`state`, from any thread."""

    def __init__(
        self,
        root: paths.Root,
        settings: Settings,
        *,
        evict: executor.EvictCallback | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._root = root
        self._settings = settings
        self._clock = clock or SystemClock()
        self.writer = executor.Executor(root, dry_run=settings.dry_run, evict=evict, clock=self._clock)
        self.enforcer = enforcing.Enforcer(root, self.writer, clock=self._clock, beside_others=settings.beside_others)
        self.fast_path = fast_path.FastPath(root, self.enforcer, self._clock)
        self._contesting = contesting.Contesting()
        self._curing = curing.Curing(dataclasses.replace(settings.isolation, evict=settings.evict))
        self._curing.adopt(holdings.read(root), self._clock.monotonic())
        self._steadying = steadying.Steadying()
        self._withheld = withheld.Withheld()
        self.books = Books(f"{self._clock.wall():.3f}", self._clock.wall())
        """What offline groups asked for, got and lost; an earlier process's are adopted before the first round."""
        self._accounted_s: float | None = None
        self._strategies = tuple(name for name in registry.ORDER if settings.evict or name not in EVICTING)
        self._changed = threading.Condition()
        self._offered: Observed | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._enforcing, name="enforcing", daemon=True)
        self._paused = False
        self._logged_s: float | None = None
        self._known: frozenset[str] = frozenset()
        self._isolation_starts: set[str] = set()
        self._state = model.EnforcementState(
            mode="dry-run" if settings.dry_run else "enforce", policy=settings.policy, interface=""
        )

    # --- called by others -------------------------------------------------------------------------------------------

    def offer(self, observed: Observed) -> None:
        """Take the newest tick; returns at once."""
        with self._changed:
            self._offered = observed
            self._changed.notify()

    def start(self) -> None:
        self._thread.start()
        self.fast_path.start()

    def stop(self, timeout_s: float = 3.0) -> None:
        """End after the round that runs now. Every limit stays in force; ``cotenant restore`` gives back."""
        self.fast_path.stop()
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def state(self) -> model.EnforcementState:
        return self._state

    def restore(self) -> restoration.Restoration:
        """Put everything back and write nothing more until the next start.

        :raises Locked: if another process keeps writing.
        """
        self._paused = True
        self.fast_path.stop()
        restoration = self.enforcer.restore()
        self._state = msgspec.structs.replace(self._state, mode="paused", held=[], contests=[])
        log.warning("everything was put back; enforcing is paused until the next start")
        return restoration

    # --- the loop ---------------------------------------------------------------------------------------------------

    def _enforcing(self) -> None:
        ticking.go_first()
        while (observed := self._next()) is not None:
            try:
                self.round(observed)
            except Exception as error:  # noqa: BLE001 - the outermost loop: one failed round must not end the next
                self._failed(error)

    def _next(self) -> Observed | None:
        with self._changed:
            while self._offered is None and not self._stopping:
                self._changed.wait()
            observed, self._offered = self._offered, None
            return None if self._stopping else observed

    def _failed(self, error: Exception) -> None:
        failures = self._state.failed_rounds_total + 1
        self._state = msgspec.structs.replace(self._state, failed_rounds_total=failures)
        now = self._clock.monotonic()
        if self._logged_s is None or now - self._logged_s >= LOG_EVERY_SECONDS:
            self._logged_s = now
            log.error("round failed (%d so far): %s: %s", failures, type(error).__name__, error, exc_info=error)

    def round(self, observed: Observed) -> None:
        """Look, decide, and write what differs."""
        if self._paused:
            return
        sample = observed.sample
        now = self._clock.monotonic()
        units = managed.units(sample.cgroups, self._settings.matches, managed.records(self._root.run_dir))
        seen = self.enforcer.look((), units=units)
        pods = {group.path: group.pod.key for group in units.groups if group.pod is not None}
        used = usages.of_sample(sample, pods, seen.node.capacity_memory_bytes)
        seen = managed.with_own_limits(msgspec.structs.replace(seen, usage=self._steadying.usage(used)))
        seen, slo = self._contesting.applied(seen, self._settings.slo, now)
        isolating = self._isolating(seen, observed)
        plan = planning.plan(seen, slo, self._strategies, (isolating,))
        cpus = seen.cpu_count
        done = self.enforcer.carry_out(seen, lambda _: steadying.calm(plan.items, cpus, self.fast_path.ago_seconds()))
        self._aim(seen, slo)
        quotas = self._withheld.of(seen, now)
        self._account(msgspec.structs.replace(seen, usage=used), quotas, done, now)
        self._note(seen, sample, plan, done, quotas)

    def _account(self, seen: Snapshot, quotas: Mapping[str, float] | None, done: enforcing.Round, now: float) -> None:
        """Count this round in the ledger; after a gap, the time that nobody looked is left out."""
        seconds = 0.0 if self._accounted_s is None else now - self._accounted_s
        self._accounted_s = now
        groups = {group.pod.key: group.path for group in seen.groups if group.pod is not None}
        if 0 < seconds <= ROUND_LIMIT_SECONDS:
            found = ledger.entries(seen, self._settings.slo, quotas, groups)
            self.books.take(found, seconds, self._clock.wall())
        for outcome in done.outcomes:
            if outcome.item.op == "evict" and outcome.state == "written":
                self.books.evicted(outcome.item.new or "")

    def _aim(self, seen: Snapshot, slo: NodeSlo) -> None:
        """Tell the fast path whom to watch and what to write; nothing in a dry run."""
        if self._settings.dry_run:
            return
        online = [g.path for g in seen.groups if g.pod is not None and g.pod.qos in ("LSE", "LSR", "LS")]
        # Under suppression by CPU set a quota would be lifted again by the next round.
        self.fast_path.aim(online, cpu_suppress.tightened(seen, slo) if cpu_suppress.uses_quota(slo.threshold) else ())

    def _isolating(self, seen: Snapshot, observed: Observed) -> Draft:
        disks = disk.numbers(self._root, observed.sample.block.devices)
        draft = self._curing.draft(seen, observed.evaluation, observed.sample, disks, self._clock.monotonic())
        newest = self._curing.newest
        if newest is not None and newest.start not in self._isolation_starts:
            self._isolation_starts.add(newest.start)
            log.warning("%s holds %s back for %s", newest.detection, newest.suspect, newest.victim)
        return draft

    def _contested(self, seen: Snapshot, plan: Plan) -> list[model.Contest]:
        """Return who writes over what, and move protection where they do not."""
        now, slo = self._clock.monotonic(), self._settings.slo
        contests, new = self._contesting.follow(self.enforcer.contested(), plan.targets, seen, slo, now)
        for contest in new:
            log.warning("somebody keeps writing %s to %s: %s", contest.found, contest.path, contest.answer)
        return contests

    # --- telling ----------------------------------------------------------------------------------------------------

    def _note(
        self, seen: Snapshot, sample: Sample, plan: Plan, done: enforcing.Round, quotas: Mapping[str, float] | None
    ) -> None:
        before = self._state
        outcomes = {outcome.item.path: outcome for outcome in done.outcomes}
        self._say(plan.notices, done)
        delivered, kept = outlay.of(sample, quotas)
        refused = sum(o.state in ("refused", "denied", "failed", "not_taken") for o in done.outcomes)
        if self._paused:
            return
        self._state = msgspec.structs.replace(
            before,
            mode="observe" if done.conflict else "dry-run" if self._settings.dry_run else "enforce",
            interface=done.interface.name,
            conflict=done.conflict,
            online_groups=sum(g.pod is not None and not g.pod.best_effort for g in seen.groups),
            offline_groups=sum(g.pod is not None and g.pod.best_effort for g in seen.groups),
            held=_held(seen, plan, outcomes),
            contests=self._contested(seen, plan),
            isolation=self._curing.newest,
            isolations_total=len(self._isolation_starts),
            offline_delivered_millicores=delivered,
            offline_withheld_millicores=kept,
            ledger=self.books.ledger(),
            rounds_total=before.rounds_total + 1,
            writes_total=self.writer.writes_total,
            refused_total=before.refused_total + refused,
            rewrites_total=self.writer.rewrites.total,
            journal_lost_total=self.writer.journal.lost_marks + self.writer.journal.unreadable_lines,
            fast_path_total=self.fast_path.total,
            notices=[*plan.notices, *plan.left_out],
            skipped=[f"{strategy}: {reason}" for strategy, reason in plan.skipped],
        )

    def _say(self, notices: Sequence[str], done: enforcing.Round) -> None:
        if done.conflict != self._state.conflict:
            if done.conflict:
                log.warning("%s runs here too: observing only, until it is gone", done.conflict)
            else:
                log.info("%s is gone: enforcing again", self._state.conflict)
        for notice in notices:
            if notice not in self._known:
                log.info("%s", notice)
        self._known = frozenset(notices)


def _held(seen: Snapshot, plan: Plan, outcomes: dict[str | None, executor.Outcome]) -> list[model.HeldFile]:
    """Return what each file that a strategy owns should hold and holds, after this round."""
    found = []
    for target in plan.targets:
        outcome = outcomes.get(target.path)
        written = outcome is not None and outcome.state in ("written", "same")
        found.append(
            model.HeldFile(
                path=target.path,
                target=target.value,
                actual=outcome.actual if outcome is not None and written else seen.files.read(target.path),
                strategy=target.strategy,
                reason=target.reason,
                original=seen.journal.get(target.path),
                refusal=None if outcome is None or written or outcome.state == "planned" else outcome.detail,
            )
        )
    return sorted(found, key=lambda held: held.path)
