"""``cotenant analyzer``: samples of all nodes in, reports out."""

import pathlib
from typing import Annotated

import typer


def command(
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where nodes connect.")] = "127.0.0.1:7443",
    advertise: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where nodes reach this replica.")] = "",
    tls_certificate: Annotated[pathlib.Path | None, typer.Option(help="PEM; needed beyond loopback.")] = None,
    tls_key: Annotated[pathlib.Path | None, typer.Option(help="PEM.")] = None,
    samples_per_message: Annotated[
        int, typer.Option(min=1, max=5, help="How many samples calm nodes put into one message.")
    ] = 1,
    rules: Annotated[
        pathlib.Path | None, typer.Option(metavar="FILE", help="Rules for nodes that no object in the cluster is for.")
    ] = None,
    templates: Annotated[
        pathlib.Path | None, typer.Option(metavar="FILE", help="Strategy templates over the bundled ones.")
    ] = None,
    reports_out: Annotated[
        pathlib.Path | None, typer.Option(metavar="FILE", help="Write reports to a file instead of a cluster.")
    ] = None,
    kubeconfig: Annotated[pathlib.Path | None, typer.Option(help="Which cluster; the usual one by default.")] = None,
    namespace: Annotated[str | None, typer.Option(help="Where the lease is; the kubeconfig's by default.")] = None,
    page: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Serve the page of all nodes and /metrics there.")
    ] = "",
    latency: Annotated[
        str, typer.Option(metavar="URL", help="The manager's /api/v1/latency: online services on the page.")
    ] = "",
    page_name: Annotated[
        list[str] | None, typer.Option(metavar="HOST", help="A name the page may be asked for by; may repeat.")
    ] = None,
    node_account: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Account whose tokens may send samples; may repeat.")
    ] = None,
    reader_account: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Account that may read what nodes use; may repeat.")
    ] = None,
    token_audience: Annotated[
        str | None, typer.Option(metavar="NAME", help="For whom nodes' tokens are to be; else the API server.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Take the samples of all nodes, detect interference, and publish a report for each node."""
    import asyncio
    import logging

    from cotenant.analyzer import program, receiving
    from cotenant.cli import printing
    from cotenant.local import rules_file

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    settings = program.Settings(
        listen=listen,
        advertise=advertise,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        instructions=receiving.Instructions(samples_per_message=samples_per_message),
        rules=rules_file.for_one_host(rules_file.load(rules)).rules if rules is not None else None,
        templates=templates,
        reports_out=reports_out,
        kubeconfig=kubeconfig,
        namespace=namespace,
        page=page,
        latency=latency,
        page_names=tuple(page_name or ()),
        node_accounts=tuple(node_account or ()),
        reader_accounts=tuple(reader_account or ()),
        token_audience=token_audience,
    )

    def started(address: str, url: str | None) -> None:
        if json:
            printing.print_json_line({"address": address, **({"page": url} if url else {})})
        else:
            typer.echo(f"nodes connect to {address}{f', the page is {url}' if url else ''}; ctrl-C ends it")

    asyncio.run(program.run(settings, started))
