"""``cotenant restore``: everything back as it was before cotenant wrote."""

import os
import pathlib
from typing import Annotated

import typer

from cotenant.cli import printing, roots, streams
from cotenant.kernel import executor, restoration, undo

LEFT_STATUS = 3


def command(
    root: roots.Option = "/",
    message: Annotated[
        pathlib.Path | None,
        typer.Option(
            metavar="FILE", help="Write a short message there, for Kubernetes; what is left is told and no failure."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> int:
    """Put back everything that was written, and list what the kernel or its present owner does not let be put back.

    Exit 3: something of that list is there. End `cotenant up --enforce` or `cotenant node` first: they write again.
    """
    result = undo.restore(executor.Executor(roots.open_root(root)))
    try:
        if message is not None:
            _leave(message, result)
    finally:  # what is left as it is, is told here in any case
        with streams.unread():
            if as_json:
                printing.print_json(result)
            else:
                _print(result)
    return 0 if result.complete or message is not None else LEFT_STATUS


def _leave(message: pathlib.Path, result: restoration.Restoration) -> None:
    from cotenant.manager import leaving

    try:
        message.write_bytes(leaving.message_of(len(result.restored), len(left_of(result)), result.pods_to_recreate))
    except OSError as error:
        raise OSError(error.errno, error.strerror, f"--message {message}") from error


def left_of(result: restoration.Restoration) -> list[restoration.Left]:
    """Return everything that is not as it was."""
    return [*result.irreversible, *result.stale, *result.foreign, *result.failed]


def _print(result: restoration.Restoration) -> None:
    rows = [_row(entry) for entry in result.restored]
    printing.print_table(("restored", "was", "is"), rows, "Nothing to restore.")
    left = [(entry.path, entry.found or "-", entry.reason, entry.remedy) for entry in left_of(result)]
    if left:
        typer.echo()
        printing.print_table(("left as it is", "holds", "because", "remedy"), left, "")
    if result.pods_to_recreate:
        typer.echo()
        printing.print_table(("pod to recreate (uid)",), [(uid,) for uid in result.pods_to_recreate], "")
    if left:
        typer.echo(f"\n{len(rows)} put back; {len(left)} could not be, each with its reason and remedy above.")


def _row(entry: restoration.Restored) -> tuple[str, str, str]:
    if entry.path.endswith("/cgroup.procs") and entry.found and entry.original is None:
        return os.path.dirname(entry.path), f"process {entry.found}", "where it was"
    if entry.found is None and entry.original is None:
        return entry.path, "made by cotenant", "removed"
    return entry.path, entry.found or "-", entry.note or entry.original or "-"
