"""What the page, the API and the metrics are fed with. Programs implement :class:`Feed`; no kernel is read here."""

from typing import Protocol

import msgspec

from cotenant.model.enforcement import EnforcementState
from cotenant.model.evaluation import Evaluation
from cotenant.model.incident import Incident
from cotenant.model.latency import ServiceLatency
from cotenant.model.loss import Loss
from cotenant.model.sample import Sample


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What watching costs. CPU ratios are of one core; ``bpf_cpu_ratio`` None: BPF does not run, or is not timed."""

    cpu_ratio: float | None = None
    rss_bytes: int | None = None
    sample_usec: float | None = None
    sample_p99_usec: float | None = None
    bpf_cpu_ratio: float | None = None
    bpf_losses: tuple[Loss, ...] = ()
    """Events that eBPF could not count, since it was loaded; a reason that the kernel does not tell is absent."""
    late_ticks: int = 0
    failed_ticks: int = 0


class RulesState(msgspec.Struct, frozen=True, kw_only=True):
    """The rules in force. ``error`` is why the file as it is now was refused; the rules before it stay in force."""

    source: str = "preset default"
    revision: int | None = None
    error: str | None = None


class HistoryState(msgspec.Struct, frozen=True, kw_only=True):
    """The history on disk. ``error`` is why it is not written now; ``dropped`` counts samples that were not kept."""

    path: str
    error: str | None = None
    notice: str | None = None
    dropped: int = 0
    size_bytes: int | None = None
    size_limit_bytes: int


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one tick. All readers of one moment see the same numbers."""

    sample: Sample
    evaluation: Evaluation
    cost: Cost
    rules: RulesState
    history: HistoryState
    incident: Incident | None = None
    enforcement: EnforcementState | None = None
    """None: nothing is enforced here."""
    latencies: tuple[ServiceLatency, ...] = ()
    """The online services that are watched, by name."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``/api/v1/report``: who is hurt now, by what, under which rules, and what it costs to know."""

    evaluation: Evaluation
    incident: Incident | None
    rules: RulesState
    history: HistoryState
    cost: Cost


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of history: a row a step, ``[time in ms since the epoch, value or null, …]`` in the order of names."""

    step_s: int
    names: list[str]
    points: list[list[float | None]]


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What a restore did: files put back, and what was left, each with the reason and what can be done."""

    restored: int
    left: list[str] = []


class Unavailable(Exception):
    """The history cannot be read now; the text says why."""


class Refused(Exception):
    """A change was asked for that cannot be made; the text says why."""


class Feed(Protocol):
    """The running program, seen from the web. Methods may be called from any thread; those of history take a moment."""

    def latest(self) -> Moment | None:
        """Return the newest tick, or None before the first."""
        ...

    def age_s(self) -> float | None:
        """Return how many seconds ago the newest tick was, or None before the first."""
        ...

    def history(self, span_s: int) -> Series:
        """Return the last ``span_s`` seconds at the finest step that gives a bounded number of points.

        :raises Unavailable: if there is no history now.
        """
        ...

    def incidents(self, limit: int) -> list[Incident]:
        """Return the newest incidents first, the open one included.

        :raises Unavailable: if there is no history now.
        """
        ...

    def roll_back_rules(self, revision: int | None) -> RulesState:
        """Put an earlier revision of the rules in force (None: the one before) and return the new state.

        :raises Refused: if there is no such revision, or the rules do not come from a file.
        """
        ...

    def restore_all(self) -> Restored:
        """Put everything that was written back, and enforce nothing more until the next start.

        :raises Refused: if nothing is enforced here, or another process keeps writing.
        """
        ...
