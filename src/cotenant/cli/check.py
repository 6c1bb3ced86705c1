"""``cotenant check``: what this kernel offers, what is missing and how to get it, and what stands in the way."""

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from cotenant.cli import kept_out, migration, options, printing, roots
from cotenant.kernel import check
from cotenant.units import errors

if TYPE_CHECKING:
    from cotenant.model.identity_use import IdentityUse


class BadRequest(errors.CotenantError):
    """An option's value does not exist."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What ``cotenant check`` is told."""

    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="More names for --require.")] = None
    root: roots.Option = "/"
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False
    require: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Exit 1 unless this feature or priority interface is available."),
    ] = None
    workloads: Annotated[str | None, typer.Option(metavar="PODS", help="A v1 PodList: who uses identity 1.")] = None
    priority_interface: options.PriorityInterface = None
    koordinator: Annotated[
        bool,
        typer.Option(
            "--koordinator", help="Not this node: what would change on each node of a cluster that runs Koordinator."
        ),
    ] = False
    node: Annotated[str, typer.Option(metavar="NAME", help="With --koordinator: this node only.")] = ""
    daemonsets: Annotated[
        bool,
        typer.Option(
            "--daemonsets", help="Not this node: DaemonSets that `scheduler --taints hard` would keep out of nodes."
        ),
    ] = False
    kubeconfig: Annotated[
        pathlib.Path | None, typer.Option(help="With --koordinator or --daemonsets: which cluster.")
    ] = None


@options.as_fields_of(Options)
def command(given: Options) -> None:
    """Say what this node's kernel offers, what is missing and how to get it, and what stands in the way.

    Only reads. Exit 1: something of --require is not available, or --daemonsets found some.
    """
    _refuse_what_does_not_go_together(given)
    if given.koordinator:
        migration.show(given.kubeconfig, given.node, given.as_json)
        return
    if given.daemonsets:
        kept_out.show(given.kubeconfig, given.as_json)
        return
    words = [*(given.require or ()), *(given.names or ())]
    required = [name for text in words for name in text.split(",") if name]
    found = check.report(roots.open_root(given.root), given.priority_interface)
    use = None if given.workloads is None else _identity_use(given.workloads)
    if given.as_json:
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


def _refuse_what_does_not_go_together(given: Options) -> None:
    of_cluster = given.koordinator or given.daemonsets
    if given.koordinator and given.daemonsets:
        raise BadRequest("--koordinator and --daemonsets are two questions: ask one at a time")
    if of_cluster and (given.require or given.names or given.workloads):
        raise BadRequest("--require and --workloads are about this node; leave out --koordinator and --daemonsets")
    if given.node and not given.koordinator:
        raise BadRequest("--node goes with --koordinator; without it this node is checked")
    if given.kubeconfig is not None and not of_cluster:
        raise BadRequest("--kubeconfig goes with --koordinator or --daemonsets; without them this node is checked")
    if given.names and not given.require:
        raise BadRequest(f"unexpected {given.names[0]!r}: names go after --require")


def _identity_use(file: str) -> "IdentityUse":
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
