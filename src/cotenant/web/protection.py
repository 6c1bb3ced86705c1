"""What protection looks like on the page and in metrics: targets, who wrote, who recovered, and what it cost whom."""

from collections.abc import Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, StateSetMetricFamily
from prometheus_client.metrics_core import Metric

from cotenant.model.enforcement import EnforcementState, HeldFile
from cotenant.model.incident import Isolated, LatencyOutcome
from cotenant.model.wording import DETECTION_TITLES, inside, usec_text

HELD_SHOWN = 40
MODES = ("enforce", "dry-run", "observe", "paused")
HEADLINES = {
    "enforce": "Enforcing",
    "dry-run": "Dry run: nothing is written",
    "observe": "Observing only",
    "paused": "Paused: everything was put back; a new start enforces again",
}
_ROOTS = ("sys/fs/cgroup/", "proc/")


def view_of(state: EnforcementState | None) -> dict[str, Any] | None:
    """Return what the template sees; None where nothing is enforced."""
    if state is None:
        return None
    shown = [held for held in state.held if held.original is not None or not _is_met(held)]
    return {
        "state": state,
        "headline": HEADLINES[state.mode],
        "rows": [_row(held) for held in shown[:HELD_SHOWN]],
        "more": max(len(shown) - HELD_SHOWN, 0),
        "met": len(state.held) - len(shown),
        "isolation": None if state.isolation is None else sentence_of(state.isolation),
    }


def done_of(state: EnforcementState | None) -> list[str]:
    """Return what is being done against interference now, in sentences; empty where nothing is enforced."""
    if state is None:
        return []
    if state.mode != "enforce":
        return [HEADLINES[state.mode] + (f": {state.conflict} runs here too" if state.conflict else "")]
    done = []
    if state.isolation is not None and state.isolation.end is None:
        done.append(sentence_of(state.isolation))
    if state.offline_withheld_millicores:
        done.append(f"Limits keep {state.offline_withheld_millicores / 1000:.2f} CPUs from offline work")
    if not done:
        written = sum(held.original is not None and _is_met(held) for held in state.held)
        done.append(f"No suspect is held back; kernel files that hold our values: {written}")
    unmet = sum(not _is_met(held) for held in state.held)
    if unmet:
        done.append(f"Kernel files that do not hold what they should: {unmet}")
    return done


def _is_met(held: HeldFile) -> bool:
    return held.actual == held.target


def _row(held: HeldFile) -> dict[str, Any]:
    path = next((held.path.removeprefix(root) for root in _ROOTS if held.path.startswith(root)), held.path)
    group, _, file = path.rpartition("/")
    return {"group": group, "file": file, "held": held, "met": _is_met(held)}


def sentence_of(isolated: Isolated) -> str:
    """Return what became of a suspect that was held back, and of its victim."""
    title = inside(DETECTION_TITLES[isolated.detection])
    text = f"{isolated.suspect} is held back for {isolated.victim} ({title}), {isolated.steps} steps"
    if isolated.end is not None:
        text = f"{isolated.suspect} was held back for {isolated.victim} ({title}) and has everything back"
    if isolated.evicted:
        text += "; it was told to end"
    if isolated.recovery_seconds is not None:
        return f"{text}; {isolated.victim} had recovered after {isolated.recovery_seconds:.0f} s"
    return f"{text}; {isolated.victim} has not recovered yet" if isolated.end is None else text


_ACTIONS = {"isolation": "the suspect was held back", "fast path": "the fast path", "suppression": "suppress"}


def outcome_of(outcome: LatencyOutcome) -> str:
    """Return what became of a service's latency: "shop: p99 12 ms → 240 ms; recovered 12 s after suppress"."""
    before, peak = usec_text(outcome.before_seconds * 1e6), usec_text(outcome.peak_seconds * 1e6)
    text = f"{outcome.service}: p99 {before} → {'≥ ' if outcome.at_least else ''}{peak}"
    if not outcome.rose:
        return f"{outcome.service}: p99 did not rise ({before}, at most {peak})"
    if outcome.recovery_seconds is None:
        return f"{text}; has not recovered"
    since = f"after {_ACTIONS[outcome.action]}" if outcome.action else "after the start; nothing was held back"
    return f"{text}; recovered {outcome.recovery_seconds:.0f} s {since}"


def metrics_of(state: EnforcementState) -> Iterator[Metric]:
    """Yield the metric families of the loop that acts."""
    yield StateSetMetricFamily(
        "cotenant_enforcement_mode", "What the loop does.", value={m: m == state.mode for m in MODES}
    )
    groups = GaugeMetricFamily("cotenant_managed_groups", "Groups that are managed.", labels=("class",))
    groups.add_metric(["online"], state.online_groups)
    groups.add_metric(["offline"], state.offline_groups)
    yield groups
    known = (
        ("delivered", "CPU that offline work got, in CPUs.", state.offline_delivered_millicores),
        ("withheld", "CPU that a quota kept from offline work, in CPUs.", state.offline_withheld_millicores),
    )
    for name, text, millicores in known:
        if millicores is not None:
            yield GaugeMetricFamily(f"cotenant_offline_{name}_cpus", text, value=millicores / 1000, unit="cpus")
    held = state.isolation is not None and state.isolation.end is None
    yield GaugeMetricFamily("cotenant_isolation_active", "1 while a suspect is held back.", value=float(held))
    off = sum(not _is_met(held) for held in state.held)
    yield GaugeMetricFamily("cotenant_targets_unmet", "Files that do not hold what they should.", value=off)
    yield GaugeMetricFamily("cotenant_files_contested", "Files that somebody writes over.", value=len(state.contests))
    counters = (
        ("enforcement_rounds", "Rounds of the loop.", state.rounds_total),
        ("enforcement_failed_rounds", "Rounds that failed.", state.failed_rounds_total),
        ("kernel_writes", "Kernel files written; it stands still in a steady state.", state.writes_total),
        ("kernel_writes_refused", "Writes that the kernel refused or did not take.", state.refused_total),
        ("kernel_rewrites", "Values of ours that somebody else replaced.", state.rewrites_total),
        (
            "journal_records_lost",
            "Records of changes that the journal had no room for, or that cannot be read.",
            state.journal_lost_total,
        ),
        ("fast_path_tightenings", "Quotas tightened between two rounds.", state.fast_path_total),
        ("isolations", "Suspects that were held back.", state.isolations_total),
    )
    for name, text, value in counters:
        yield CounterMetricFamily(f"cotenant_{name}", text, value=value)
