"""How commands print: tables for people, JSON for programs."""

import codecs
import os
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from cotenant.cli import streams

UNFOLDED_COLUMNS = 10_000


def print_json(value: Any) -> None:
    """Print one value as indented JSON with the keys in their own order."""
    sys.stdout.write(json_text(msgspec.json.format(_encoded(value), indent=2)) + "\n")


def print_json_line(value: Any) -> None:
    """Print one value as JSON on a line of its own, at once."""
    sys.stdout.write(json_text(_encoded(value)) + "\n")
    sys.stdout.flush()


def json_text(encoded: bytes) -> str:
    """Return JSON as text that stays JSON in the encoding of stdout: it has to be UTF-8, or ASCII."""
    text = encoded.decode()
    if text.isascii() or codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8":
        return text
    return text.encode("ascii", streams.ESCAPES).decode()


def _encoded(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # the name of a file may be any bytes
        return msgspec.json.encode(_legible(msgspec.to_builtins(value)))


def _legible(value: Any) -> Any:
    """Return the value with bytes that are no text escaped in its strings."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_legible(key): _legible(item) for key, item in value.items()}
    return [_legible(item) for item in value] if isinstance(value, list | tuple) else value


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

    class Output(console.Console):
        def on_broken_pipe(self) -> None:
            raise  # rich would end the program, and with it work that goes on without a reader

    Output(highlight=False, soft_wrap=False, width=whole).print(view)
