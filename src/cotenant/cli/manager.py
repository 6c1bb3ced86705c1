"""``cotenant manager``: policy, overcommit and profiles for the whole cluster."""

import dataclasses
import logging
import pathlib
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cotenant.cli import cluster, logs, options

if TYPE_CHECKING:
    from cotenant.manager import program
    from cotenant.manager.webhook import settings as webhook_settings

Strength = Literal["off", "soft", "hard"]

app = typer.Typer(no_args_is_help=False, add_completion=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What ``cotenant manager`` is told."""

    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where /metrics, /healthz, /readyz and /api/v1/latency are.")
    ] = "127.0.0.1:8090"
    namespace: Annotated[str, typer.Option(metavar="NAME", help="Where our own objects are, the lease among them.")] = (
        "cotenant-system"
    )
    slo_config: Annotated[
        str, typer.Option(metavar="NAMESPACE/NAME", help="The ConfigMap with Koordinator's strategies.")
    ] = "koordinator-system/slo-controller-config"
    analyzer: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Who tells what nodes use; by default who holds its lease.")
    ] = ""
    analyzer_ca: Annotated[
        pathlib.Path | None, typer.Option(metavar="FILE", help="Who signed its certificate; needed beyond loopback.")
    ] = None
    analyzer_name: options.AnalyzerName = ""
    token_file: Annotated[
        pathlib.Path | None, typer.Option(metavar="FILE", help="Token for it; else the service account's.")
    ] = None
    node_metric: Annotated[
        Literal["auto", "always", "never"], typer.Option(help="When nodes are asked for NodeMetrics: auto while read.")
    ] = "auto"
    overcommit: Annotated[
        Literal["auto", "always", "never"],
        typer.Option(help="When nodes offer batch and mid resources by us: auto while no koord-manager lives."),
    ] = "auto"
    webhook_listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where the webhook answers over HTTPS; without it there is none.")
    ] = ""
    webhook_url: Annotated[
        str, typer.Option(metavar="URL", help="How the API server reaches it, where not by its Service.")
    ] = ""
    webhook_service: Annotated[
        str, typer.Option(metavar="NAME", help="The Service in front of it, in --namespace.")
    ] = "cotenant-manager-webhook"
    webhook_configuration: Annotated[
        str, typer.Option(metavar="NAME", help="The name of its two webhook configurations.")
    ] = "cotenant-webhook"
    webhook_certificate_lifetime: Annotated[
        str, typer.Option(metavar="DURATION", help="How long a certificate holds; replaced after two thirds of it.")
    ] = "30d"
    register_webhooks: Annotated[
        bool, typer.Option("--register-webhooks", help="Write the webhook configurations, where no chart does.")
    ] = False
    affinity: Annotated[
        Strength, typer.Option(help="How strongly managed pods keep away from nodes with a verdict.")
    ] = "soft"
    templates: options.Templates = None
    latency: Annotated[
        bool, typer.Option("--latency", help="Read the latency of online services: docs/latency.md.")
    ] = False
    kubeconfig: options.Kubeconfig = None
    json: options.Json = False


@app.callback(invoke_without_command=True)
@options.as_fields_of(Options)
def manage(context: typer.Context, given: Options) -> None:
    """Keep what nodes and pods get in step with what operators wrote."""
    if context.invoked_subcommand is not None:
        return
    import asyncio

    from cotenant.cli import printing
    from cotenant.manager import program

    settings = _settings(given)
    logs.to_stderr(level=logging.WARNING)

    def started(url: str) -> None:
        if given.json:
            printing.print_json_line({"url": url})
        else:
            typer.echo(f"/metrics, /healthz and /readyz are at {url}; ctrl-C ends it")

    asyncio.run(program.run(settings, started))


def _settings(given: Options) -> "program.Settings":
    """Return the program's settings.

    :raises CotenantError: if an option cannot be used, or some do not go together.
    """
    from cotenant.cli import service_account
    from cotenant.kube import channel
    from cotenant.manager import controller, program
    from cotenant.units import address

    address.split(given.listen)
    if given.analyzer:
        channel.check(given.analyzer, given.analyzer_ca)
    token = given.token_file or service_account.file("token")
    peer = channel.Peer(address=given.analyzer, ca_file=given.analyzer_ca, token_file=token, name=given.analyzer_name)
    return program.Settings(
        listen=given.listen,
        kubeconfig=given.kubeconfig,
        namespace=given.namespace,
        parts=controller.Settings(
            slo_config=controller.Place.parse(given.slo_config, "--slo-config"),
            analyzer=peer,
            node_metric=given.node_metric,
            overcommit=given.overcommit,
            webhook=_webhook(given),
            latency=given.latency,
        ),
    )


def _webhook(given: Options) -> "webhook_settings.Settings":
    from cotenant.manager.webhook import settings as webhook_settings
    from cotenant.units import quantity

    found = webhook_settings.Settings(
        listen=given.webhook_listen or ("127.0.0.1:9443" if given.register_webhooks else ""),
        url=given.webhook_url,
        service=given.webhook_service,
        configuration=given.webhook_configuration,
        register=given.register_webhooks,
        certificate_seconds=quantity.seconds(given.webhook_certificate_lifetime),
        affinity=given.affinity,
        templates=given.templates,
    )
    webhook_settings.address(found)
    return found


@app.command()
def admit(
    files: Annotated[
        list[pathlib.Path],
        typer.Argument(
            metavar="FILE…", help="Pods, and ClusterColocationProfiles, Namespaces, PriorityClasses, quotas and limits."
        ),
    ],
    affinity: Annotated[Strength, typer.Option(help="As of the manager.")] = "soft",
    json: options.Json = False,
) -> None:
    """Print what the webhook would make of pods in files. No cluster needed; exit 1: some pod would be refused."""
    import msgspec
    import yaml

    from cotenant.cli import printing
    from cotenant.manager.webhook import offline
    from cotenant.scheduler.source import read_objects

    objects = offline.collected((str(path), value) for path in files for value in read_objects(path))
    verdicts = offline.judge(objects, affinity)
    for name, why in objects.bad_profiles.items():
        typer.echo(f"profile {name} matches nothing: {why}", err=True)
    for name, places in objects.unknown.items():
        typer.echo(f"profile {name}: nobody knows {', '.join(places)}", err=True)
    if json:
        printing.print_json(msgspec.to_builtins(verdicts))
    else:
        if not verdicts:
            typer.echo("there is no pod in these files: nothing to judge", err=True)
        for one in verdicts:
            typer.echo(f"# {one.namespace}/{one.name}: {_outcome(one.applied, one.refused)}")
            for warning in one.warnings:
                typer.echo(f"# warning: {warning}")
            if one.pod is not None:
                typer.echo(f"---\n{yaml.safe_dump(one.pod, sort_keys=False, width=110)}", nl=False)
    if any(one.refused for one in verdicts):
        raise typer.Exit(1)


def _outcome(applied: tuple[str, ...], refused: tuple[str, ...]) -> str:
    if refused:
        return f"refused: {'; '.join(refused)}"
    return f"profiles {', '.join(applied)}" if applied else "no profile"


@app.command()
def render(
    files: Annotated[
        list[pathlib.Path],
        typer.Argument(metavar="FILE…", help="The ConfigMap slo-controller-config; Nodes, else one without labels."),
    ],
    json: options.Json = False,
) -> None:
    """Print what nodes would get of a ConfigMap in files. No cluster needed; exit 1: part of it cannot be used."""
    import msgspec
    import yaml

    from cotenant.cli import printing
    from cotenant.manager.slo import offline
    from cotenant.scheduler.source import read_objects

    found = offline.render((str(path), value) for path in files for value in read_objects(path))
    if json:
        printing.print_json(msgspec.to_builtins(found))
    else:
        for key, places in found.unknown.items():
            typer.echo(f"{key}: nobody knows {', '.join(places)}", err=True)
        for text in found.wrong.values():
            typer.echo(f"refused: {text}", err=True)
        documents = [yaml.safe_dump(msgspec.to_builtins(one), sort_keys=False) for one in found.nodes]
        typer.echo("---\n".join(documents), nl=False)
    if found.wrong:
        raise typer.Exit(1)


@app.command()
def unmutated(
    namespace: Annotated[str, typer.Option(metavar="NAME", help="Where the manager is.")] = "cotenant-system",
    kubeconfig: options.Kubeconfig = None,
    json: options.Json = False,
) -> None:
    """List pods that are not as their profiles would make them. Exit 1: there are some."""
    import msgspec

    from cotenant.cli import printing
    from cotenant.manager.webhook import unmutated as finding

    found = cluster.ask(kubeconfig, "cotenant-manager", lambda client: finding.find(client, namespace))
    if json:
        printing.print_json(msgspec.to_builtins(found))
    elif not found:
        typer.echo("every pod is as its profiles would make it")
    else:
        for one in found:
            why = "older than" if one.why == "older" else "missed by"
            typer.echo(f"{one.namespace}/{one.name}: {why} profile {one.profile}: {', '.join(one.differs)}")
    if found:
        raise typer.Exit(1)
