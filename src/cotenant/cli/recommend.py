"""``cotenant recommend``: thresholds for a class of nodes, from what was recorded of it."""

import dataclasses
import pathlib
import re
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.cli import options
from cotenant.units import errors

if TYPE_CHECKING:
    from cotenant.detect.recommendation import Recommendation
    from cotenant.detect.rules import Rules
    from cotenant.detect.scoring import Score
    from cotenant.local.past import Recorded

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
HISTORY, PROMETHEUS = "history", "prometheus"
PROMETHEUS_TIMEOUT_SECONDS = 60.0
"""For each of its answers, of two hours of one signal."""


class NotEnough(errors.CotenantError):
    """There is too little to recommend anything from."""

    exit_status = 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What ``cotenant recommend`` is told."""

    sources: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="history|prometheus|FILE",
            help="Files of `cotenant record` may repeat.",
            show_default=HISTORY,
        ),
    ] = None
    data: Annotated[pathlib.Path | None, typer.Option(metavar="DIR", help="history: the directory of `up`.")] = None
    url: Annotated[str, typer.Option(metavar="URL", help="prometheus: where its API is.")] = "http://127.0.0.1:9090"
    matchers: Annotated[
        str, typer.Option(metavar="MATCHERS", help="prometheus: of which nodes, like 'node=~\"a-.*\"'.")
    ] = ""
    token_file: Annotated[
        pathlib.Path | None, typer.Option(metavar="FILE", help="prometheus: a bearer token for it.")
    ] = None
    basic_auth_file: Annotated[
        pathlib.Path | None, typer.Option(metavar="FILE", help="prometheus: USER:PASSWORD for it.")
    ] = None
    ca_file: Annotated[
        pathlib.Path | None, typer.Option(metavar="FILE", help="prometheus: who signed its certificate.")
    ] = None
    hours: Annotated[float, typer.Option(metavar="HOURS", min=1, max=24 * 90, help="prometheus: how far back.")] = 24.0
    rules: Annotated[
        pathlib.Path | None, typer.Option(metavar="FILE", help="Today's rules; else the preset default.")
    ] = None
    latency: Annotated[
        pathlib.Path | None,
        typer.Option(metavar="FILE", help="JSON lines with time and p99_seconds: when services were slow."),
    ] = None
    latency_target: Annotated[
        str | None, typer.Option(metavar="TIME", help="Slower than this is slow; else twice a service's own median.")
    ] = None
    false_per_day: Annotated[float, typer.Option(min=0.01, help="False triggers that are allowed, a day and node.")] = (
        1.0
    )
    name: Annotated[str, typer.Option(metavar="NAME", help="Of the DetectionRuleConfig.")] = "recommended"
    node_selector: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="Nodes that it is for.")] = None
    write: Annotated[pathlib.Path | None, typer.Option(metavar="FILE", help="The rules, to be applied.")] = None
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False


@options.as_fields_of(Options)
def command(given: Options) -> None:
    """Recommend thresholds: beside today's, with the false triggers and misses to expect. Exit 1: not enough data."""
    from cotenant.cli import printing
    from cotenant.detect import rendering

    if not _NAME.fullmatch(given.name):
        raise typer.BadParameter(
            f"{given.name!r}: lower-case letters, digits, '-' and '.', as names of objects are", param_hint="--name"
        )
    found, told = _recommended(given)
    text = rendering.text_of(found.rules)
    if given.write is not None:
        _write(given.write, text)
    if given.as_json:
        printing.print_json(_value(found))
        return
    _print(found, told)
    if given.write is not None:
        typer.echo(f"{given.write}: written; `cotenant config check {given.write}`, then --rules or kubectl apply")
    else:
        typer.echo("\n" + text, nl=False)


def _recommended(given: Options) -> "tuple[Recommendation, bool]":
    """Return what is recommended, and whether it was told when services were slow.

    :raises NotEnough: if there is too little to recommend anything from.
    :raises CotenantError: if an option cannot be used.
    """
    from cotenant.detect import presets, recommendation
    from cotenant.local import past, rules_file
    from cotenant.units import quantity

    today = presets.get() if given.rules is None else rules_file.for_one_host(rules_file.load(given.rules)).rules
    recorded = _recorded(given, today)
    if given.latency is not None:
        recorded = past.Recorded(recorded.samples, past.read_latency(given.latency))
    known = recorded.truth(None if given.latency_target is None else quantity.seconds(given.latency_target))
    selector = dict(map(_pair, given.node_selector or ()))
    try:
        found = recommendation.recommend(today, recorded.samples, known, given.false_per_day, given.name, selector)
    except recommendation.NotEnough as error:
        raise NotEnough(f"{error}; record for longer, or more nodes of the class") from None
    return found, known is not None


def _write(file: pathlib.Path, text: str) -> None:
    from cotenant.local import past

    try:
        file.write_text(text)
    except OSError as error:
        raise past.BadPast(f"--write {file}: {error.strerror}") from None


