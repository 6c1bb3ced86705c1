"""The DaemonSets that a hard taint would keep out: ``check --daemonsets`` and ``scheduler daemonsets``."""

import pathlib

import typer

from cotenant.cli import cluster, printing


def show(kubeconfig: pathlib.Path | None, as_json: bool) -> None:
    """Read the cluster and list them.

    :raises typer.Exit: with status 1 if there are some.
    """
    from cotenant.scheduler import daemonsets

    found = cluster.ask(kubeconfig, "cotenant-scheduler", daemonsets.list_kept_out)
    if as_json:
        printing.print_json({"keptOut": found})
    else:
        typer.echo("\n".join(found) if found else "every DaemonSet tolerates the taint")
    if found:
        raise typer.Exit(1)
