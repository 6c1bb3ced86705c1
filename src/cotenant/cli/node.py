"""``cotenant node``: the agent of one Kubernetes node."""

import dataclasses
import os
import pathlib
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cotenant.cli import options

if TYPE_CHECKING:
    from cotenant.node import program

File = pathlib.Path | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What ``cotenant node`` is told."""

    name: Annotated[str, typer.Option("--node", metavar="NAME", help="The Node's name; else $NODE_NAME.")] = ""
    mode: Annotated[
        Literal["observe", "dry-run", "enforce"],
        typer.Option(metavar="MODE", help="observe, dry-run or enforce; the Node's label cotenant.io/mode overrides."),
    ] = "observe"
    period: Annotated[str, typer.Option(metavar="TIME", help="Time between two samples, like 1s or 500ms.")] = "1s"
    kubelet: Annotated[str, typer.Option(metavar="URL", help="Where pods are listed.")] = "https://127.0.0.1:10250"
    kubelet_ca: Annotated[File, typer.Option(metavar="FILE", help="Who signed the kubelet's certificate.")] = None
    kubelet_insecure_tls: Annotated[
        bool, typer.Option("--kubelet-insecure-tls", help="Accept any certificate; on loopback only.")
    ] = False
    token_file: Annotated[File, typer.Option(metavar="FILE", help="Token; else the service account's.")] = None
    analyzer: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where samples go; nowhere by default.")] = ""
    analyzer_ca: Annotated[File, typer.Option(metavar="FILE", help="Who signed the analyzer's certificate.")] = None
    analyzer_name: options.AnalyzerName = ""
    analyzer_token_file: Annotated[
        File, typer.Option(metavar="FILE", help="Token for the analyzer; else as above.")
    ] = None
    kubeconfig: options.PodKubeconfig = None
    no_cluster: Annotated[bool, typer.Option("--no-cluster", help="Follow no API server; --mode holds.")] = False
    nri: Annotated[File, typer.Option(metavar="SOCKET", help="Of containerd: set up before start.")] = None
    metrics: Annotated[str, typer.Option(metavar="HOST:PORT", help="Serve /metrics there.")] = ""
    koordlet_metrics: Annotated[
        bool, typer.Option("--koordlet-metrics", help="Also under koordlet's names what existing alerts ask for.")
    ] = False
    priority_interface: options.PriorityInterface = None
    beside_others: Annotated[
        bool, typer.Option("--beside-others", help="Enforce although another co-location agent runs here.")
    ] = False
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Write nothing; compare with what a running koordlet wrote.")
    ] = False
    preemptable_is_offline: Annotated[
        bool, typer.Option("--preemptable-is-offline", help="Take volcano.sh/preemptable for class BE, as rubik does.")
    ] = False
    state: Annotated[pathlib.Path, typer.Option(metavar="DIR", help="Where predictions are kept over restarts.")] = (
        pathlib.Path("/var/lib/cotenant")
    )
    templates: options.Templates = None
    evict: Annotated[
        bool, typer.Option("--evict", help="Evict offline pods through the API server where the policy says so.")
    ] = False
    runtime: Annotated[
        File, typer.Option(metavar="SOCKET", help="With --evict: the container runtime, to kill where memory is short.")
    ] = None
    kubelet_directory: Annotated[
        pathlib.Path, typer.Option("--kubelet-dir", metavar="DIR", help="Where the kubelet keeps its state.")
    ] = pathlib.Path("/var/lib/kubelet")
    whole_cores: Annotated[
        bool, typer.Option(help="Give LSE and LSR pods CPUs of their own where no scheduler did.")
    ] = True
    llc_probe: Annotated[bool, typer.Option("--llc-probe", help="Time the shared cache in a virtual machine.")] = False
    kata_root: Annotated[
        str, typer.Option(metavar="DIR", help="Host's /dev and /etc, for what Kata needs; empty: do not look.")
    ] = "/"
    as_json: options.LogJson = False


@options.as_fields_of(Options)
def command(given: Options) -> None:
    """Sample this node, send samples to the analyzer, and hold offline pods back as the NodeSLO says."""
    from cotenant.cli import handing_over

    handing_over.become("cotenant.cli.node_process", _settings(given), given.as_json)


def _settings(given: Options) -> "program.Settings":
    """Return the program's settings.

    :raises typer.BadParameter: if some options do not go together.
    :raises CotenantError: if one cannot be used.
    """
    from cotenant.cli import periods, service_account
    from cotenant.node import kubelet, program

    name = given.name or os.environ.get("NODE_NAME", "")
    _check(given, name)
    token = given.token_file or service_account.file("token")
    return program.Settings(
        name=name,
        mode=given.mode,
        period_seconds=periods.seconds(given.period),
        kubelet=kubelet.Settings(
            url=given.kubelet,
            token_file=token,
            ca_file=given.kubelet_ca or service_account.file("ca.crt"),
            insecure_tls=given.kubelet_insecure_tls,
            preemptable_is_offline=given.preemptable_is_offline,
        ),
        analyzer=given.analyzer,
        analyzer_ca=given.analyzer_ca,
        analyzer_name=given.analyzer_name,
        analyzer_token_file=given.analyzer_token_file,
        token_file=token,
        kubeconfig=given.kubeconfig,
        follow_cluster=not given.no_cluster,
        metrics=given.metrics,
        koordlet_metrics=given.koordlet_metrics,
        nri=given.nri,
        interface=given.priority_interface,
        beside_others=given.beside_others,
        shadow=given.shadow,
        llc_probe=given.llc_probe,
        state=given.state,
        kubelet_directory=given.kubelet_directory,
        whole_cores=given.whole_cores,
        templates=given.templates,
        evict=given.evict,
        kata_root=pathlib.Path(given.kata_root) if given.kata_root else None,
        runtime=given.runtime,
    )


def _check(given: Options, name: str) -> None:
    """Refuse what cannot be used, or does not go together."""
    if not name:
        raise typer.BadParameter("give the Node's name, or set NODE_NAME", param_hint="--node")
    if given.evict and given.no_cluster:
        raise typer.BadParameter("an API server evicts; leave --no-cluster out", param_hint="--evict")
    if given.runtime is not None and not given.evict:
        raise typer.BadParameter("nothing is killed that was not to be evicted; give --evict", param_hint="--runtime")
    if given.metrics:
        from cotenant.units import address

        address.split(given.metrics, "--metrics")
