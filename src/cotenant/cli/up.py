"""``cotenant up``: one host under watch, with a page, an API and metrics."""

import pathlib
import sys

import typer

from cotenant.cli import logs, sampling


def command(
    port: int = typer.Option(7070, "--port", min=0, max=65535, help="Port of the page; 0 takes a free one."),
    listen: str = typer.Option("127.0.0.1", "--listen", metavar="ADDRESS", help="Beyond loopback needs --token-file."),
    data: pathlib.Path | None = typer.Option(
        None, "--data", metavar="DIR", help="History and token; else /var/lib/cotenant, or $XDG_STATE_HOME/cotenant."
    ),
    rules: pathlib.Path | None = typer.Option(
        None, "--rules", metavar="FILE", help="Rules of detection; read again whenever the file changes."
    ),
    period: str = sampling.PERIOD,
    match: list[str] = sampling.MATCH,
    llc_probe: bool = sampling.LLC_PROBE,
    web: bool = typer.Option(True, "--web/--no-web", help="Without: no page, API and metrics; history only."),
    token_file: pathlib.Path | None = typer.Option(
        None, "--token-file", metavar="FILE", help="Secret that changes need; else a new one in the data directory."
    ),
    as_json: bool = typer.Option(False, "--json", help="Log as JSON lines."),
) -> None:
    """Watch this machine: who is hurt, by what and by whom, in a web page; ctrl-C ends it."""
    from cotenant.detect import engine
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
        judge = PresetJudge(engine.Engine)
    else:
        judge = FileJudge(rules, source.period_s, engine.Engine, Revisions(place), SystemClock())
    settings = program.Settings(
        port=port, listen=listen, data=place, period_s=source.period_s, web=web, token_file=token_file
    )
    running = program.Program(settings, source, judge, paths.Root().proc / "self" / "status", _say)
    try:
        running.run()
    finally:
        source.close()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
