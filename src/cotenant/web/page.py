"""The page: what a moment looks like. The same templates make the first paint and every live update."""

import functools
import pathlib
from collections.abc import Callable
from typing import Any

import jinja2
import msgspec

from cotenant.model import series, summary, wording
from cotenant.model.evaluation import Detection, DetectionName, Evaluation
from cotenant.model.incident import Incident
from cotenant.model.latency import P50, P99, P999, Quantile, ServiceLatency
from cotenant.model.missing import EXPLANATIONS, PASSING_REASONS, reason_of
from cotenant.model.sample import Cgroup, MissingReason
from cotenant.web import ledger, protection
from cotenant.web.feed import Moment
from cotenant.web.panels import PANELS, Panel, latency_panels
from cotenant.web.sample_metrics import busiest

TEMPLATES = pathlib.Path(__file__).parent / "templates"
CGROUPS_SHOWN = 60
INCIDENTS_LISTED = 12
INCIDENTS_SHOWN = 5
"""Without opening the older ones."""
PARTS = ("now", "services", "groups", "incidents", "protection", "ledger", "unavailable", "agent")
"""The parts of the page that are replaced while it is open."""


WORDS: dict[summary.State, str] = {"hurt": "triggered", "tense": "raised", "calm": "calm", "unknown": "unknown"}
"""What a tile says of its detection."""


class IncidentSpan(msgspec.Struct, frozen=True, kw_only=True):
    """Where the charts are shaded; ``end_ms`` None: up to now."""

    start_ms: int
    end_ms: int | None


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """One live update: numbers for the charts, and the parts of the page that have changed."""

    time_ms: int
    values: dict[str, float]
    thresholds: dict[str, float]
    incidents: list[IncidentSpan]
    html: dict[str, str]


@functools.cache
def template(name: str) -> jinja2.Template:
    """Return a template of this host's page, or of the analyzer's and the scheduler's."""
    return _environment().get_template(name)


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        auto_reload=False,
    )
    filters: dict[str, Callable[..., str]] = {
        "ratio": wording.ratio_text,
        "usec": wording.usec_text,
        "bytes": wording.bytes_text,
        "title_of": lambda name: sentence(wording.title_of(name)),
        "clock": clock_text,
        "day": day_text,
    }
    environment.filters |= filters
    environment.globals["value_text"] = wording.value_text
    return environment


class Page:
    """Renders moments."""

    def __init__(self) -> None:
        self._page = template("page.html")
        self._waiting = template("waiting.html")
        self._parts = {name: template(f"{name}.html") for name in PARTS}

    def render(self, moment: Moment, incidents: list[Incident]) -> str:
        """Return the whole page."""
        panels = (*latency_panels(latency.service for latency in moment.latencies), *PANELS)
        return self._page.render(**view_of(moment, incidents), panels=panels, seed=_seed(moment, panels))

    def waiting(self) -> str:
        """Return the page before the first sample."""
        return self._waiting.render()

    def tick(self, moment: Moment, incidents: list[Incident]) -> Tick:
        """Return the live update of a moment, with every part of the page."""
        view = view_of(moment, incidents)
        return Tick(
            time_ms=series.time_ms_of(moment.sample.time),
            values=series.values_of(moment.sample, moment.evaluation, moment.latencies),
            thresholds=thresholds_of(moment.evaluation),
            incidents=[
                IncidentSpan(
                    start_ms=series.time_ms_of(incident.start),
                    end_ms=None if incident.end is None else series.time_ms_of(incident.end),
                )
                for incident in incidents
            ],
            html={name: template.render(**view) for name, template in self._parts.items()},
        )


