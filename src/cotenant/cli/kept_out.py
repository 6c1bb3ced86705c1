"""The DaemonSets that a hard taint would keep out: ``check --daemonsets`` and ``scheduler daemonsets``."""

import asyncio
import pathlib

import typer

from cotenant.cli import printing


def show(kubeconfig: pathlib.Path | None, as_json: bool) -> None:
    """Read the cluster and list them.

    :raises typer.Exit: with status 1 if there are some.
    """
    from cotenant.kube.client import Client, load_configuration
    from cotenant.scheduler import daemonsets

    async def work() -> list[str]:
        async with Client(load_configuration(kubeconfig), "cotenant-scheduler") as client:
            return await daemonsets.list_kept_out(client)

    found = asyncio.run(work())
    if as_json:
        printing.print_json({"keptOut": found})
    else:
        typer.echo("\n".join(found) if found else "every DaemonSet tolerates the taint")
    if found:
        raise typer.Exit(1)
