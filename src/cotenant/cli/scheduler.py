"""``cotenant scheduler``: the extender, and the configuration that makes a scheduler ask it."""

import pathlib
from typing import Annotated, Literal

import typer

app = typer.Typer(no_args_is_help=False, add_completion=False)

DEFAULT_LISTEN = "127.0.0.1:8088"

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback(invoke_without_command=True)
def serve(
    context: typer.Context,
    reports: Annotated[
        pathlib.Path | None,
        typer.Option(help="Reports from a file (kubectl get nir -o json), read again when it changes; no cluster."),
    ] = None,
    objects: Annotated[
        pathlib.Path | None,
        typer.Option(help="With --reports: RuntimeClasses and Nodes (kubectl get runtimeclasses,nodes -o json)."),
    ] = None,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to answer.")] = DEFAULT_LISTEN,
    kubeconfig: Annotated[
        pathlib.Path | None, typer.Option(help="Without --reports: which cluster; the usual one by default.")
    ] = None,
    analyzer_namespace: Annotated[
        str | None, typer.Option(help="Where the analyzer's lease is; the kubeconfig's namespace by default.")
    ] = None,
    preset: Annotated[Literal["default", "mco"], typer.Option(help="How levels become scores.")] = "default",
    applies_to: Annotated[
        Literal["all", "online", "offline"], typer.Option(help="The pods that hard limits and scores are for.")
    ] = "all",
    volcano_weight: Annotated[
        float | None, typer.Option(min=0, help="Points for Volcano between worst and best: 100 times this.")
    ] = None,
    max_body_mebibytes: Annotated[int, typer.Option(min=1, max=1024, help="Largest request body.")] = 32,
    json: Json = False,
) -> None:
    """Answer kube-scheduler (/kube/filter, prioritize, preempt) and Volcano (/volcano/predicate, prioritize)."""
    if context.invoked_subcommand is not None:
        return
    if objects is not None and reports is None:
        raise typer.BadParameter("--objects goes with --reports; a cluster has its own")
    import asyncio
    import logging

    from cotenant.cli import printing
    from cotenant.scheduler import serving
    from cotenant.scheduler.rules import VOLCANO_WEIGHT, Rules
    from cotenant.scheduler.server import BodyReader
    from cotenant.scheduler.source import FileSource, Source
    from cotenant.units.clock import SystemClock

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    weight = VOLCANO_WEIGHT[preset] if volcano_weight is None else volcano_weight
    rules = Rules(preset=preset, volcano_weight=weight, applies_to=applies_to)
    source = FileSource(reports, objects) if reports is not None else None
    reader = BodyReader(max_body_mebibytes << 20)
    listener = serving.bind(listen)

    async def serve_from(source: Source) -> None:
        def started(url: str) -> None:
            if json:
                printing.print_json_line({"url": url, "reports": len(source.table.rows)})
            else:
                typer.echo(f"answering on {url}; ctrl-C ends it")

        await serving.serve(source, rules, listener, SystemClock(), reader, started)

    async def serve_cluster() -> None:
        from cotenant.kube.client import Client, load_configuration
        from cotenant.scheduler.cluster import ClusterSource

        async with Client(load_configuration(kubeconfig), "cotenant-scheduler") as client:
            await serve_from(ClusterSource(client, SystemClock(), analyzer_namespace))

    asyncio.run(serve_cluster() if source is None else serve_from(source))


@app.command()
def config(
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where the extender answers.")] = DEFAULT_LISTEN,
    volcano: Annotated[bool, typer.Option("--volcano", help="For Volcano instead of kube-scheduler.")] = False,
    json: Json = False,
) -> None:
    """Print the configuration that makes kube-scheduler (or Volcano) ask the extender."""
    from cotenant.cli import printing
    from cotenant.scheduler import configuration, serving

    host, port = serving.split_address(listen)
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    text = configuration.volcano(address) if volcano else configuration.kube_scheduler(address)
    if json:
        import yaml

        printing.print_json(yaml.safe_load(text))
    else:
        typer.echo(text, nl=False)
