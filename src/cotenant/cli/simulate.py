"""``cotenant simulate``: things that do not exist, for trying out those that do."""

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.cli import options
from cotenant.model.priority import NAMES, InterfaceName
from cotenant.units import errors

if TYPE_CHECKING:
    from cotenant.node import simulation

app = typer.Typer(no_args_is_help=True, add_completion=False)


class NoAnalyzer(errors.CotenantError):
    """Nobody was there to take the samples."""


@app.callback()
def group() -> None:
    """Simulated nodes."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What ``cotenant simulate nodes`` is told."""

    count: Annotated[int, typer.Option(min=1, max=20_000, help="How many.")] = 100
    noisy_ratio: Annotated[float, typer.Option(min=0, max=1, help="Share of them whose disk cannot keep up.")] = 0.0
    address: Annotated[str, typer.Option(metavar="HOST:PORT", help="The analyzer.")] = "127.0.0.1:7443"
    analyzer_ca: Annotated[
        pathlib.Path | None, typer.Option(metavar="FILE", help="Who signed its certificate; needed beyond loopback.")
    ] = None
    analyzer_name: Annotated[
        str, typer.Option(metavar="NAME", help="What its certificate must say; else its address.")
    ] = ""
    token_file: Annotated[
        pathlib.Path | None, typer.Option(metavar="FILE", help="A token that may speak for all of them.")
    ] = None
    prefix: Annotated[str, typer.Option(metavar="NAME", help="What their names begin with; a number follows.")] = (
        "node-"
    )
    first: Annotated[int, typer.Option(min=0, help="The first number.")] = 0
    interface: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Priority interface that they find; several: in turn."),
    ] = None
    follow: Annotated[bool, typer.Option("--follow", help="Obey the labels of the cluster's Nodes.")] = False
    noisy_when: Annotated[
        str, typer.Option(metavar="LABEL=VALUE", help="With --follow: noisy while the Node has this label.")
    ] = ""
    kubeconfig: Annotated[pathlib.Path | None, typer.Option(help="With --follow: which cluster.")] = None
    kata: Annotated[
        bool | None, typer.Option("--kata/--no-kata", help="Their hosts have, or lack, what Kata containers need.")
    ] = None
    seconds: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=1, help="For how long; until ctrl-C by default.")
    ] = None
    json: options.Json = False


@app.command()
@options.as_fields_of(Options)
def nodes(given: Options) -> None:
    """Stream the samples of nodes that do not exist to an analyzer, one a second each."""
    import asyncio

    from cotenant.cli import printing

    counts = asyncio.run(_run(_plan(given), given))
    if not counts["sent"]:
        raise NoAnalyzer(
            f"{given.address}: no analyzer took a sample; start `cotenant analyzer`, or give --address HOST:PORT"
        )
    if given.json:
        printing.print_json(counts)
    else:
        printing.print_table(("", ""), [(name, str(value)) for name, value in counts.items()], "nothing was sent")


def _plan(given: Options) -> "simulation.Plan":
    """Return what is to be simulated.

    :raises typer.BadParameter: if some options do not go together.
    :raises CotenantError: if one cannot be used.
    """
    from cotenant.kube import channel
    from cotenant.node import simulation

    channel.check(given.address, given.analyzer_ca, "--address")
    label, equals, value = given.noisy_when.partition("=")
    if given.noisy_when and not (given.follow and label and equals):
        raise typer.BadParameter("give LABEL=VALUE, and --follow", param_hint="--noisy-when")
    return simulation.Plan(
        count=given.count,
        prefix=given.prefix,
        first=given.first,
        noisy_ratio=given.noisy_ratio,
        address=given.address,
        open_channel=channel.opener(given.analyzer_ca, given.token_file, given.analyzer_name),
        interfaces=_interfaces(given.interface or ["mainline-idle"]),
        noisy_when=(label, value) if given.noisy_when else None,
        kata=given.kata,
    )


def _interfaces(names: list[str]) -> tuple[InterfaceName, ...]:
    known = {str(name): name for name in NAMES}
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(NAMES)}", param_hint="--interface")
    return tuple(known[name] for name in names)


async def _run(plan: "simulation.Plan", given: Options) -> dict[str, int]:
    from cotenant.kube.client import NODES, Client
    from cotenant.kube.configuration import load_configuration
    from cotenant.node import simulation

    if not given.follow:
        return await simulation.run(plan, given.seconds)
    async with Client(load_configuration(given.kubeconfig), "cotenant-simulate") as client:
        await client.page(NODES, limit=1)  # to follow is to wait, for an API server that is not there as well
        return await simulation.run(plan, given.seconds, client)
