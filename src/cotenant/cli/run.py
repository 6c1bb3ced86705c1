"""``cotenant run``: start a command in a managed group with a QoS class."""

import signal
import sys
from typing import get_args

import typer

from cotenant.cli import printing
from cotenant.local import groups, supervision
from cotenant.local import run as running
from cotenant.model.priority import NAMES, InterfaceName
from cotenant.units import quantity
from cotenant.units.limit import NONE, Limit

CONTEXT_SETTINGS = {"allow_interspersed_args": False}
MIN_MILLICORES, MIN_MEMORY_BYTES = 10, 1 << 20
"""The kernel's least quota is 1 ms of 100 ms; with less memory no command starts."""
CLASSES = get_args(groups.Qos)


def command(
    words: list[str] = typer.Argument(..., metavar="-- CMD…", help="The command and its arguments."),
    qos: str = typer.Option(..., "--qos", metavar="|".join(CLASSES), help="The class of the work: BE is offline."),
    name: str | None = typer.Option(None, "--name", help="The group's name; else the command's with a number."),
    cpus: str | None = typer.Option(None, "--cpus", help="At most so many CPUs: 2, 1.5, 500m."),
    memory: str | None = typer.Option(None, "--memory", help="At most so much memory: 512Mi, 4Gi."),
    interface: str | None = typer.Option(
        None, "--priority-interface", metavar="NAME", help=f"Instead of the one that is found: {', '.join(NAMES)}."
    ),
    root: str = typer.Option("/", "--root", help="Use DIR/proc and DIR/sys.", metavar="DIR"),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print what would be written, and start nothing."),
    as_json: bool = typer.Option(False, "--json", help="With --dry-run: the plan as JSON."),
) -> int:
    """Run a command with the priority of its class; its exit status and signals are those of the command."""
    from cotenant.kernel import paths

    request = running.Request(words, _class(qos), name, _limits(cpus, memory))
    managed = groups.Groups(paths.Root(root), interface=_interface(interface))
    if dry_run or as_json:
        _print_plan(managed, request, as_json)
        return 0
    result = running.run(managed, request)
    if result.failure:
        sys.stderr.write(f"cotenant run: {words[0]}: {result.failure}\n")
    if result.left:
        processes = ", ".join(map(str, result.left))
        sys.stderr.write(
            f"cotenant run: {result.path}: the command left processes behind ({processes}); their group stays "
            "until they end, and the next run removes it\n"
        )
    if result.end.signal is not None:
        return supervision.die_of(signal.Signals(result.end.signal))
    return result.end.status or 0


def _class(text: str) -> groups.Qos:
    for name in CLASSES:
        if text.upper() == name:
            return name  # type: ignore[no-any-return]
    raise typer.BadParameter(f"{text!r} is none of {', '.join(CLASSES)}", param_hint="--qos")


def _interface(name: str | None) -> InterfaceName | None:
    if name is None:
        return None
    for known in NAMES:
        if known == name:
            return known
    raise typer.BadParameter(f"{name!r} is none of {', '.join(NAMES)}", param_hint="--priority-interface")


def _limits(cpus: str | None, memory: str | None) -> groups.Limits:
    millicores = NONE if cpus is None else Limit(quantity.millicores(cpus))
    size = NONE if memory is None else Limit(quantity.whole(memory))
    for option, limit, least in (("--cpus", millicores, MIN_MILLICORES), ("--memory", size, MIN_MEMORY_BYTES)):
        if limit.value is not None and limit.value < least:
            raise typer.BadParameter(f"must be at least {'10m' if option == '--cpus' else '1Mi'}", param_hint=option)
    return groups.Limits(millicores, size)


def _print_plan(managed: groups.Groups, request: running.Request, as_json: bool) -> None:
    items = running.plan(managed, request)
    if as_json:
        printing.print_json(items)
    else:
        rows = [(item.op, item.path or "", item.old or "", item.new or "") for item in items]
        printing.print_table(("op", "path", "old", "new"), rows, "Nothing would be written.")
