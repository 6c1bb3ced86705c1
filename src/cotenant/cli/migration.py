"""``cotenant check --koordinator``: what would change on each node if cotenant took koordlet's place."""

import dataclasses
import pathlib
from typing import TYPE_CHECKING

import typer

from cotenant.cli import cluster, printing
from cotenant.units import errors

if TYPE_CHECKING:
    from cotenant.manager.migration import NodeChanges, Running


class NothingThere(errors.CotenantError):
    """The cluster has nothing of Koordinator."""


def show(kubeconfig: pathlib.Path | None, node: str, as_json: bool) -> None:
    """Read the cluster and print the plan."""
    from cotenant.manager import migration

    print_plan(cluster.ask(kubeconfig, "cotenant-check", migration.read), node, as_json)


def print_plan(running: "Running", node: str, as_json: bool) -> None:
    """Print what would change, the irreversible first; nodes that would change alike are one block.

    :raises NothingThere: if there is no NodeSLO, or none of the node asked for.
    """
    found = running.nodes(node)
    if not found:
        which = f"of the name {node!r}" if node else "at all"
        raise NothingThere(f"there is no NodeSLO {which}: is this the cluster of that Koordinator?")
    if as_json:
        document = {
            "koordlet": running.image or None,
            "featureGates": running.gates,
            "nodes": [dataclasses.asdict(one) for one in found],
        }
        printing.print_json(document)
        return
    _print(running, found)


def _print(running: "Running", found: "tuple[NodeChanges, ...]") -> None:
    if running.gates is None:
        typer.echo("No DaemonSet named koordlet was found: its feature gates are taken to be the defaults.\n")
    alike: dict[tuple[object, ...], list[str]] = {}
    for one in found:
        alike.setdefault((one.interface, one.changes, one.problem), []).append(one.node)
    for (_, _, problem), names in alike.items():
        one = next(each for each in found if each.node == names[0])
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        typer.echo(
            f"{', '.join(names[:3])}{more}: priority interface {one.interface.name if one.interface else 'unknown'}"
        )
        if problem:
            typer.echo(f"  NodeSLO: {problem}")
        rows = [(change.kind, change.subject, change.text) for change in one.changes]
        printing.print_table(("", "what", "change"), rows, "Nothing would change.")
        typer.echo()
    count = sum(change.kind == "irreversible" for one in found for change in one.changes)
    typer.echo(f"nodes: {len(found)}; changes that could not be undone: {count}")
    typer.echo("Values of files are compared on a node itself: cotenant node --shadow.")
