"""``cotenant up``: one host under watch, with a page, an API and metrics."""

import pathlib
import sys
from typing import TYPE_CHECKING, Any

import typer

from cotenant.cli import inputs, logs, sampling

if TYPE_CHECKING:
    from cotenant.latency.configuration import Service
    from cotenant.local.enforcement import Enforcement


def command(
    port: int = typer.Option(7070, "--port", min=0, max=65535, help="Port of the page; 0 takes a free one."),
    listen: str = typer.Option("127.0.0.1", "--listen", metavar="ADDRESS", help="Beyond loopback needs --token-file."),
    data: pathlib.Path | None = typer.Option(
        None, "--data", metavar="DIR", help="History and token; else /var/lib/cotenant, or $XDG_STATE_HOME/cotenant."
    ),
    rules: pathlib.Path | None = typer.Option(
        None, "--rules", metavar="FILE", help="Rules of detection; read again whenever the file changes."
    ),
    latency: pathlib.Path | None = typer.Option(
        None, "--latency", metavar="FILE", help="Online services and where their latency is read: docs/latency.md."
    ),
    latency_log: list[str] = typer.Option(
        [], "--latency-log", metavar="NAME=PATH:PATTERN", help="A service's access log, like shop=a.log:rt={seconds}."
    ),
    period: str = sampling.PERIOD,
    match: list[str] = sampling.MATCH,
    llc_probe: bool = sampling.LLC_PROBE,
    web: bool = typer.Option(True, "--web/--no-web", help="Without: no page, API and metrics; history only."),
    token_file: pathlib.Path | None = typer.Option(
        None, "--token-file", metavar="FILE", help="Secret that changes need; else a new one in the data directory."
    ),
    enforce: bool = typer.Option(
        False, "--enforce", help="Also hold back offline work: groups of cotenant run, and those named by --match."
    ),
    slo: pathlib.Path | None = typer.Option(
        None, "--slo", metavar="FILE", help="A NodeSLO; else priority by class, and suppression at 65 % of the CPUs."
    ),
    dry_run: bool = typer.Option(False, "--dry-run", help="With --enforce: show what would be written, write nothing."),
    evict: bool = typer.Option(False, "--evict", help="With --enforce: may end offline commands that nothing tames."),
    beside_others: bool = typer.Option(False, "--beside-others", help="Write although another co-location agent runs."),
    as_json: bool = typer.Option(False, "--json", help="Log as JSON lines."),
) -> None:
    """Watch this machine: who is hurt, by what and by whom, in a web page; ctrl-C ends it.

    With --enforce offline work is held back while online work suffers. Limits stay when it ends: cotenant restore.
    """
    if not enforce and (slo or dry_run or evict or beside_others):
        raise typer.BadParameter("give --enforce with it", param_hint="--slo, --dry-run, --evict, --beside-others")
    from cotenant.detect import engine, presets
    from cotenant.kernel import paths
    from cotenant.local import listening, program
    from cotenant.local.revisions import Revisions
    from cotenant.local.rules import FileJudge, PresetJudge
    from cotenant.units.clock import SystemClock

    logs.to_stderr(as_json)
    source = sampling.open_sampler("/", period, None, match, llc_probe)
    place = listening.data_directory(data)
    judge: PresetJudge | FileJudge
    if rules is None:
        sampling.check_window(presets.get().window_seconds, source.period_s)
        judge = PresetJudge(engine.Engine)
    else:
        judge = FileJudge(rules, source.period_s, engine.Engine, Revisions(place), SystemClock())
    services = _services(latency, latency_log) if latency or latency_log else ()
    acting = _enforcement(slo, match, dry_run, evict, beside_others) if enforce else None
    settings = program.Settings(
        port=port,
        listen=listen,
        data=place,
        period_s=source.period_s,
        web=web,
        token_file=token_file,
        enforcement=acting,
        services=services,
    )
    running = program.Program(settings, source, judge, paths.Root().proc / "self" / "status", _say)
    try:
        running.run()
    finally:
        source.close()


def _services(file: pathlib.Path | None, logs_of: list[str]) -> "tuple[Service, ...]":
    from cotenant.latency import configuration

    found = configuration.load(file) if file is not None else ()
    return configuration.check((*found, *map(configuration.of_log, logs_of)))


def _enforcement(
    slo: pathlib.Path | None, match: list[str], dry_run: bool, evict: bool, beside_others: bool
) -> "Enforcement":
    from cotenant.kernel import lock, paths
    from cotenant.kernel.cgroup.classes import Match
    from cotenant.local import ending, enforcement

    root = paths.Root()
    if not dry_run:
        with lock.writing(root):
            pass  # who may not write is told now, not once a second
    chosen: dict[str, Any] = {} if slo is None else {"slo": inputs.read_slo(slo), "policy": str(slo)}
    settings = enforcement.Settings(
        matches=tuple(Match.parse(text) for text in match),
        evict=evict,
        dry_run=dry_run,
        beside_others=beside_others,
        **chosen,
    )
    return enforcement.Enforcement(root, settings, evict=ending.Ending(root) if evict else None)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
