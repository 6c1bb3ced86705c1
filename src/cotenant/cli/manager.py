"""``cotenant manager``: policy, overcommit and profiles for the whole cluster."""

import pathlib
from typing import Annotated

import typer


def command(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where /metrics, /healthz and /readyz are.")
    ] = "127.0.0.1:8090",
    namespace: Annotated[
        str, typer.Option(metavar="NAME", help="Where our own objects are, the lease among them.")
    ] = "cotenant-system",
    slo_config: Annotated[
        str, typer.Option(metavar="NAMESPACE/NAME", help="The ConfigMap with Koordinator's strategies.")
    ] = "koordinator-system/slo-controller-config",
    analyzer: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Who tells what nodes use; by default who holds its lease.")
    ] = "",
    analyzer_ca: Annotated[
        pathlib.Path | None, typer.Option(metavar="FILE", help="Who signed its certificate; needed beyond loopback.")
    ] = None,
    token_file: Annotated[
        pathlib.Path | None, typer.Option(metavar="FILE", help="Token for it; else the service account's.")
    ] = None,
    node_metric: Annotated[
        str, typer.Option(metavar="auto|always|never", help="When nodes are asked for NodeMetrics: auto while read.")
    ] = "auto",
    kubeconfig: Annotated[pathlib.Path | None, typer.Option(help="Which cluster; the usual one by default.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Keep what nodes and pods get in step with what operators wrote."""
    import asyncio
    import logging
    from typing import get_args

    from cotenant.cli import printing, service_account
    from cotenant.kube.channel import Peer
    from cotenant.manager import controller, program

    place = slo_config.split("/")
    if len(place) != 2 or not all(place):
        raise typer.BadParameter(f"--slo-config {slo_config}: give NAMESPACE/NAME")
    peer = Peer(address=analyzer, ca_file=analyzer_ca, token_file=token_file or service_account.file("token"))
    if node_metric not in get_args(controller.NodeMetricWhen):
        raise typer.BadParameter(f"--node-metric {node_metric}: give auto, always or never")
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    settings = program.Settings(
        listen=listen,
        kubeconfig=kubeconfig,
        namespace=namespace,
        parts=controller.Settings(
            slo_config=controller.Place(*place),
            analyzer=peer,
            node_metric=node_metric,  # type: ignore[arg-type]
        ),
    )

    def started(url: str) -> None:
        if json:
            printing.print_json_line({"url": url})
        else:
            typer.echo(f"/metrics, /healthz and /readyz are at {url}; ctrl-C ends it")

    asyncio.run(program.run(settings, started))
