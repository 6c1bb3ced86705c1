"""``cotenant enforce``: one look at a node, and what the policy wants done there."""

import pathlib
import sys
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from cotenant.cli import inputs, options, printing, roots, streams

if TYPE_CHECKING:
    from cotenant.act.draft import Plan
    from cotenant.kernel.conflicts import Conflict
    from cotenant.kernel.executor import Executor, Outcome
    from cotenant.kernel.paths import Root
    from cotenant.model.priority import InterfaceName
    from cotenant.model.snapshot import Snapshot
    from cotenant.units.plan import PlanItem

LEFT_OUT = 3
SETTLED = frozenset({"written", "same"})
File = pathlib.Path | None


def command(
    pods: Annotated[pathlib.Path, typer.Option(help="A v1 PodList in JSON, as the kubelet's /pods gives it.")],
    slo: Annotated[pathlib.Path, typer.Option(help="A Koordinator NodeSLO, YAML or JSON.")],
    once: Annotated[bool, typer.Option("--once", help="Look once, act once and end.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and write nothing.")] = False,
    root: roots.Option = "/",
    node: Annotated[File, typer.Option(help="The v1 Node; without it the tree's CPUs and memory.")] = None,
    nrt: Annotated[File, typer.Option(help="The node's NodeResourceTopology.")] = None,
    usage: Annotated[File, typer.Option(help="What everybody uses; without it, what needs it is skipped.")] = None,
    priority_interface: options.PriorityInterface = None,
    beside_others: Annotated[
        bool, typer.Option("--beside-others", help="Write although another co-location agent runs here.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> int:
    """Work out what a policy wants done on a node, print it in order, and do it unless --dry-run is given.

    Exit 3: done, but something was left out, refused, or cannot be undone; or nothing was written, because another
    co-location agent runs here.
    """
    if not once:
        raise typer.BadParameter("give --once; for a loop use cotenant up --enforce", param_hint="--once")
    from cotenant.act import planning
    from cotenant.kernel import executor

    policy = inputs.read_slo(slo)
    place = roots.open_root(root)
    writer = executor.Executor(place, dry_run=dry_run)
    snapshot = _look(place, writer, pods, node, nrt, usage, priority_interface)
    plan = planning.plan(snapshot, policy)
    with streams.unread():  # before the first write: a plan that cannot be told is not carried out
        _print(plan.items, as_json)
    _tell(plan)
    others = () if beside_others else _others(place)
    for other in others:
        _say(f"observing only, nothing is written: {other.reason}; {other.remedy}, or give --beside-others")
    if dry_run:
        return 0
    if others:
        return LEFT_OUT
    outcomes = writer.apply(plan.items)
    unsettled = [outcome for outcome in outcomes if outcome.state not in SETTLED]
    for outcome in unsettled:
        _say(f"{_what(outcome.item)}: {outcome.state}: {outcome.detail}")
    return LEFT_OUT if plan.left_out or unsettled or _cannot_be_undone(outcomes) else 0


def _others(root: "Root") -> "list[Conflict]":
    """Return the other co-location agents of this node: two writers of the same files help nobody."""
    from cotenant.kernel import conflicts

    return [conflict for conflict in conflicts.find(root) if conflict.kind == "agent"]


def _cannot_be_undone(outcomes: "list[Outcome]") -> bool:
    return any(outcome.item.irreversible and outcome.state == "written" for outcome in outcomes)


def _look(
    root: "Root",
    writer: "Executor",
    pods: pathlib.Path,
    node: File,
    nrt: File,
    usage: File,
    interface: "InterfaceName | None",
) -> "Snapshot":
    from cotenant.kernel import snapshot, topology
    from cotenant.kernel.priority import probing
    from cotenant.model import node as nodes
    from cotenant.model import pod_list

    found = probing.choose(root, interface) if interface is not None else probing.probe(root)
    cpus = topology.read(root)
    described = inputs.read_object(nrt, "NodeResourceTopology") if nrt else None
    if nrt and described is not None:
        cpus = nodes.decode_topology(described, str(nrt), cpus)
    # Without one the kubelet's CPU policy is taken to be "none": there is nobody else to ask.
    cpus = msgspec.structs.replace(cpus, stated=True)
    if node:
        here = nodes.decode_node(inputs.read_object(node, "Node"), str(node), topology.node(root, cpus))
    else:
        here = topology.node(root, cpus)
    if described is not None:
        here = nodes.with_topology_annotations(here, described, str(nrt))
    return snapshot.read(
        root,
        pod_list.decode(inputs.read(pods, "a v1 PodList in JSON"), str(pods)),
        found,
        cpus,
        here,
        nodes.decode_usage(inputs.read(usage, "what everybody uses, as JSON"), str(usage)) if usage else None,
        writer.journalled(),
    )


def _print(items: "tuple[PlanItem, ...]", as_json: bool) -> None:
    if as_json:
        printing.print_json(items)
        return
    rows = [(item.strategy, item.op, item.path or "", item.old or "", item.new or "", _reason(item)) for item in items]
    printing.print_table(("strategy", "op", "path", "old", "new", "why"), rows, "Nothing to do.")


def _reason(item: "PlanItem") -> str:
    return f"{item.reason} (cannot be undone)" if item.irreversible else item.reason


def _tell(plan: "Plan") -> None:
    for notice in plan.notices:
        _say(notice)
    for strategy, reason in plan.skipped:
        _say(f"skipped: {strategy}: {reason}")
    for text in plan.left_out:
        _say(f"left out: {text}")


def _what(item: "PlanItem") -> str:
    return f"{item.op} {item.path or item.new}"


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
