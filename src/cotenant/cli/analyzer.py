"""``cotenant analyzer``: samples of all nodes in, reports out."""

import dataclasses
import logging
import pathlib
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.cli import logs, options

if TYPE_CHECKING:
    from cotenant.analyzer import program


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What ``cotenant analyzer`` is told."""

    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where nodes connect.")] = "127.0.0.1:7443"
    advertise: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where nodes reach this replica.")] = ""
    tls_certificate: Annotated[pathlib.Path | None, typer.Option(help="PEM; needed beyond loopback.")] = None
    tls_key: Annotated[pathlib.Path | None, typer.Option(help="PEM.")] = None
    samples_per_message: Annotated[
        int, typer.Option(min=1, max=5, help="How many samples calm nodes put into one message.")
    ] = 1
    rules: Annotated[
        pathlib.Path | None, typer.Option(metavar="FILE", help="Rules for nodes that no object in the cluster is for.")
    ] = None
    templates: options.Templates = None
    reports_out: Annotated[
        pathlib.Path | None, typer.Option(metavar="FILE", help="Write reports to a file instead of a cluster.")
    ] = None
    kubeconfig: options.Kubeconfig = None
    namespace: Annotated[
        str | None, typer.Option(metavar="NAME", help="Where the lease is; the kubeconfig's by default.")
    ] = None
    page: Annotated[str, typer.Option(metavar="HOST:PORT", help="Serve the page of all nodes and /metrics there.")] = ""
    latency: Annotated[
        str, typer.Option(metavar="URL", help="The manager's /api/v1/latency: online services on the page.")
    ] = ""
    page_name: Annotated[
        list[str] | None, typer.Option(metavar="HOST", help="A name the page may be asked for by; may repeat.")
    ] = None
    node_account: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Account whose tokens may send samples; may repeat.")
    ] = None
    reader_account: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Account that may read what nodes use; may repeat.")
    ] = None
    token_audience: Annotated[
        str | None, typer.Option(metavar="NAME", help="For whom nodes' tokens are to be; else the API server.")
    ] = None
    json: options.Json = False


@options.as_fields_of(Options)
def command(given: Options) -> None:
    """Take the samples of all nodes, detect interference, and publish a report for each node."""
    import asyncio

    from cotenant.analyzer import program
    from cotenant.cli import printing

    logs.to_stderr(level=logging.WARNING)

    def started(address: str, url: str | None) -> None:
        if given.json:
            printing.print_json_line({"address": address, **({"page": url} if url else {})})
        else:
            typer.echo(f"nodes connect to {address}{f', the page is {url}' if url else ''}; ctrl-C ends it")

    asyncio.run(program.run(_settings(given), started))


def _settings(given: Options) -> "program.Settings":
    """Return the program's settings.

    :raises CotenantError: if the rules cannot be used.
    """
    from cotenant.analyzer import program, receiving
    from cotenant.local import rules_file

    return program.Settings(
        listen=given.listen,
        advertise=given.advertise,
        tls_certificate=given.tls_certificate,
        tls_key=given.tls_key,
        instructions=receiving.Instructions(samples_per_message=given.samples_per_message),
        rules=rules_file.for_one_host(rules_file.load(given.rules)).rules if given.rules is not None else None,
        templates=given.templates,
        reports_out=given.reports_out,
        kubeconfig=given.kubeconfig,
        namespace=given.namespace,
        page=given.page,
        latency=given.latency,
        page_names=tuple(given.page_name or ()),
        node_accounts=tuple(given.node_account or ()),
        reader_accounts=tuple(given.reader_account or ()),
        token_audience=given.token_audience,
    )
