"""``cotenant uninstall``: the two steps of the chart's hook after its programs are gone."""

import pathlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.cli import options

if TYPE_CHECKING:
    from cotenant.manager.leaving import Outcome

app = typer.Typer(no_args_is_help=True, add_completion=False)

LEFT_STATUS = 3

Namespace = Annotated[str | None, typer.Option(metavar="NAME", help="Of the release; the kubeconfig's by default.")]
Timeout = Annotated[float, typer.Option(metavar="SECONDS", min=0, help="How long to wait at most.")]


@app.callback()
def group() -> None:
    """End an installation; the chart's hook calls these in this order."""


@app.command()
def wait(
    kubeconfig: options.PodKubeconfig = None,
    namespace: Namespace = None,
    timeout: Timeout = 120.0,
    json: options.Json = False,
) -> None:
    """Wait until no program of ours runs any more. Exit 1: some still do."""
    import asyncio

    from cotenant.cli import printing
    from cotenant.kube.client import Client
    from cotenant.kube.configuration import load_configuration
    from cotenant.manager import leaving
    from cotenant.units.clock import SystemClock

    async def work() -> list[str]:
        async with Client(load_configuration(kubeconfig), leaving.FIELD_MANAGER) as client:
            return await leaving.wait_for_programs(client, namespace or client.namespace, timeout, SystemClock())

    left = asyncio.run(work())
    if json:
        printing.print_json({"running": left})
    else:
        typer.echo(f"still running: {', '.join(left)}" if left else "no program of ours runs any more")
    if left:
        raise typer.Exit(1)


@app.command()
def finish(
    kubeconfig: options.PodKubeconfig = None,
    namespace: Namespace = None,
    timeout: Timeout = 120.0,
    restored: Annotated[
        bool, typer.Option(help="Wait for the pods that restore nodes; without, only the cluster is cleared.")
    ] = True,
    json: options.Json = False,
) -> None:
    """Say what each node gave back, and take what is left off the cluster. Exit 3: a node did not answer."""
    import asyncio

    from cotenant.cli import printing

    outcome, cleared = asyncio.run(_finish(kubeconfig, namespace, timeout, restored))
    if json:
        printing.print_json({"nodes": outcome, **cleared})
    else:
        _print(outcome, cleared)
    if outcome is not None and outcome.unreached:
        raise typer.Exit(LEFT_STATUS)


async def _finish(
    kubeconfig: pathlib.Path | None, namespace: str | None, timeout: float, restored: bool
) -> tuple["Outcome | None", dict[str, Any]]:
    from cotenant.kube.client import Client
    from cotenant.kube.configuration import load_configuration
    from cotenant.manager import leaving
    from cotenant.manager.overcommit import looking
    from cotenant.scheduler import marking
    from cotenant.units.clock import SystemClock

    async with Client(load_configuration(kubeconfig), leaving.FIELD_MANAGER) as client:
        ours = namespace or client.namespace
        outcome = await leaving.wait_for_nodes(client, ours, timeout, SystemClock()) if restored else None
        offered = await looking.clear(client)
        return outcome, {
            "verdicts": await marking.clear(client),
            "labels": await leaving.take_labels(client),
            "offers": offered.cleared,
            "offersKept": offered.kept,
            "removed": await leaving.remove_made(client, ours),
        }


def _print(outcome: "Outcome | None", cleared: dict[str, Any]) -> None:
    if outcome is not None:
        values = sum(message.restored for message in outcome.restored.values())
        left = sum(message.left for message in outcome.restored.values())
        more = sum(message.more_pods for message in outcome.restored.values())
        typer.echo(f"{len(outcome.restored)} nodes gave back {values} values; {left} cannot be given back")
        if outcome.pods:
            typer.echo("pods to make anew, whose class this kernel does not take back:")
            for pod in outcome.pods:
                typer.echo(f"  {pod}")
            if more:
                typer.echo(f"  and {more} more: `cotenant restore` on their nodes names them")
        for node, why in sorted(outcome.unreached.items()):
            typer.echo(f"node {node} was not restored ({why}): run `cotenant restore` there")
    verdicts, labels = len(cleared["verdicts"]), len(cleared["labels"])
    typer.echo(f"verdicts taken off {verdicts} nodes, orders off {labels}, offers of {len(cleared['offers'])}")
    if cleared["offersKept"]:
        kept = ", ".join(cleared["offersKept"])
        typer.echo(f"pods still hold batch resources on {kept}: `cotenant overcommit --clear` when they ended")
    if cleared["removed"]:
        typer.echo(f"removed {', '.join(cleared['removed'])}")