def view_of(moment: Moment, incidents: list[Incident]) -> dict[str, Any]:
    """Return what the templates see."""
    evaluation = moment.evaluation
    return {
        "moment": moment,
        "sample": moment.sample,
        "evaluation": evaluation,
        "state": summary.state_of(evaluation),
        "headline": summary.headline_of(evaluation),
        "detail": summary.detail_of(evaluation, moment.sample.missing),
        "worst": worst_of(evaluation),
        "tiles": [tile_of(name, detection) for name, detection in evaluation.detections.items()],
        "services": [service_of(latency) for latency in moment.latencies],
        "victims": summary.victims_of(evaluation),
        "suspects": summary.suspects_of(evaluation),
        "hard": [wording.HARD_TITLES.get(name, name) for name in evaluation.hard],
        "done": protection.done_of(moment.enforcement),
        "cgroups": [row_of(cgroup) for cgroup in busiest(moment.sample.cgroups, CGROUPS_SHOWN)],
        "cgroups_total": len(moment.sample.cgroups),
        "incidents": [incident_of(incident) for incident in incidents[:INCIDENTS_LISTED]],
        "incidents_shown": INCIDENTS_SHOWN,
        "protection": protection.view_of(moment.enforcement),
        "ledger": ledger_of(moment),
        "unavailable": unavailable_of(moment),
        "cost": moment.cost,
        "rules": moment.rules,
        "history": moment.history,
    }


def worst_of(evaluation: Evaluation) -> dict[str, Any] | None:
    """Return what the bucket goes by; None where nothing is known."""
    worst = summary.worst_of(evaluation)
    return None if worst is None else {"title": wording.DETECTION_TITLES[worst[0]], "index": worst[1]}


def tile_of(name: DetectionName, detection: Detection) -> dict[str, Any]:
    """Return one detection's tile."""
    signal = summary.leading_signal(detection)
    state = detection.signals[signal] if signal is not None else None
    mood = summary.detection_state_of(detection)
    return {
        "title": wording.DETECTION_TITLES[name],
        "mood": mood,
        "word": WORDS[mood],
        "index": detection.index,
        "width": round((detection.index or 0.0) * 100, 1),
        "signal": signal,
        "value": None if state is None or signal is None else wording.value_text(signal, state.value),
        "threshold": None if state is None or signal is None else wording.value_text(signal, state.threshold),
    }


def service_of(latency: ServiceLatency) -> dict[str, Any]:
    """Return one line of the table of online services."""
    known = [latency.at(q) for q in (P50, P99, P999)]
    missing = next((one.missing for one in known if one.missing is not None), None)
    return {
        "name": latency.service,
        "quantiles": [quantile_text(one) for one in known],
        "requests": latency.requests_per_sec,
        "source": latency.source,
        "note": latency.error or ("" if missing is None else EXPLANATIONS[missing].why),
        "failed": bool(latency.error),
    }


def ledger_of(moment: Moment) -> list[dict[str, Any]]:
    """Return the lines of the table of offline work; none where nothing is enforced."""
    if moment.enforcement is None:
        return []
    return ledger.rows_of(moment.enforcement.ledger.accounts, series.time_ms_of(moment.sample.time) / 1000)


def quantile_text(found: Quantile) -> str:
    """Return a quantile as people read it; "≥" where it is beyond what the histogram can tell."""
    if found.seconds is None:
        return wording.UNKNOWN
    return ("≥ " if found.at_least else "") + wording.usec_text(found.seconds * 1e6)


def row_of(cgroup: Cgroup) -> dict[str, Any]:
    """Return one line of the table of groups."""
    stall, field = summary.stall_of(cgroup)
    return {
        "path": cgroup.path,
        "name": cgroup.name or cgroup.path,
        "class": cgroup.class_,
        "cpu": cgroup.cpu_used_ratio,
        "memory": cgroup.memory_bytes,
        "block": summary.block_of(cgroup),
        "stall": stall,
        "stall_title": "" if field is None else wording.title_of(f"cgroup.{field}"),
        "throttled": cgroup.throttled_ratio,
    }


