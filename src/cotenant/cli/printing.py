"""How commands print: tables for people, JSON for programs."""

import os
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

UNFOLDED_COLUMNS = 10_000


def print_json(value: Any) -> None:
    """Print one value as indented JSON with the keys in their own order."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def print_json_line(value: Any) -> None:
    """Print one value as JSON on a line of its own, at once."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], empty: str) -> None:
    """Print rows below their column names in capitals, or the ``empty`` sentence; colour only on a terminal.

    Into a pipe or a file a row is one line, so that names stay whole for ``grep``; a terminal's width folds cells.
    """
    # rich is slow to import, and most commands with --json never need it. It respects NO_COLOR.
    from rich import box, console, table

    if not rows:
        sys.stdout.write(empty + "\n")
        return
    view = table.Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        view.add_column(column.upper(), overflow="fold")
    for row in rows:
        view.add_row(*row)
    whole = None if sys.stdout.isatty() or "COLUMNS" in os.environ else UNFOLDED_COLUMNS
    console.Console(highlight=False, soft_wrap=False, width=whole).print(view)
