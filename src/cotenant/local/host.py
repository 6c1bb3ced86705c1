"""One host under watch: each tick takes a sample, judges it, keeps it and hands it to whoever listens."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from cotenant.kernel.lock import Locked
from cotenant.kernel.restoration import Restoration
from cotenant.local import incidents, outcome
from cotenant.local.cost import CostMeter
from cotenant.local.history import History
from cotenant.model import series, summary, wording
from cotenant.model.enforcement import EnforcementState
from cotenant.model.evaluation import Bucket, Evaluation
from cotenant.model.incident import Incident, Isolated
from cotenant.model.latency import Latencies
from cotenant.model.loss import Loss
from cotenant.model.sample import Sample
from cotenant.units.clock import Clock
from cotenant.web.feed import Moment, Refused, Restored, RulesState, Series, Unavailable

log = logging.getLogger(__name__)

REMEMBERED_INCIDENTS = 50
"""Incidents kept in memory, so that they are shown when the history on disk is not there."""


LEDGER_EVERY_TICKS = 5
"""How often the ledger of offline work is kept: so much of it a kill may lose."""


class SampleSource(Protocol):
    """Where samples come from: the kernel's readers, or a test."""

    @property
    def bpf_core_ratio(self) -> float | None:
        """CPU time of eBPF programs as a share of one CPU; None where it is not known."""
        ...

    @property
    def bpf_losses(self) -> tuple[Loss, ...]:
        """Events that eBPF programs could not count, by reason."""
        ...

    def prime(self) -> None:
        """Read every source once, so that the next sample has rates."""
        ...

    def sample(self) -> Sample:
        """Return what happened since the last call."""
        ...


class Judge(Protocol):
    """What evaluates samples, under rules that can change while it runs."""

    def evaluate(self, sample: Sample) -> Evaluation:
        """Return the state of the node at the end of the sample."""
        ...

    def rules_state(self) -> RulesState:
        """Return which rules are in force."""
        ...

    def refresh(self) -> None:
        """Take up rules that have changed since the last call."""
        ...

    def roll_back(self, revision: int | None) -> RulesState:
        """Put an earlier revision in force.

        :raises cotenant.web.feed.Refused: if it cannot be done.
        """
        ...


class Acting(Protocol):
    """The loop that acts, seen from here."""

    def state(self) -> EnforcementState:
        """Return what the newest round found and did."""
        ...

    def restore(self) -> Restoration:
        """Put everything back, and stop acting."""
        ...


