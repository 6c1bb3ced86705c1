"""Options as the fields of a dataclass."""

import dataclasses
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from cotenant.cli import options


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    name: Annotated[str, typer.Option("--node", help="The name.")]
    count: Annotated[int, typer.Option(min=1, help="How many.")] = 2
    words: Annotated[list[str] | None, typer.Option("--word")] = None
    json: options.Json = False


def invoked(*arguments: str) -> tuple[int, str, list[tuple[bool, Options]]]:
    """Return the exit status, the output, and what the command got."""
    app, got = typer.Typer(), []

    @app.callback(invoke_without_command=True)
    @options.as_fields_of(Options)
    def command(context: typer.Context, given: Options) -> None:
        """Do it."""
        got.append((context.invoked_subcommand is None, given))

    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.output, got


def test_fields_are_options_with_their_names_and_defaults() -> None:
    assert invoked("--node", "n1")[2] == [(True, Options(name="n1"))]
    asked = ("--node=n1", "--count=3", "--word=a", "--word=b", "--json")
    assert invoked(*asked)[2] == [(True, Options(name="n1", count=3, words=["a", "b"], json=True))]


@pytest.mark.parametrize("arguments", [(), ("--node=n1", "--count=0"), ("--node=n1", "--name=n2")])
def test_what_a_field_does_not_take_is_refused(arguments: tuple[str, ...]) -> None:
    status, _, got = invoked(*arguments)
    assert (status, got) == (2, [])


def test_help_is_the_command_s_and_the_fields() -> None:
    _, output, _ = invoked("--help")
    assert "Do it." in output
    assert "How many." in output
