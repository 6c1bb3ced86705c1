"""``cotenant crd``: the definitions of our kinds, and of Koordinator's where a cluster has none."""

from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.cli import cluster, options

if TYPE_CHECKING:
    from cotenant.api.crd import Kind
    from cotenant.kube.client import Client

app = typer.Typer(no_args_is_help=True, add_completion=False)

KindName = Annotated[
    list[str] | None,
    typer.Argument(metavar="KIND…", help="Which kinds: nir, drc, crl, or with --koordinator theirs; all by default."),
]
Koordinator = Annotated[
    bool, typer.Option("--koordinator", help="Koordinator's kinds instead (nodeslos, nodemetrics, ...).")
]

FIELD_MANAGER = "cotenant-install"


@app.callback()
def group() -> None:
    """The kinds NodeInterferenceReport (nir), DetectionRuleConfig (drc) and ColocationRollout (crl)."""


@app.command("print")
def print_(kinds: KindName = None, koordinator: Koordinator = False, json: options.Json = False) -> None:
    """Print the CustomResourceDefinitions, for kubectl apply -f -."""
    from cotenant.api import crd
    from cotenant.cli import printing

    chosen = _chosen(kinds, koordinator)
    if json:
        items = [crd.definition(kind) for kind in chosen]
        printing.print_json({"apiVersion": "v1", "kind": "List", "items": items})
    else:
        typer.echo("---\n".join(crd.render(kind) for kind in chosen), nl=False)


@app.command()
def install(
    kinds: KindName = None,
    koordinator: Koordinator = False,
    kubeconfig: options.Kubeconfig = None,
    json: options.Json = False,
) -> None:
    """Create or update the CustomResourceDefinitions in the cluster; Koordinator's own are left as they are."""
    from cotenant.cli import printing

    chosen = _chosen(kinds, koordinator)
    installed, left = cluster.ask(kubeconfig, FIELD_MANAGER, lambda client: _install(client, chosen))
    if json:
        printing.print_json({"installed": installed, **({"left": left} if koordinator else {})})
        return
    for name in installed:
        typer.echo(f"installed {name}")
    for name in left:
        typer.echo(f"left {name}: it is there already, and not ours")


async def _install(client: "Client", chosen: "list[Kind]") -> tuple[list[str], list[str]]:
    """Return the names that were installed, and those that are others' and were left."""
    from typing import Any

    from cotenant.api import crd, report
    from cotenant.kube import errors
    from cotenant.kube.client import DEFINITIONS

    installed: list[str] = []
    left: list[str] = []
    for kind in chosen:
        if kind.group != report.GROUP:
            try:
                found = await client.get(DEFINITIONS, kind.name, dict[str, Any])
            except errors.NotFound:
                found = None
            if found is not None and (found["metadata"].get("labels") or {}).get(crd.OURS[0]) != crd.OURS[1]:
                left.append(kind.name)
                continue
        # Ours by name or by label: another manager's fields there are an older version of us, by kubectl or helm.
        await client.apply(DEFINITIONS, kind.name, crd.definition(kind), FIELD_MANAGER, force=True)
        installed.append(kind.name)
    return installed, left


def _chosen(names: list[str] | None, koordinator: bool) -> "list[Kind]":
    from cotenant.api import crd
    from cotenant.api.koordinator import kinds

    known = kinds.KINDS if koordinator else crd.KINDS
    unknown = sorted(set(names or ()) - set(known))
    if unknown:
        raise typer.BadParameter(f"no kind {', '.join(unknown)}: give {' or '.join(known)}")
    return [known[name] for name in names or known]
