"""``cotenant overcommit``: what a node offers to batch and mid work, and how that comes about."""

import pathlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.cli import cluster, options

if TYPE_CHECKING:
    from cotenant.manager.overcommit.statement import Statement

File = pathlib.Path | None
USER_AGENT = "cotenant-overcommit"
_GIB = 1 << 30
LEFT_OUT = 3
"""Exit status: done, but something was left."""
_BATCH = {
    "capacity": "capacity",
    "margin": "− margin, kept free",
    "system": "− system, used or reserved",
    "high_priority": "− pods with precedence",
    "cap": "at most",
    "amplification": "× amplification",
    "third_party": "− given out by others",
    "value": "= worked out",
}
_MID = {
    "reclaimable": "reclaimable of prod",
    "unallocated": "+ share of unallocated",
    "unused": "at most what is unused",
    "cap": "at most",
    "third_party": "− given out by others",
    "value": "= worked out",
}
_NEUTRAL = {"cap": None, "amplification": 1.0, "third_party": 0}
"""Terms that are shown only where they change something."""


def command(
    name: Annotated[str, typer.Argument(metavar="NODE", help="A node of the cluster.")] = "",
    node: Annotated[File, typer.Option(metavar="FILE", help="A v1 Node instead, with the files below.")] = None,
    pods: Annotated[File, typer.Option(metavar="FILE", help="Its pods: a v1 PodList.")] = None,
    metric: Annotated[File, typer.Option(metavar="FILE", help="What it uses: its NodeMetric.")] = None,
    config: Annotated[File, typer.Option(metavar="FILE", help="The ConfigMap with Koordinator's strategies.")] = None,
    at: Annotated[str, typer.Option(metavar="TIME", help="Take this for now, with files: RFC 3339.")] = "",
    slo_config: Annotated[
        str, typer.Option(metavar="NAMESPACE/NAME", help="Where that ConfigMap is in the cluster.")
    ] = "koordinator-system/slo-controller-config",
    clear: Annotated[bool, typer.Option("--clear", help="Take back what all nodes offer, and end.")] = False,
    kubeconfig: options.Kubeconfig = None,
    as_json: options.Json = False,
) -> None:
    """Say what a node offers to batch and mid work, what it should, and how that comes about, term by term.

    Exit 3: with --clear, pods hold some still on nodes that are named; clear again when they have ended.
    """
    from cotenant.cli import printing

    if clear:
        _clear(kubeconfig, as_json)
        return
    if bool(name) == (node is not None):
        raise typer.BadParameter("give the name of a NODE of the cluster, or --node FILE")
    found = _of_files(node, pods, metric, config, at) if node is not None else _of_cluster(name, slo_config, kubeconfig)
    if as_json:
        printing.print_json(found)
        return
    for problem in found.problems:
        typer.echo(f"not taken: {problem}", err=True)
    typer.echo(f"{_headline(found)}\n")
    printing.print_table(
        ("resource", "offered", "asked for", "worked out"),
        [
            [name, *(_amount(name, amounts.get(name)) for amounts in (found.offered, found.asked, found.worked_out))]
            for name in sorted({*found.offered, *found.asked, *found.worked_out})
        ],
        "It offers nothing of the kind.",
    )
    for title, tier, words in (("batch", found.batch, _BATCH), ("mid", found.mid, _MID)):
        if tier:
            _print_terms(title, tier, words)


def _clear(kubeconfig: File, as_json: bool) -> None:
    from cotenant.cli import printing
    from cotenant.manager.overcommit import looking

    done = cluster.ask(kubeconfig, USER_AGENT, looking.clear)
    if as_json:
        printing.print_json(done)
    else:
        typer.echo(f"{len(done.cleared)} nodes cleared{': ' if done.cleared else ''}{', '.join(done.cleared)}")
        if done.kept:
            typer.echo(f"pods still hold what they asked for on: {', '.join(done.kept)}; clear again when they ended")
    if done.kept:
        raise typer.Exit(LEFT_OUT)


def _headline(found: "Statement") -> str:
    how = {
        "off": "co-location is off there",
        "unknown": "nobody has told of its use: no NodeMetric (the manager itself may read the stream)",
        "degraded": f"its use was last told {found.age_seconds:.0f} s ago, too long" if found.age_seconds else "",
        "current": f"its use is known by {found.source}, {found.age_seconds} s old",
    }
    return f"{found.node}: {how[found.state]}"


def _print_terms(title: str, tier: Any, words: dict[str, str]) -> None:
    from cotenant.cli import printing

    rows = [
        [text, *(_term(field, resource, terms[field]) for resource, terms in tier.items())]
        for field, text in words.items()
        if field not in _NEUTRAL or any(terms[field] != _NEUTRAL[field] for terms in tier.values())
    ]
    typer.echo()
    printing.print_table((title, *tier), rows, "")


def _term(field: str, resource: str, value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:g}" if field == "amplification" else _amount(resource, value)


def _amount(resource: str, value: int | None) -> str:
    """Return cores or GiB, as a person reads them."""
    if value is None:
        return "–"
    return f"{value / 1000:.3f} cores" if resource.endswith("cpu") else f"{value / _GIB:.2f} GiB"


def _of_files(node: pathlib.Path, pods: File, metric: File, config: File, at: str) -> "Statement":
    import msgspec

    from cotenant.api import timestamp
    from cotenant.api.koordinator import node_metric
    from cotenant.cli import inputs
    from cotenant.manager.overcommit import looking, nodes
    from cotenant.manager.overcommit.pods import PodObject
    from cotenant.units import plain
    from cotenant.units.clock import ManualClock, SystemClock
    from cotenant.units.malformed import MALFORMED, problem

    wall = timestamp.parse(at) if at else SystemClock().wall()
    if wall is None:
        raise typer.BadParameter(f"--at {at}: write a time like 2026-11-30T00:00:00Z")

    def part(path: File, field: str, empty: Any, kind: Any, *kinds: str) -> Any:
        if path is None:
            return empty
        value = inputs.read_object(path, *kinds)
        said = (value.get(field) or empty) if field else value
        if field != "data":
            said = plain.without_nulls(said)
        try:
            return msgspec.convert(said, kind, strict=False)
        except MALFORMED as error:
            raise inputs.BadInput(f"{path}: {problem(error, said, kind, strict=False)}") from None

    listed = part(pods, "items", [], list[PodObject], "PodList", "List")
    data = part(config, "data", {}, dict[str, str], "ConfigMap")
    reported = part(metric, "", None, node_metric.NodeMetric, "NodeMetric")
    found = part(node, "", None, nodes.NodeObject, "Node")
    return looking.state(found, listed, reported, data, ManualClock(wall=wall))


def _of_cluster(name: str, slo_config: str, kubeconfig: File) -> "Statement":
    from cotenant.manager.controller import Place
    from cotenant.manager.overcommit import looking
    from cotenant.units.clock import SystemClock

    place = Place.parse(slo_config, "--slo-config")
    return cluster.ask(kubeconfig, USER_AGENT, lambda client: looking.look(client, name, place, SystemClock()))
