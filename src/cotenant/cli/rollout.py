"""``cotenant rollout``: how far staged rollouts are, and their reins."""

import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.cli import cluster, options
from cotenant.units import errors

if TYPE_CHECKING:
    from cotenant.api.rollout import ColocationRollout, StageStatus
    from cotenant.kube.client import Client
    from cotenant.manager.rollout.planning import Plan

app = typer.Typer(no_args_is_help=True, add_completion=False)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The ColocationRollout.")]


class NotPossible(errors.CotenantError):
    """A rollout that has ended takes no such order."""

    exit_status = 1


@app.callback()
def group() -> None:
    """Staged rollouts: ColocationRollout objects, which `cotenant manager` carries out."""


@app.command()
def status(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Else all, one a line.")] = None,
    kubeconfig: options.Kubeconfig = None,
    as_json: options.Json = False,
) -> None:
    """Show which stage a rollout is in, how its nodes are, and what its gates say."""
    from cotenant.cli import printing

    if name is None:
        listed = cluster.ask(kubeconfig, "cotenant-rollout", _list)
        if as_json:
            printing.print_json(listed)
            return
        rows = [
            (one.metadata.name, one.status.phase, one.status.stage or "", one.status.summary, one.status.message)
            for one in listed
        ]
        printing.print_table(
            ["ROLLOUT", "PHASE", "STAGE", "CHANGED", "MESSAGE"], rows, "No rollouts: docs/rollout.md says how to begin."
        )
        return
    found = cluster.ask(kubeconfig, "cotenant-rollout", lambda client: _get(client, name))
    if as_json:
        printing.print_json(found)
    else:
        _print(found)


@app.command()
def plan(
    file: Annotated[pathlib.Path, typer.Argument(metavar="FILE", help="A ColocationRollout, YAML or JSON.")],
    kubeconfig: options.Kubeconfig = None,
    as_json: options.Json = False,
) -> None:
    """Say which nodes each stage would change, and who would be left out and why; nothing is applied.

    Exit 1: a stage could not be filled, or the file cannot be meant.
    """
    import msgspec

    from cotenant.api import crd
    from cotenant.api.rollout import ColocationRollout
    from cotenant.cli import inputs, printing
    from cotenant.manager.rollout import planning
    from cotenant.units.malformed import MALFORMED, problem

    given = inputs.read_object(file, "ColocationRollout")
    try:
        wanted = msgspec.convert(given, ColocationRollout)
    except MALFORMED as error:
        raise inputs.BadInput(f"{file}: {problem(error, given, ColocationRollout)}") from None
    if strangers := crd.unknown_fields(crd.ROLLOUT, given):
        raise inputs.BadInput(f"{file}: unknown: {', '.join(strangers)}; docs/rollout.md has the fields")

    async def work(client: "Client") -> planning.Plan:
        from cotenant.api.rollout import TERMINAL
        from cotenant.manager.rollout import seeing
        from cotenant.units.clock import SystemClock

        views = await seeing.look(client, SystemClock())
        others = {one.metadata.uid for one in await _list(client) if one.status.phase not in TERMINAL}
        return planning.plan(wanted, views, frozenset(others))

    found = cluster.ask(kubeconfig, "cotenant-rollout", work)
    if as_json:
        printing.print_json(found)
    else:
        _print_plan(found)
    if not found.good:
        raise typer.Exit(1)


@app.command()
def pause(name: Name, kubeconfig: options.Kubeconfig = None, as_json: options.Json = False) -> None:
    """Change no more nodes, for now; those that are changed stay so, and gates are only shown."""
    _order(name, kubeconfig, as_json, "paused", lambda found: {"paused": True})


@app.command()
def resume(name: Name, kubeconfig: options.Kubeconfig = None, as_json: options.Json = False) -> None:
    """Go on after a pause or after a stop; a rollout that was taken back begins anew."""

    def change(found: "ColocationRollout") -> dict[str, Any]:
        stopped = found.status.stopped is not None or found.spec.abort
        return {"paused": False, "abort": False, "attempt": found.spec.attempt + stopped}

    _order(name, kubeconfig, as_json, "resumed", change)


@app.command()
def abort(name: Name, kubeconfig: options.Kubeconfig = None, as_json: options.Json = False) -> None:
    """Take everything back: each node gets what it had, but for what somebody changed since."""
    _order(name, kubeconfig, as_json, "taken back", lambda found: {"abort": True})


