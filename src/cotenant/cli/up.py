"""``cotenant up``: one host under watch, with a page, an API and metrics."""

import dataclasses
import pathlib
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.cli import inputs, logs, options, sampling

if TYPE_CHECKING:
    from cotenant.latency.configuration import Service
    from cotenant.local.enforcement import Enforcement
    from cotenant.local.rules import FileJudge, PresetJudge


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What ``cotenant up`` is told."""

    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 takes a free one.")] = 7070
    listen: Annotated[str, typer.Option(metavar="ADDRESS", help="Beyond loopback needs --token-file.")] = "127.0.0.1"
    data: Annotated[
        pathlib.Path | None,
        typer.Option(metavar="DIR", help="History and token; else /var/lib/cotenant, or $XDG_STATE_HOME/cotenant."),
    ] = None
    rules: Annotated[
        pathlib.Path | None,
        typer.Option(metavar="FILE", help="Rules of detection; read again whenever the file changes."),
    ] = None
    latency: Annotated[
        pathlib.Path | None,
        typer.Option(metavar="FILE", help="Online services and where their latency is read: docs/latency.md."),
    ] = None
    latency_log: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=PATH:PATTERN", help="A service's access log, like shop=a.log:rt={seconds}."),
    ] = None
    period: sampling.Period = "1s"
    match: sampling.Match = None
    llc_probe: sampling.LlcProbe = False
    web: Annotated[bool, typer.Option("--web/--no-web", help="Without: no page, API and metrics; history only.")] = True
    token_file: Annotated[
        pathlib.Path | None,
        typer.Option(metavar="FILE", help="Secret that changes need; else a new one in the data directory."),
    ] = None
    enforce: Annotated[
        bool,
        typer.Option(
            "--enforce", help="Also hold back offline work: groups of cotenant run, and those named by --match."
        ),
    ] = False
    slo: Annotated[
        pathlib.Path | None,
        typer.Option(metavar="FILE", help="A NodeSLO; else priority by class, and suppression at 65 % of the CPUs."),
    ] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --enforce: show what would be written, write nothing.")
    ] = False
    evict: Annotated[
        bool, typer.Option("--evict", help="With --enforce: may end offline commands that nothing tames.")
    ] = False
    beside_others: Annotated[
        bool, typer.Option("--beside-others", help="Write although another co-location agent runs.")
    ] = False
    as_json: options.LogJson = False


@options.as_fields_of(Options)
def command(given: Options) -> None:
    """Watch this machine: who is hurt, by what and by whom, in a web page; ctrl-C ends it.

    With --enforce offline work is held back while online work suffers. Limits stay when it ends: cotenant restore.
    """
    if not given.enforce and (given.slo or given.dry_run or given.evict or given.beside_others):
        raise typer.BadParameter("give --enforce with it", param_hint="--slo, --dry-run, --evict, --beside-others")
    from cotenant.kernel import paths
    from cotenant.local import listening, program

    logs.to_stderr(given.as_json)
    source = sampling.open_sampler("/", given.period, None, given.match, given.llc_probe)
    data = listening.data_directory(given.data)
    judge = _judge(given.rules, source.period_s, data)
    settings = program.Settings(
        port=given.port,
        listen=given.listen,
        data=data,
        period_s=source.period_s,
        web=given.web,
        token_file=given.token_file,
        enforcement=_enforcement(given) if given.enforce else None,
        services=_services(given.latency, given.latency_log),
    )
    running = program.Program(settings, source, judge, paths.Root().proc / "self" / "status", _say)
    try:
        running.run()
    finally:
        source.close()


def _judge(file: pathlib.Path | None, period_s: float, data: pathlib.Path) -> "PresetJudge | FileJudge":
    """Return what judges samples: a file of rules, followed as it changes, or the preset.

    :raises BadPeriod: if too few periods fit into the preset's window.
    :raises CotenantError: if the rules cannot be used.
    """
    from cotenant.detect import engine, presets
    from cotenant.local.revisions import Revisions
    from cotenant.local.rules import FileJudge, PresetJudge
    from cotenant.units.clock import SystemClock

    if file is not None:
        return FileJudge(file, period_s, engine.Engine, Revisions(data), SystemClock())
    sampling.check_window(presets.get().window_seconds, period_s)
    return PresetJudge(engine.Engine)


def _services(file: pathlib.Path | None, logs_of: list[str] | None) -> "tuple[Service, ...]":
    """Return the online services whose latency is read; without any, none of what reads it is loaded."""
    if file is None and not logs_of:
        return ()
    from cotenant.latency import configuration

    found = configuration.load(file) if file is not None else ()
    return configuration.check((*found, *map(configuration.of_log, logs_of or ())))


def _enforcement(given: Options) -> "Enforcement":
    from cotenant.kernel import lock, paths
    from cotenant.kernel.cgroup.classes import Match
    from cotenant.local import ending, enforcement

    root = paths.Root()
    if not given.dry_run:
        with lock.writing(root):
            pass  # who may not write is told now, not once a second
    chosen: dict[str, Any] = {}
    if given.slo is not None:
        chosen = {"slo": inputs.read_slo(given.slo), "policy": str(given.slo)}
    settings = enforcement.Settings(
        matches=tuple(map(Match.parse, given.match or ())),
        evict=given.evict,
        dry_run=given.dry_run,
        beside_others=given.beside_others,
        **chosen,
    )
    return enforcement.Enforcement(root, settings, evict=ending.Ending(root) if given.evict else None)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
