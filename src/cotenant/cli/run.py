"""``cotenant run``: start a command in a managed group with a QoS class."""

import signal
import sys
from collections.abc import Callable
from typing import Annotated, get_args

import typer

from cotenant.cli import options, printing, roots
from cotenant.local import groups, supervision
from cotenant.local import run as running
from cotenant.units import quantity
from cotenant.units.limit import NONE, Limit

CONTEXT_SETTINGS = {"allow_interspersed_args": False}
MIN_MILLICORES, MIN_MEMORY_BYTES = 10, 1 << 20
"""The kernel's least quota is 1 ms of 100 ms; with less memory no command starts."""
CLASSES: tuple[groups.Qos, ...] = get_args(groups.Qos)


def command(
    words: Annotated[list[str], typer.Argument(metavar="-- COMMAND…", help="The command and its arguments.")],
    qos: Annotated[str, typer.Option(metavar="|".join(CLASSES), help="The class of the work: BE is offline.")],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The group's name; else the command's with a number.")
    ] = None,
    cpus: Annotated[str | None, typer.Option(metavar="N", help="At most so many CPUs: 2, 1.5, 500m.")] = None,
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="At most so much memory: 512Mi, 4Gi.")] = None,
    priority_interface: options.PriorityInterface = None,
    root: roots.Option = "/",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be written, and start nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --dry-run: the plan as JSON.")] = False,
) -> int:
    """Run a command with the priority of its class; its exit status and signals are those of the command."""
    from cotenant.kernel import paths

    request = running.Request(words, _class(qos), name, _limits(cpus, memory))
    managed = groups.Groups(paths.Root(root), interface=priority_interface)
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
            return name
    raise typer.BadParameter(f"{text!r} is none of {', '.join(CLASSES)}", param_hint="--qos")


def _limits(cpus: str | None, memory: str | None) -> groups.Limits:
    return groups.Limits(
        _limit("--cpus", cpus, quantity.millicores, MIN_MILLICORES, "10m"),
        _limit("--memory", memory, quantity.whole, MIN_MEMORY_BYTES, "1Mi"),
    )


def _limit(option: str, text: str | None, number: Callable[[str], int], least: int, written: str) -> Limit:
    if text is None:
        return NONE
    try:
        value = number(text)
    except quantity.BadQuantity as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
    if value < least:
        raise typer.BadParameter(f"must be at least {written}", param_hint=option)
    return Limit(value)


def _print_plan(managed: groups.Groups, request: running.Request, as_json: bool) -> None:
    items = running.plan(managed, request)
    if as_json:
        printing.print_json(items)
    else:
        rows = [(item.op, item.path or "", item.old or "", item.new or "") for item in items]
        printing.print_table(("op", "path", "old", "new"), rows, "Nothing would be written.")
