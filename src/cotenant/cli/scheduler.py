"""``cotenant scheduler``: the extender, and the configuration that makes a scheduler ask it."""

import dataclasses
import logging
import pathlib
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cotenant.cli import cluster, logs, options

if TYPE_CHECKING:
    from cotenant.scheduler import program

app = typer.Typer(no_args_is_help=False, add_completion=False)

DEFAULT_LISTEN = "127.0.0.1:8088"
POOL_LABEL = "cotenant.io/pool"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What ``cotenant scheduler`` is told."""

    reports: Annotated[
        pathlib.Path | None,
        typer.Option(help="Reports from a file (kubectl get nir -o json), read again when it changes; no cluster."),
    ] = None
    objects: Annotated[
        pathlib.Path | None,
        typer.Option(help="With --reports: RuntimeClasses and Nodes (kubectl get runtimeclasses,nodes -o json)."),
    ] = None
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to answer.")] = DEFAULT_LISTEN
    kubeconfig: Annotated[
        pathlib.Path | None, typer.Option(help="Without --reports: which cluster; the usual one by default.")
    ] = None
    analyzer_namespace: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Where the analyzer's lease is; the kubeconfig's namespace by default."),
    ] = None
    preset: Annotated[Literal["default", "mco"], typer.Option(help="How levels become scores.")] = "default"
    applies_to: Annotated[
        Literal["all", "online", "offline", "none"],
        typer.Option(help="The pods that hard limits and scores are for; none: Kata readiness alone."),
    ] = "all"
    volcano_weight: Annotated[
        float | None, typer.Option(min=0, max=1e6, help="Points for Volcano between worst and best: 100 times this.")
    ] = None
    max_body_mebibytes: Annotated[int, typer.Option(min=1, max=1024, help="Largest request body.")] = 32
    verdicts: Annotated[
        bool, typer.Option("--verdicts/--no-verdicts", help="Write labels and KataReady on nodes; needs a cluster.")
    ] = True
    taints: Annotated[
        Literal["off", "soft", "hard"], typer.Option(help="Also taint: PreferNoSchedule or NoSchedule.")
    ] = "off"
    max_excluded_fraction: Annotated[
        float, typer.Option(min=0, max=1, help="Of each pool, how much may be kept from new pods.")
    ] = 0.05
    pool_label: Annotated[
        str, typer.Option(metavar="LABEL", help="Nodes with the same value of this label are one pool.")
    ] = POOL_LABEL
    verdict_metrics: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Serve the verdict writer's /metrics there.")
    ] = ""
    clear: Annotated[bool, typer.Option("--clear", help="Take everything of ours off all nodes, and end.")] = False
    json: options.Json = False


def _of_a_cluster(given: Options) -> list[str]:
    """Return the options that were given and mean nothing without a cluster."""
    found = {
        "--kubeconfig": given.kubeconfig is not None,
        "--analyzer-namespace": given.analyzer_namespace is not None,
        "--taints": given.taints != "off",
        "--verdict-metrics": bool(given.verdict_metrics),
        "--clear": given.clear,
    }
    return [name for name, is_given in found.items() if is_given]


@app.callback(invoke_without_command=True)
@options.as_fields_of(Options)
def serve(context: typer.Context, given: Options) -> None:
    """Answer kube-scheduler (/kube/filter, prioritize, preempt) and Volcano (/volcano/predicate, prioritize)."""
    if context.invoked_subcommand is not None:
        return
    if given.objects is not None and given.reports is None:
        raise typer.BadParameter("--objects goes with --reports; a cluster has its own")
    if given.reports is not None and (ignored := _of_a_cluster(given)):
        raise typer.BadParameter(f"{', '.join(ignored)}: --reports has no cluster; leave one of them out")
    logs.to_stderr(level=logging.WARNING)
    if given.clear:
        _clear(given.kubeconfig, given.json)
        return
    from cotenant.scheduler import program

    def started(url: str, known: int) -> None:
        from cotenant.cli import printing

        if given.json:
            printing.print_json_line({"url": url, "reports": known})
        else:
            typer.echo(f"answering on {url}; ctrl-C ends it")

    status = program.run(_settings(given), given.listen, started)
    if status:
        raise typer.Exit(status)


def _settings(given: Options) -> "program.Settings":
    from cotenant.scheduler import marking, program
    from cotenant.scheduler.rules import VOLCANO_WEIGHT, Rules

    weight = VOLCANO_WEIGHT[given.preset] if given.volcano_weight is None else given.volcano_weight
    verdicts = marking.Settings(
        taints=given.taints,
        applies_to=given.applies_to,
        max_excluded_fraction=given.max_excluded_fraction,
        pool_label=given.pool_label,
    )
    return program.Settings(
        rules=Rules(preset=given.preset, volcano_weight=weight, applies_to=given.applies_to),
        reports=given.reports,
        objects=given.objects,
        kubeconfig=given.kubeconfig,
        analyzer_namespace=given.analyzer_namespace,
        max_body_bytes=given.max_body_mebibytes << 20,
        verdicts=verdicts if given.verdicts and given.reports is None else None,
        verdict_metrics=given.verdict_metrics,
    )


def _clear(kubeconfig: pathlib.Path | None, as_json: bool) -> None:
    from cotenant.cli import printing
    from cotenant.scheduler import marking

    cleared = cluster.ask(kubeconfig, "cotenant-scheduler", marking.clear)
    if as_json:
        printing.print_json({"cleared": cleared})
    else:
        typer.echo(f"{len(cleared)} nodes cleared: {', '.join(cleared)}" if cleared else "no node carries a verdict")


@app.command()
def daemonsets(
    kubeconfig: options.Kubeconfig = None,
    json: options.Json = False,
) -> None:
    """List the DaemonSets whose pods --taints hard would keep out of tainted nodes. Exit 1: there are some."""
    from cotenant.cli import kept_out

    kept_out.show(kubeconfig, json)


@app.command()
def config(
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where the extender answers.")] = DEFAULT_LISTEN,
    extender: Annotated[
        bool, typer.Option("--extender", help="Have kube-scheduler ask the extender instead of reading labels.")
    ] = False,
    volcano: Annotated[bool, typer.Option("--volcano", help="For Volcano, which asks its own extender.")] = False,
    json: options.Json = False,
) -> None:
    """Print the configuration with which kube-scheduler follows our labels, or asks the extender (or Volcano does)."""
    from cotenant.cli import printing
    from cotenant.scheduler import configuration
    from cotenant.units import address

    where = address.join(*address.split(listen))
    if volcano:
        text = configuration.volcano(where)
    elif extender:
        text = configuration.kube_scheduler(where)
    else:
        text = configuration.kube_scheduler_by_labels(where)
    if json:
        import yaml

        printing.print_json(yaml.safe_load(text))
    else:
        typer.echo(text, nl=False)
