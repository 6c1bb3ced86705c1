"""``cotenant simulate``: things that do not exist, for trying out those that do."""

import pathlib
from typing import Annotated, Any

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
    analyzer_ca: Annotated[
        pathlib.Path | None, typer.Option(metavar="FILE", help="Who signed its certificate; needed beyond loopback.")
    ] = None,
    analyzer_name: Annotated[
        str, typer.Option(metavar="NAME", help="What its certificate must say; else its address.")
    ] = "",
    token_file: Annotated[
        pathlib.Path | None, typer.Option(metavar="FILE", help="A token that may speak for all of them.")
    ] = None,
    prefix: Annotated[str, typer.Option(help="What their names begin with; a number follows.")] = "node-",
    first: Annotated[int, typer.Option(min=0, help="The first number.")] = 0,
    interface: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Priority interface that they find; several: in turn.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Obey the labels of the cluster's Nodes.")] = False,
    noisy_when: Annotated[
        str, typer.Option(metavar="LABEL=VALUE", help="With --follow: noisy while the Node has this label.")
    ] = "",
    kubeconfig: Annotated[pathlib.Path | None, typer.Option(help="With --follow: which cluster.")] = None,
    kata: Annotated[
        bool | None, typer.Option("--kata/--no-kata", help="Their hosts have, or lack, what Kata containers need.")
    ] = None,
    seconds: Annotated[float | None, typer.Option(min=1, help="For how long; until ctrl-C by default.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Stream the samples of nodes that do not exist to an analyzer, one a second each."""
    import asyncio

    from cotenant.cli import printing
    from cotenant.kube import channel
    from cotenant.node import simulation

    channel.check(address, analyzer_ca, "--address")
    label, given, value = noisy_when.partition("=")
    if noisy_when and not (follow and label and given):
        raise typer.BadParameter("give LABEL=VALUE, and --follow", param_hint="--noisy-when")
    plan = simulation.Plan(
        count=count,
        prefix=prefix,
        first=first,
        noisy_ratio=noisy_ratio,
        address=address,
        open_channel=channel.opener(analyzer_ca, token_file, analyzer_name),
        interfaces=_interfaces(interface or []),
        noisy_when=(label, value) if noisy_when else None,
        kata=kata,
    )
    counts = asyncio.run(_run(plan, seconds, kubeconfig, follow))
    if not counts["sent"]:
        raise NoAnalyzer(
            f"{address}: no analyzer took a sample; start `cotenant analyzer`, or give --address HOST:PORT"
        )
    if json:
        printing.print_json(counts)
    else:
        printing.print_table(("", ""), [(name, str(value)) for name, value in counts.items()], "nothing was sent")


async def _run(plan: Any, seconds: float | None, kubeconfig: pathlib.Path | None, follow: bool) -> dict[str, int]:
    from cotenant.kube.client import NODES, Client, load_configuration
    from cotenant.node import simulation

    if not follow:
        return await simulation.run(plan, seconds)
    async with Client(load_configuration(kubeconfig), "cotenant-simulate") as client:
        await client.page(NODES, limit=1)  # to follow is to wait, for an API server that is not there as well
        return await simulation.run(plan, seconds, client)


def _interfaces(names: list[str]) -> Any:
    """Return the interfaces of these names; mainline-idle where none is given."""
    from cotenant.model.priority import NAMES

    for name in names:
        if name not in NAMES:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(NAMES)}", param_hint="--interface")
    return tuple(names) or ("mainline-idle",)
