"""The console script: commands by group, each imported only when it is asked for.

Exit status of every command: 0 done; 1 a check that says no; 2 bad usage or input; 3 done, but something cannot be
undone or was left out; 130 interrupted.
"""

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer
import typer.main

import cotenant
from cotenant.cli import catalogue, examples, failures, streams, usage

UsageError: type[typer.BadParameter] = typer.BadParameter.__mro__[1]
"""The class of every complaint about usage, which typer does not export by name."""


def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    """Online and offline work on the same machines: see who is hurt, by what and by whom, and hold it back."""
    if version:
        typer.echo(f"cotenant {cotenant.__version__}")
        raise typer.Exit


def _placeholder_of(command: catalogue.Command) -> Callable[[], None]:
    def listed() -> None:
        """Stand in help for a command whose module is not loaded."""

    listed.__doc__ = command.help
    return listed


def build(arguments: Sequence[str]) -> typer.Typer:
    """Return the application with the command that the arguments name loaded, and the others listed only."""
    wanted = next((word for word in arguments if not word.startswith("-")), None)
    root = typer.Typer(
        name="cotenant",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": usage.HELP_OPTIONS},
    )
    root.callback(invoke_without_command=True)(_root)
    for command in catalogue.COMMANDS:
        if command.name != wanted:
            root.command(command.name, help=command.help, rich_help_panel=command.panel)(_placeholder_of(command))
            continue
        module = importlib.import_module(f"cotenant.cli.{command.module}")
        if hasattr(module, "app"):
            root.add_typer(module.app, name=command.name, help=command.help, rich_help_panel=command.panel)
        else:
            options = getattr(module, "CONTEXT_SETTINGS", {})
            register = root.command(command.name, rich_help_panel=command.panel, context_settings=options)
            register(module.command)
    return root


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command line and exit with its status."""
    streams.open_all()
    words = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(run(words))


def run(words: Sequence[str]) -> int:
    """Run one command line and return its exit status; what went wrong is one line on stderr."""
    try:
        command = typer.main.get_command(build(words))
        usage.finish(command, examples.LINES)
        result = command(list(words), standalone_mode=False)
        sys.stdout.flush()  # while a failure can still be told
    except UsageError as error:
        context = getattr(error, "ctx", None)
        where = context.command_path if context else "cotenant"
        message = " ".join(error.format_message().split()).rstrip(".")
        if message:  # without one, help was printed already
            typer.echo(f"{where}: {message} (see {where} --help)", err=True)
        return 2
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        return 0  # the reader of stdout has gone (`| head`), so nobody is left to tell
    except SystemExit as ending:
        if not isinstance(ending.__context__, BrokenPipeError):
            raise
        return 0  # typer has caught it first, and would end with 1: "a check says no"
    except failures.FAILURES as error:
        return failures.tell(error)
    return result if isinstance(result, int) else 0