def _recorded(given: Options, today: "Rules") -> "Recorded":
    import http
    import time

    from cotenant.latency import fetching, prometheus
    from cotenant.latency.errors import Refused, Unreadable
    from cotenant.local import listening, past

    sources = given.sources or [HISTORY]
    if sources == [HISTORY]:
        return past.of_history(listening.data_place(given.data), today.window_seconds)
    if sources == [PROMETHEUS]:
        fetching.check_url(given.url)
        if given.token_file and given.basic_auth_file:
            raise typer.BadParameter("give one of --token-file and --basic-auth-file")
        trust = fetching.Trust(given.ca_file, given.token_file, given.basic_auth_file)
        archive = past.Archive(prometheus.Server(given.url, trust, PROMETHEUS_TIMEOUT_SECONDS), given.matchers)
        signals = [
            entry.signal for rule in today.detections.values() for entry in (*rule.signals, *rule.fallback_signals)
        ]
        plain = [signal for signal in signals if not signal.startswith("block.devices.")]
        try:
            return archive.read(plain, time.time(), given.hours * 3600, today.window_seconds)
        except Unreadable as error:
            malformed = isinstance(error, Refused) and error.status == http.HTTPStatus.BAD_REQUEST
            remedy = "look at --matchers" if malformed else "--url says where Prometheus' API is"
            raise past.BadPast(f"{error}; {remedy}") from None
    if HISTORY in sources or PROMETHEUS in sources:
        raise typer.BadParameter("one of history and prometheus alone, or files", param_hint="--from")
    return past.of_files([pathlib.Path(source) for source in sources])


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise typer.BadParameter(f"{text}: give KEY=VALUE", param_hint="--node-selector")
    return key, value


def _value(found: "Recommendation") -> dict[str, Any]:
    from cotenant.detect import recommendation, rendering

    return {
        "rules": rendering.object_of(found.rules),
        "changes": recommendation.table(found),
        "expected": _score(found.expected),
        "today": _score(found.today),
        "nodes": found.nodes,
        "allowed_per_day": found.allowed_per_day,
        "holds": found.holds,
    }


def _score(score: "Score") -> dict[str, Any]:
    return {
        "held_out_hours": score.known_seconds / 3600,
        "false_triggers": score.false_triggers,
        "false_per_day": score.false_per_day,
        "false_per_day_at_most": score.false_per_day_at_most,
        "calm_triggered_share": score.calm_triggered_share,
        "slow_episodes": score.episodes,
        "missed": None if score.episodes is None else score.missed,
        "missed_share": score.missed_share,
    }


def _print(found: "Recommendation", told: bool) -> None:
    from cotenant.cli import printing
    from cotenant.detect import recommendation

    table = recommendation.table(found)
    rows = [
        (row["signal"], _points(row["today"]), _points(row["recommended"]), row["reason"])
        for row in table
        if row["what"] == "changed"
    ]
    columns = ["SIGNAL", "TODAY", "RECOMMENDED", "WHY"]
    printing.print_table(columns, rows, "Today's thresholds fit what was recorded: nothing is to change.")
    for what, title in (("stays", "As they are"), ("not known", "Not known here"), ("left out", "Left out")):
        reasons: dict[str, list[str]] = {}
        for row in table:
            if row["what"] == what:
                reasons.setdefault("" if what == "stays" else row["reason"], []).append(row["signal"])
        for reason, names in reasons.items():
            typer.echo(f"{title}{f' ({reason})' if reason else ''}: {', '.join(dict.fromkeys(names))}")
    hours = found.expected.known_seconds / 3600
    nodes = "1 node" if found.nodes == 1 else f"{found.nodes} nodes"
    sys.stdout.write(f"\nSeen on {hours:.1f} held-out hours of {nodes}, from which nothing was learnt:\n")
    lines = [("today", found.today), ("recommended", found.expected)]
    printing.print_table(
        ["", "FALSE TRIGGERS", "A DAY", "AT MOST (95 %)", "CALM TIME TRIGGERED", "SLOW EPISODES MISSED"],
        [(name, *_told(score)) for name, score in lines],
        "",
    )
    if not told:
        typer.echo(
            "No latency was given: all that was recorded is taken for calm, and nothing is known of what is missed."
        )
    elif (found.expected.episodes or 0) < recommendation.LEAST_EPISODES:
        typer.echo(
            f"Fewer than {recommendation.LEAST_EPISODES} slow episodes were held out: the missed share says little."
        )
    if not found.holds:
        most = found.expected.false_per_day_at_most
        at_most = "an unknown number" if most is None else f"up to {most:.2g}"
        typer.echo(f"Not shown to hold {found.allowed_per_day:g} a day: so little time still allows for {at_most}.")


def _told(score: "Score") -> tuple[str, ...]:
    def number(value: float | None, form: str) -> str:
        return "–" if value is None else format(value, form)

    missed = "–" if score.episodes is None else f"{score.missed} of {score.episodes}"
    return (
        str(score.false_triggers),
        number(score.false_per_day, ".2g"),
        number(score.false_per_day_at_most, ".2g"),
        number(score.calm_triggered_share, ".1%"),
        missed,
    )


def _points(points: dict[str, Any] | None) -> str:
    if points is None:
        return "left out"
    text = " / ".join(f"{points[key]:g}" for key in ("normal", "threshold", "saturation"))
    extra = ", ".join(str(points[key]) for key in ("scale", "condition") if key in points)
    return f"{text} ({extra})" if extra else text