def incident_of(incident: Incident) -> dict[str, Any]:
    """Return one incident of the list."""
    duration_s = None
    if incident.end is not None:
        duration_s = (series.time_ms_of(incident.end) - series.time_ms_of(incident.start)) / 1000
    return {
        "incident": incident,
        "title": wording.DETECTION_TITLES[incident.dominant] if incident.dominant else "Hard limit",
        "others": [wording.DETECTION_TITLES[name] for name in incident.detections if name != incident.dominant],
        "hard": [wording.HARD_TITLES.get(name, name) for name in incident.hard],
        "duration": "going on" if duration_s is None else duration_text(duration_s),
        "evidence": [
            {
                "title": sentence(wording.title_of(peak.signal)),
                "value": wording.value_text(peak.signal, peak.value),
                "threshold": wording.value_text(peak.signal, peak.threshold),
            }
            for peak in incident.evidence
        ],
        "isolations": [protection.sentence_of(isolated) for isolated in incident.isolations],
        "latency": [protection.outcome_of(outcome) for outcome in incident.latency],
    }


def unavailable_of(moment: Moment) -> list[dict[str, Any]]:
    """Return what is missing by reason, lasting reasons first: why, what would enable it, and the signals concerned."""
    missing = moment.evaluation.missing | moment.sample.missing
    by_reason: dict[MissingReason, list[str]] = {}
    for name, reason in missing.items():
        if reason_of(name.rpartition(".")[0], missing) != reason:  # else its group says it already
            by_reason.setdefault(reason, []).append(wording.title_of(name))
    return [
        {
            "why": EXPLANATIONS[reason].why,
            "remedy": EXPLANATIONS[reason].remedy,
            "reason": reason,
            "names": _gathered(by_reason[reason]),
        }
        for reason in sorted(by_reason, key=lambda reason: reason in PASSING_REASONS)
    ]


def _gathered(titles: list[str]) -> list[str]:
    """Return titles once each, those with the same ``whose: `` before them as one: "some groups: a, b"."""
    whose: dict[str, list[str]] = {}
    for title in dict.fromkeys(titles):
        owner, colon, what = title.partition(": ")
        whose.setdefault(owner if colon else "", []).append(what if colon else title)
    plain = [sentence(title) for title in whose.pop("", [])]
    return plain + [
        f"{sentence(owner) if ' ' in owner else owner}: {', '.join(whats)}" for owner, whats in whose.items()
    ]


def thresholds_of(evaluation: Evaluation) -> dict[str, float]:
    """Return the threshold of each signal that has one; the lowest when several detections use it."""
    thresholds: dict[str, float] = {}
    for detection in evaluation.detections.values():
        for name, state in detection.signals.items():
            if state.threshold is not None:
                thresholds[name] = min(state.threshold, thresholds.get(name, state.threshold))
    return thresholds


def sentence(text: str) -> str:
    """Return a text as it begins a sentence; percentiles keep their small letter."""
    return text if text[:1] == "p" and text[1:2].isdigit() else text[:1].upper() + text[1:]


def clock_text(time: str) -> str:
    """Return the time of day of an RFC 3339 time."""
    return time[11:19]


def day_text(time: str) -> str:
    """Return the date of an RFC 3339 time."""
    return time[:10]


def duration_text(seconds: float) -> str:
    """Return a duration in its largest two units."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _seed(moment: Moment, panels: tuple[Panel, ...]) -> dict[str, Any]:
    """Return what the script needs at once: names, titles and units of the lines."""
    names = [name for panel in panels for name in panel.names]
    values = series.values_of(moment.sample, moment.evaluation, moment.latencies)
    return {
        "known": set(values),
        "values": values,
        "lines": {name: {"title": line_title(name), "unit": wording.unit_of(name)} for name in names},
        "thresholds": thresholds_of(moment.evaluation),
    }


def line_title(name: str) -> str:
    """Return the short name of a line in its chart's legend."""
    if name == "level":
        return "level"
    if name.startswith(series.LATENCY):
        return name.removeprefix(series.LATENCY).rpartition(".")[0]
    if name.startswith("index."):
        return wording.DETECTION_TITLES.get(name.removeprefix("index."), name)  # type: ignore[call-overload, no-any-return]
    return wording.title_of(f"line.{name.rpartition('.')[2]}")
