"""``cotenant verify``: try on this very machine what is promised."""

from typing import Annotated

import typer

from cotenant.cli import printing, roots
from cotenant.kernel import trials

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _verify() -> None:
    """Try on this machine what is promised: own groups, own load, cleaned up afterwards."""


@app.command("kernel")
def kernel(
    root: roots.Option = "/",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> int:
    """Write to scratch groups and compare each answer with what cotenant expects of this kernel; exit 1 if one differs.

    Only empty groups made for it are written, never one with tasks in it.
    """
    found = trials.verify(roots.open_root(root))
    if as_json:
        printing.print_json(found)
    else:
        rows = [
            (result.name, result.state, "; ".join(result.deviations) or result.reason or "-")
            for result in found.results
        ]
        printing.print_table(("statement", "this kernel", "how"), rows, "Nothing to try.")
        if not found.agrees:
            typer.echo(f"Please report the deviations with the kernel's release, {found.kernel}.")
    return 0 if found.agrees else 1


@app.command("smt")
def smt(
    online_cpus: Annotated[str | None, typer.Option(metavar="LIST", help="Where online work runs: 0-3.")] = None,
    seconds: Annotated[float, typer.Option(min=0.5, max=600.0, help="The length of each of the three runs.")] = 10.0,
    core_scheduling: Annotated[
        bool, typer.Option("--core-scheduling", help="Give offline work a cookie of its own.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Also on a busy node.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> int:
    """Try whether online work expels offline work from sibling threads; exit 1 unless it does."""
    from cotenant.kernel import paths
    from cotenant.local import groups, smt
    from cotenant.units import cpulist

    managed = groups.Groups(paths.Root())
    try:
        wanted = None if online_cpus is None else cpulist.parse(online_cpus)
    except cpulist.BadCpuList as error:
        raise typer.BadParameter(str(error), param_hint="--online-cpus") from None
    result = smt.verify(managed, wanted=wanted, seconds=seconds, force=force, core_scheduling=core_scheduling)
    if as_json:
        printing.print_json(result)
    else:
        rows = [
            (
                phase.name,
                cpulist.render(phase.offline_cpus),
                cpulist.render(phase.online_cpus) or "-",
                "-" if phase.offline_run_ratio is None else f"{phase.offline_run_ratio:.1%}",
                "-" if phase.online_unit_seconds is None else f"{phase.online_unit_seconds * 1e6:.0f} us",
            )
            for phase in result.phases
        ]
        columns = ("run", "offline on CPUs", "online on CPUs", "offline CPU time", "online unit of work")
        printing.print_table(columns, rows, "Nothing was run.")
        with_cookies = ", with core scheduling" if result.core_scheduling else ""
        typer.echo(f"{result.verdict}: {result.reason} ({result.interface}{with_cookies})")
    return 0 if result.verdict == "expelled" else 1


@app.command("regression")
def regression(
    force: Annotated[bool, typer.Option("--force", help="Also on a busy node.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A list of rows.")] = False,
) -> int:
    """Try each feature once with throw-away work; exit 1 if one fails."""
    from cotenant.kernel import paths
    from cotenant.local import groups, regression

    rows = regression.verify(groups.Groups(paths.Root()), force=force)
    if as_json:
        printing.print_json(rows)
    else:
        printing.print_table(("feature", "result", "how"), [(r.name, r.state, r.detail) for r in rows], "Nothing.")
    return 1 if any(row.state == "fail" for row in rows) else 0
