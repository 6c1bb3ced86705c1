"""What ``--help`` shows: each command has examples that it takes, and names its values for people."""

import shlex

import pytest
import typer
import typer.main
from tests.test_docs import leaves

from cotenant.cli import app, catalogue, examples

COMMANDS = [command.name for command in catalogue.COMMANDS]


def words_of(example: str) -> list[str]:
    """Return the words of the first command of a line."""
    return shlex.split(example.partition(" | ")[0])[1:]


@pytest.mark.parametrize("example", examples.LINES)
def test_the_command_takes_its_example(example: str) -> None:
    first, *rest = words_of(example)
    command = typer.main.get_command(app.build([first])).commands[first]  # type: ignore[attr-defined]
    while getattr(command, "commands", {}) and rest and rest[0] in command.commands:
        command = command.commands[rest.pop(0)]
    command.make_context(first, rest)  # parses, and calls nothing
    assert len(f"  {example}") <= 80


def test_an_option_that_does_not_exist_is_no_example() -> None:
    command = typer.main.get_command(app.build(["top"])).commands["top"]  # type: ignore[attr-defined]
    with pytest.raises(app.UsageError):
        command.make_context("top", ["--nice"])


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("columns", [80, 100])
def test_help_ends_with_examples_and_names_values_for_people(
    name: str, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    command = typer.main.get_command(app.build([name])).commands[name]  # type: ignore[attr-defined]
    for words, _ in leaves(command, (name,)):
        assert app.run([*words, "--help"]) == 0
        above, _, below = capsys.readouterr().out.partition("Examples:")
        found = [line.strip() for line in below.splitlines() if line.strip()]
        called = f"cotenant {' '.join(words)}"
        assert found == [one for one in examples.LINES if f"{one} ".startswith(f"{called} ")] != []
        usage = next(line for line in above.splitlines() if "Usage: " in line)
        assert not any(odd in usage for odd in ("{", "[["))
        assert not any(odd in above for odd in ("TEXT", "<path>", "<str>", "<list", "<int>"))


@pytest.mark.parametrize(
    ("words", "place", "remedy"),
    [
        (["run", "--qos", "BE", "--cpus", "half", "--", "true"], "--cpus", "like 500m"),
        (["run", "--qos", "BE", "--memory", "lots", "--", "true"], "--memory", "4Gi"),
        (["verify", "smt", "--online-cpus", "first"], "--online-cpus", "0-3"),
        (["analyzer", "--listen", "analyzer"], "--listen analyzer", "HOST:PORT"),
        (["enforce", "--once", "--pods", "none.json", "--slo", "none.yaml"], "none.yaml", "give a NodeSLO"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_bad_value_is_told_with_its_option_and_what_to_write(
    words: list[str], place: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert place in line
    assert remedy in line