def _order(
    name: str,
    kubeconfig: pathlib.Path | None,
    as_json: bool,
    said: str,
    change: Callable[["ColocationRollout"], dict[str, Any]],
) -> None:
    from cotenant.cli import printing

    found, spec = cluster.ask(kubeconfig, "cotenant-rollout", lambda client: _write(client, name, change))
    if as_json:
        printing.print_json({"name": name, "phase": found.status.phase, "spec": spec})
    else:
        typer.echo(f"colocationrollout/{name}: {said}")


async def _write(
    client: "Client", name: str, change: Callable[["ColocationRollout"], dict[str, Any]]
) -> tuple["ColocationRollout", dict[str, Any]]:
    from cotenant.kube.client import ROLLOUTS

    found = await _get(client, name)
    if found.status.phase in ("Completed", "Finishing"):
        raise NotPossible(f"{name}: has come to its end; to go back, make a rollout of what was there before")
    spec = change(found)
    body = {"metadata": {"resourceVersion": found.metadata.resource_version}, "spec": spec}
    await client.patch(ROLLOUTS, name, body, field_manager="cotenant-rollout")
    return found, spec


async def _get(client: "Client", name: str) -> "ColocationRollout":
    from cotenant.api.rollout import ColocationRollout
    from cotenant.kube.client import ROLLOUTS

    return await client.get(ROLLOUTS, name, ColocationRollout)


async def _list(client: "Client") -> list["ColocationRollout"]:
    from cotenant.api.rollout import ColocationRollout
    from cotenant.kube.client import ROLLOUTS

    return [one async for one in client.every(ROLLOUTS, ColocationRollout)]


def _print(found: "ColocationRollout") -> None:
    from cotenant.cli import printing

    state = found.status
    typer.echo(
        f"{found.metadata.name}: {state.phase}, {state.summary or '0/0'} nodes changed. {state.message}".rstrip()
    )
    if state.stopped is not None:
        typer.echo(f"stopped at {state.stopped.at}: {state.stopped.reason}: {state.stopped.message}")
    typer.echo()
    wanted = {stage.name: stage.soak_seconds for stage in found.spec.stages}
    rows = [
        (
            stage.name,
            _state_of(stage, state.stage),
            str(stage.nodes),
            str(stage.changed),
            str(stage.confirmed),
            _left_out(stage),
            f"{stage.soaked_seconds:.0f} of {wanted.get(stage.name, 0)} s",
        )
        for stage in state.stages
    ]
    printing.print_table(
        ["STAGE", "STATE", "NODES", "CHANGED", "CONFIRMED", "LEFT OUT", "SOAKED"], rows, "No stage has begun."
    )
    typer.echo()
    gates = [
        (gate.name, gate.state if not gate.for_seconds else f"{gate.state} for {gate.for_seconds:.0f} s", gate.message)
        for gate in state.gates
    ]
    printing.print_table(["GATE", "STATE", "WHAT IT SEES"], gates, "No gate has been asked.")
    if state.left_out:
        typer.echo()
        printing.print_table(["LEFT OUT", "WHY"], [(one.name, one.reason) for one in state.left_out], "")


def _print_plan(found: "Plan") -> None:
    from cotenant.cli import printing

    for problem in found.problems:
        typer.echo(f"cotenant: {problem}", err=True)
    rows = [
        (
            stage.name,
            str(len(stage.nodes)),
            ", ".join(f"{count} {name}" for name, count in sorted(stage.interfaces.items())),
            str(stage.refused + stage.waiting),
            stage.obstacle or "may go on",
            ", ".join(stage.nodes[:3]) + (" …" if len(stage.nodes) > 3 else ""),
        )
        for stage in found.stages
    ]
    printing.print_table(["STAGE", "NODES", "INTERFACES", "LEFT OUT", "VERDICT", "FIRST"], rows, "There are no stages.")
    if found.left_out:
        typer.echo()
        printing.print_table(["LEFT OUT", "WHY"], [(one.name, one.reason) for one in found.left_out], "")
    if found.unreached:
        typer.echo(f"\n{found.unreached} nodes are in no stage.")


def _state_of(stage: "StageStatus", current: str | None) -> str:
    return "passed" if stage.passed else "under way" if stage.name == current else "later"


def _left_out(stage: "StageStatus") -> str:
    counts = (("waiting", stage.waiting), ("refused", stage.refused), ("overridden", stage.overridden))
    return ", ".join(f"{count} {what}" for what, count in counts if count) or "none"
