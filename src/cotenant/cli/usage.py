"""What ``--help`` shows of a command: values and arguments named for people, and examples to copy.

Typer by itself writes ``<path>``, ``{FILE}`` and ``[[NAME]]``, and in a narrow terminal its boxes cut long options off.
"""

import pathlib
import shutil
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperArgument, TyperOption

HELP_OPTIONS = ["-h", "--help"]
BOXES_NEED_COLUMNS = 100
"""In a narrower terminal typer's boxes cut off the names of options from LONG_NAME on; plain help wraps instead."""
LONG_NAME = len("--priority-interface")
VALUE_NAMES: dict[Any, str] = {str: "TEXT", int: "N", float: "N", pathlib.Path: "FILE"}
UNWRAPPED = "\b\n"
"""What keeps a paragraph's lines apart in plain help."""


def finish(command: Any, examples: Sequence[str]) -> None:
    """Name the values and arguments of a command and of those below it, and add the examples that call them."""
    _finish(command, "cotenant", examples)


def _finish(command: Any, called: str, examples: Sequence[str]) -> None:
    context = typer.Context(command, help_option_names=HELP_OPTIONS)
    for parameter in (command.get_help_option(context), *command.params):
        if isinstance(parameter, TyperOption):
            _name_value(parameter)
        elif isinstance(parameter, TyperArgument):
            _name_argument(parameter)
    longest = max((len(name) for parameter in command.params for name in parameter.opts), default=0)
    boxed = longest < LONG_NAME or shutil.get_terminal_size().columns >= BOXES_NEED_COLUMNS
    if not boxed:
        command.rich_markup_mode = None
    mine = [example for example in examples if f"{example} ".startswith(f"{called} ")]
    if mine and called != "cotenant":
        lines = "\n".join(["Examples:", *(f"  {example}" for example in mine)])
        command.epilog = lines if boxed else f"{UNWRAPPED}{lines}"
    for name, one in getattr(command, "commands", {}).items():
        _finish(one, f"{called} {name}", examples)


def _name_value(option: Any) -> None:
    if option.metavar is None and not option.type_descriptor.is_choice:
        option.metavar = "" if option.is_flag else VALUE_NAMES.get(option.type_descriptor.annotation)


def _name_argument(argument: Any) -> None:
    name = argument.metavar or argument.name.upper()
    many = "" if argument.nargs == 1 or name.endswith("…") else "…"
    argument.metavar = f"{name}{many}"
    piece = argument.metavar if argument.required else f"[{argument.metavar}]"
    argument.get_usage_pieces = lambda _context: [] if argument.hidden else [piece]
    argument.display_type = argument.display_type_rich = lambda ctx: None
