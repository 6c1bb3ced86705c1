"""``cotenant check``: what this kernel offers, what is missing and how to get it, and what stands in the way."""

import pathlib
from typing import Any

import msgspec
import typer

from cotenant.cli import kept_out, moving, printing, roots
from cotenant.kernel import check
from cotenant.model.priority import NAMES, InterfaceName
from cotenant.units import errors


class BadRequest(errors.CotenantError):
    """An option's value does not exist."""


def command(
    names: list[str] = typer.Argument(None, metavar="NAME", help="More names for --require."),
    root: str = roots.OPTION,
    as_json: bool = typer.Option(False, "--json", help="One JSON object."),
    require: list[str] = typer.Option(
        [], "--require", metavar="NAME", help="Exit 1 unless this feature or priority interface is available."
    ),
    workloads: str | None = typer.Option(
        None, "--workloads", metavar="PODS", help="A v1 PodList: list who uses identity 1."
    ),
    priority_interface: str | None = typer.Option(
        None, "--priority-interface", metavar="NAME", help="Report on this interface instead of the best one."
    ),
    koordinator: bool = typer.Option(
        False, "--koordinator", help="Not this node: what would change on each node of a cluster that runs Koordinator."
    ),
    node: str = typer.Option("", "--node", metavar="NAME", help="With --koordinator: this node only."),
    daemonsets: bool = typer.Option(
        False, "--daemonsets", help="Not this node: DaemonSets that `scheduler --taints hard` would keep out of nodes."
    ),
    kubeconfig: pathlib.Path | None = typer.Option(
        None, "--kubeconfig", help="With --koordinator or --daemonsets: which cluster."
    ),
) -> None:
    """Say what this node's kernel offers, what is missing and how to get it, and what stands in the way."""
    _refuse_what_does_not_go_together(
        koordinator, daemonsets, bool(node), kubeconfig is not None, bool(require or names or workloads)
    )
    if koordinator:
        moving.show(kubeconfig, node, as_json)
        return
    if daemonsets:
        kept_out.show(kubeconfig, as_json)
        return
    required = [name for text in [*require, *(names or [])] for name in text.split(",") if name]
    if names and not require:
        raise BadRequest(f"unexpected {names[0]!r}: names go after --require")
    found = check.report(roots.open_root(root), _interface(priority_interface))
    use = None if workloads is None else _identity_use(workloads)
    if as_json:
        document: dict[str, Any] = msgspec.to_builtins(found)
        if use is not None:
            document["workloads"] = msgspec.to_builtins(use)
        printing.print_json(document)
    elif not required or use is not None:
        _print_report(found)
        if use is not None:
            rows = [("asks for identity 1", pod) for pod in use.identity_1]
            rows += [("cpuQOS without enable: taken as 0", pod) for pod in use.without_enable]
            printing.print_table(("workload", "pod"), rows, "No pod uses identity 1.")
    check.require(found, required)


def _refuse_what_does_not_go_together(
    koordinator: bool, daemonsets: bool, node: bool, kubeconfig: bool, of_this_node: bool
) -> None:
    if koordinator and daemonsets:
        raise BadRequest("--koordinator and --daemonsets are two questions: ask one at a time")
    if (koordinator or daemonsets) and of_this_node:
        raise BadRequest("--require and --workloads are about this node; leave out --koordinator and --daemonsets")
    if node and not koordinator:
        raise BadRequest("--node goes with --koordinator; without it this node is checked")
    if kubeconfig and not (koordinator or daemonsets):
        raise BadRequest("--kubeconfig goes with --koordinator or --daemonsets; without them this node is checked")


def _interface(name: str | None) -> InterfaceName | None:
    known = next((one for one in NAMES if one == name), None)
    if name is not None and known is None:
        raise BadRequest(f"--priority-interface {name}: it is one of {', '.join(NAMES)}")
    return known


def _identity_use(file: str) -> Any:
    from cotenant.model import identity_use, pod_list

    try:
        text = pathlib.Path(file).read_bytes()
    except OSError as error:
        raise BadRequest(f"--workloads {file}: {error.strerror}; give a v1 PodList in JSON") from None
    return identity_use.of(pod_list.decode(text, file))


def _print_report(found: check.Report) -> None:
    interface = found.priority_interface
    expulsion = {True: "yes", False: "no", None: "unknown"}[interface.smt_expulsion]
    rows = [
        ("kernel", f"{found.kernel or 'unknown'} {found.arch or ''}".strip()),
        ("cgroup", found.cgroup.version or "not mounted"),
        ("priority interface", f"{interface.name}: {interface.reason}"),
        ("levels", " ".join(map(str, interface.levels)) or "none"),
        ("SMT expulsion", expulsion),
        ("can be undone", "no: a level stays for the life of a group" if interface.sticky else "yes"),
        *(("notice", notice) for notice in interface.notices),
    ]
    printing.print_table(("node", ""), rows, "")
    writes = [
        (identity, ", ".join(f"{file} = {value}" for file, value in settings.items()) or "nothing")
        for identity, settings in interface.mapping.items()
    ]
    typer.echo()
    printing.print_table(("identity", "what is written"), writes, "")
    areas = [
        (
            feature.name,
            feature.state,
            feature.reason if feature.state == "available" else feature.remedy or feature.reason,
        )
        for feature in found.features
    ]
    typer.echo()
    printing.print_table(("feature", "state", "remedy, or reason"), areas, "")
    typer.echo()
    conflicts = [(conflict.name, conflict.reason, conflict.remedy) for conflict in found.conflicts]
    printing.print_table(("conflict", "reason", "remedy"), conflicts, "Nothing is in the way.")
