"""``cotenant verify``: try on this very machine what is promised."""

import typer

from cotenant.cli import printing, roots
from cotenant.kernel import trials

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _verify() -> None:
    """Try on this machine what is promised: own groups, own load, cleaned up afterwards."""


@app.command("kernel")
def kernel(
    root: str = roots.OPTION,
    as_json: bool = typer.Option(False, "--json", help="One JSON object."),
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
