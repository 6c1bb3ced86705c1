"""``cotenant node``: the agent of one Kubernetes node."""

import os
import pathlib
from typing import Annotated, Any, get_args

import typer

File = pathlib.Path | None


def command(
    name: Annotated[str, typer.Option("--node", metavar="NAME", help="The Node's name; else $NODE_NAME.")] = "",
    mode: Annotated[
        str, typer.Option(help="observe, dry-run or enforce; label cotenant.io/mode overrides.")
    ] = "observe",
    period: Annotated[str, typer.Option(help="Time between two samples.")] = "1s",
    kubelet: Annotated[str, typer.Option(metavar="URL", help="Where pods are listed.")] = "https://127.0.0.1:10250",
    kubelet_ca: Annotated[File, typer.Option(metavar="FILE", help="Who signed the kubelet's certificate.")] = None,
    kubelet_insecure_tls: Annotated[
        bool, typer.Option("--kubelet-insecure-tls", help="Accept any certificate; on loopback only.")
    ] = False,
    token_file: Annotated[File, typer.Option(metavar="FILE", help="Token; else the service account's.")] = None,
    analyzer: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where samples go; nowhere by default.")] = "",
    analyzer_ca: Annotated[File, typer.Option(metavar="FILE", help="Who signed the analyzer's certificate.")] = None,
    analyzer_name: Annotated[
        str, typer.Option(metavar="NAME", help="What the analyzer's certificate must say; else its address.")
    ] = "",
    analyzer_token_file: Annotated[
        File, typer.Option(metavar="FILE", help="Token for the analyzer; else as above.")
    ] = None,
    kubeconfig: Annotated[File, typer.Option(help="Which cluster; the pod's own by default.")] = None,
    no_cluster: Annotated[bool, typer.Option("--no-cluster", help="Follow no API server; --mode holds.")] = False,
    nri: Annotated[File, typer.Option(metavar="SOCKET", help="Of containerd: set up before start.")] = None,
    metrics: Annotated[str, typer.Option(metavar="HOST:PORT", help="Serve /metrics there.")] = "",
    koordlet_metrics: Annotated[
        bool, typer.Option("--koordlet-metrics", help="Also under koordlet's names what existing alerts ask for.")
    ] = False,
    priority_interface: Annotated[str | None, typer.Option(help="Use this one instead of the best found.")] = None,
    beside_others: Annotated[
        bool, typer.Option("--beside-others", help="Enforce although another co-location agent runs here.")
    ] = False,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Write nothing; compare with what a running koordlet wrote.")
    ] = False,
    preemptable_is_offline: Annotated[
        bool, typer.Option("--preemptable-is-offline", help="Take volcano.sh/preemptable for class BE, as rubik does.")
    ] = False,
    state: Annotated[
        pathlib.Path, typer.Option(metavar="DIR", help="Where predictions are kept over restarts.")
    ] = pathlib.Path("/var/lib/cotenant"),
    templates: Annotated[File, typer.Option(metavar="FILE", help="Strategy templates over the bundled ones.")] = None,
    evict: Annotated[
        bool, typer.Option("--evict", help="Evict offline pods through the API server where the policy says so.")
    ] = False,
    runtime: Annotated[
        File, typer.Option(metavar="SOCKET", help="With --evict: the container runtime, to kill where memory is short.")
    ] = None,
    kubelet_directory: Annotated[
        pathlib.Path, typer.Option("--kubelet-dir", metavar="DIR", help="Where the kubelet keeps its state.")
    ] = pathlib.Path("/var/lib/kubelet"),
    whole_cores: Annotated[
        bool, typer.Option(help="Give LSE and LSR pods CPUs of their own where no scheduler did.")
    ] = True,
    llc_probe: Annotated[bool, typer.Option("--llc-probe", help="Time the shared cache in a virtual machine.")] = False,
    kata_root: Annotated[
        str, typer.Option(metavar="DIR", help="Host's /dev and /etc, for what Kata needs; empty: do not look.")
    ] = "/",
    as_json: Annotated[bool, typer.Option("--json", help="Log as JSON lines.")] = False,
) -> None:
    """Sample this node, send samples to the analyzer, and hold offline pods back as the NodeSLO says."""
    from cotenant.cli import handing_over, periods, service_account
    from cotenant.node import program
    from cotenant.node.kubelet import Settings

    name = name or os.environ.get("NODE_NAME", "")
    if not name:
        raise typer.BadParameter("give the Node's name, or set NODE_NAME", param_hint="--node")
    if evict and no_cluster:
        raise typer.BadParameter("an API server evicts; leave --no-cluster out", param_hint="--evict")
    if runtime is not None and not evict:
        raise typer.BadParameter("nothing is killed that was not to be evicted; give --evict", param_hint="--runtime")
    if metrics:
        from cotenant.web import serving

        serving.split_address(metrics, "--metrics")
    token = token_file or service_account.file("token")
    settings = program.Settings(
        name=name,
        mode=_one_of(mode, "mode"),
        period_seconds=periods.seconds(period),
        kubelet=Settings(
            kubelet,
            token,
            kubelet_ca or service_account.file("ca.crt"),
            kubelet_insecure_tls,
            preemptable_is_offline,
        ),
        analyzer=analyzer,
        analyzer_ca=analyzer_ca,
        analyzer_name=analyzer_name,
        analyzer_token_file=analyzer_token_file,
        token_file=token,
        kubeconfig=kubeconfig,
        follow_cluster=not no_cluster,
        metrics=metrics,
        koordlet_metrics=koordlet_metrics,
        nri=nri,
        interface=None if priority_interface is None else _one_of(priority_interface, "priority-interface"),
        beside_others=beside_others,
        shadow=shadow,
        llc_probe=llc_probe,
        state=state,
        kubelet_directory=kubelet_directory,
        whole_cores=whole_cores,
        templates=templates,
        evict=evict,
        kata_root=pathlib.Path(kata_root) if kata_root else None,
        runtime=runtime,
    )
    handing_over.become("cotenant.cli.node_process", settings, as_json)


def _one_of(word: str, option: str) -> Any:
    """Return the word if the option knows it."""
    from cotenant.api.report import Mode
    from cotenant.model.priority import NAMES

    known: tuple[str, ...] = get_args(Mode) if option == "mode" else NAMES
    if word not in known:
        raise typer.BadParameter(f"{word!r} is none of {', '.join(known)}", param_hint=f"--{option}")
    return word