class Host:
    """Implements :class:`cotenant.web.feed.Feed`."""

    def __init__(
        self,
        source: SampleSource,
        judge: Judge,
        history: History,
        meter: CostMeter,
        clock: Clock,
        acting: Acting | None = None,
        latencies: Latencies | None = None,
    ) -> None:
        self._source = source
        self._judge = judge
        self._history = history
        self._meter = meter
        self._clock = clock
        self._acting = acting
        self._latencies = latencies
        self._outcomes = outcome.Outcomes()
        self._isolation: Isolated | None = None
        self._tracker = incidents.IncidentTracker()
        self._moment: Moment | None = None
        self._moment_at = 0.0
        self._recent: dict[int, Incident] = {}
        self._unsaved: list[Incident] = []
        self._listeners: list[Callable[[Moment], None]] = []
        self._bucket: Bucket | None = None
        self._ticks = 0
        self._rules_lock = threading.Lock()

    def start(self) -> None:
        """Close what an earlier process left open, and read every source for the first time."""
        last_ms, stored = self._history.recall()
        for incident in stored:
            if incident.end is None:
                end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime((last_ms or incident.id) / 1000))
                self._unsaved.append(incidents.ended(incident, end, "restart"))
        self._source.prime()

    def listen(self, listener: Callable[[Moment], None]) -> None:
        """Have every tick handed to ``listener``, in the sampling thread; it must return at once."""
        self._listeners.append(listener)

    def late(self, ticks: int) -> None:
        """Count ticks that were skipped."""
        self._meter.late_ticks += ticks

    def tick(self) -> None:
        """Take one sample and everything that follows from it."""
        with self._rules_lock:
            self._judge.refresh()
        started = time.perf_counter()
        try:
            sample = self._source.sample()
        except Exception:
            self._meter.failed_ticks += 1
            raise
        sample_s = time.perf_counter() - started
        with self._rules_lock:
            evaluation = self._judge.evaluate(sample)
        acting = None if self._acting is None else self._acting.state()
        changed = self._tracker.follow(evaluation)
        if acting is not None and acting.isolation is not None and acting.isolation != self._isolation:
            self._isolation = acting.isolation
            again = self._tracker.isolated(acting.isolation, list(self._recent.values()))
            changed = [i for i in changed if i.id not in {a.id for a in again}] + again
        for incident in changed:
            self._remember(incident)
        time_ms = series.time_ms_of(sample.time)
        latencies = () if self._latencies is None else tuple(self._latencies.services())
        became = self._outcomes.follow(time_ms / 1000, self._tracker.current, latencies, acting)
        if became is not None:
            again = self._tracker.became(*became, self._recent)
            self._recent |= {incident.id: incident for incident in again}
            changed = [i for i in changed if i.id not in {a.id for a in again}] + again
        self._ticks += 1
        due = acting is not None and self._ticks % LEDGER_EVERY_TICKS == 0
        kept = msgspec.structs.replace(acting.ledger, session={}) if acting is not None and due else None
        self._history.add(time_ms, series.values_of(sample, evaluation, latencies), self._unsaved + changed, kept)
        self._unsaved = []
        moment = Moment(
            sample=sample,
            evaluation=evaluation,
            cost=self._meter.mark(sample_s, self._source.bpf_core_ratio, self._source.bpf_losses),
            rules=self._judge.rules_state(),
            history=self._history.state(),
            incident=self._tracker.current,
            enforcement=acting,
            latencies=latencies,
        )
        self._moment, self._moment_at = moment, self._clock.monotonic()
        self._tell(evaluation)
        for listener in self._listeners:
            listener(moment)

    def _remember(self, incident: Incident) -> None:
        if incident.end is not None or incident.id not in self._recent:
            state = f"ended ({incident.ended_by})" if incident.end else "began"
            log.info("incident %s: %s", state, ", ".join([*incident.detections, *incident.hard]))
        self._recent[incident.id] = incident
        while len(self._recent) > REMEMBERED_INCIDENTS:
            del self._recent[next(iter(self._recent))]

    def _tell(self, evaluation: Evaluation) -> None:
        if evaluation.bucket != self._bucket:
            self._bucket = evaluation.bucket
            level = evaluation.interference_level
            worst = summary.worst_of(evaluation)
            by = f", {wording.DETECTION_TITLES[worst[0]]} {worst[1]:.2f}" if worst is not None and worst[1] else ""
            log.info("interference: %s%s", evaluation.bucket, "" if level is None else f" (level {level:.2f}{by})")

    def latest(self) -> Moment | None:
        return self._moment

    def age_s(self) -> float | None:
        return None if self._moment is None else self._clock.monotonic() - self._moment_at

    def history(self, span_s: int) -> Series:
        return self._history.series(span_s)

    def incidents(self, limit: int) -> list[Incident]:
        try:
            stored = self._history.incidents(limit)
        except Unavailable:
            if not self._recent:
                raise
            stored = []
        # The writer may be a tick behind: what is in memory is newer.
        merged = {incident.id: incident for incident in stored} | dict(self._recent)
        return sorted(merged.values(), key=lambda incident: -incident.id)[:limit]

    def roll_back_rules(self, revision: int | None) -> RulesState:
        with self._rules_lock:
            return self._judge.roll_back(revision)

    def restore_all(self) -> Restored:
        if self._acting is None:
            raise Refused("nothing is enforced here: start with --enforce, or run cotenant restore")
        try:
            done = self._acting.restore()
        except Locked as error:
            raise Refused(str(error)) from None
        left = [*done.irreversible, *done.stale, *done.foreign, *done.failed]
        return Restored(
            restored=len(done.restored), left=[f"{item.path}: {item.reason}; {item.remedy}" for item in left]
        )
