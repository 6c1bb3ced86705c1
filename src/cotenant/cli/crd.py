"""``cotenant crd``: the definitions of our kinds."""

import pathlib
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, add_completion=False)

KindName = Annotated[list[str] | None, typer.Argument(metavar="[nir|drc|crl]...", help="Which kinds; all by default.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

FIELD_MANAGER = "cotenant-install"


@app.callback()
def group() -> None:
    """The kinds NodeInterferenceReport (nir), DetectionRuleConfig (drc) and ColocationRollout (crl)."""


@app.command("print")
def print_(kinds: KindName = None, json: Json = False) -> None:
    """Print the CustomResourceDefinitions, for kubectl apply -f -."""
    from cotenant.api import crd
    from cotenant.cli import printing

    chosen = _chosen(kinds)
    if json:
        items = [crd.definition(crd.KINDS[short]) for short in chosen]
        printing.print_json({"apiVersion": "v1", "kind": "List", "items": items})
    else:
        typer.echo("---\n".join(crd.render(crd.KINDS[short]) for short in chosen), nl=False)


@app.command()
def install(
    kinds: KindName = None,
    kubeconfig: Annotated[pathlib.Path | None, typer.Option(help="Which cluster; the usual one by default.")] = None,
    json: Json = False,
) -> None:
    """Create or update the CustomResourceDefinitions in the cluster."""
    import asyncio

    from cotenant.cli import printing

    names = asyncio.run(_install(_chosen(kinds), kubeconfig))
    if json:
        printing.print_json({"installed": names})
    else:
        for name in names:
            typer.echo(f"installed {name}")


async def _install(chosen: list[str], kubeconfig: pathlib.Path | None) -> list[str]:
    from cotenant.api import crd
    from cotenant.kube.client import DEFINITIONS, Client, load_configuration

    names = []
    async with Client(load_configuration(kubeconfig)) as client:
        for short in chosen:
            kind = crd.KINDS[short]
            # Ours by name: another manager's fields there are an older version of us, by kubectl or helm.
            await client.apply(DEFINITIONS, kind.name, crd.definition(kind), FIELD_MANAGER, force=True)
            names.append(kind.name)
    return names


def _chosen(kinds: list[str] | None) -> list[str]:
    from cotenant.api import crd

    unknown = sorted(set(kinds or ()) - set(crd.KINDS))
    if unknown:
        raise typer.BadParameter(f"no kind {', '.join(unknown)}: give {' or '.join(crd.KINDS)}")
    return kinds or list(crd.KINDS)
