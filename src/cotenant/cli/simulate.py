"""``cotenant simulate``: things that do not exist, for trying out those that do."""

from typing import Annotated

import typer

from cotenant.units import errors

app = typer.Typer(no_args_is_help=True, add_completion=False)


class NoAnalyzer(errors.CotenantError):
    """Nobody was there to take the samples."""


@app.callback()
def group() -> None:
    """Simulated nodes."""


@app.command()
def nodes(
    count: Annotated[int, typer.Option(min=1, max=20_000, help="How many.")] = 100,
    noisy_ratio: Annotated[float, typer.Option(min=0, max=1, help="Share of them whose disk cannot keep up.")] = 0.0,
    address: Annotated[str, typer.Option(metavar="HOST:PORT", help="The analyzer.")] = "127.0.0.1:7443",
    prefix: Annotated[str, typer.Option(help="What their names begin with; a number follows.")] = "node-",
    first: Annotated[int, typer.Option(min=0, help="The first number.")] = 0,
    seconds: Annotated[float | None, typer.Option(min=1, help="For how long; until ctrl-C by default.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Stream the samples of nodes that do not exist to an analyzer, one a second each."""
    import asyncio

    from cotenant.cli import printing
    from cotenant.node import simulation

    plan = simulation.Plan(count=count, prefix=prefix, first=first, noisy_ratio=noisy_ratio, address=address)
    counts = asyncio.run(simulation.run(plan, seconds))
    if not counts["sent"]:
        raise NoAnalyzer(
            f"{address}: no analyzer took a sample; start `cotenant analyzer`, or give --address HOST:PORT"
        )
    if json:
        printing.print_json(counts)
    else:
        printing.print_table(("", ""), [(name, str(value)) for name, value in counts.items()], "nothing was sent")
