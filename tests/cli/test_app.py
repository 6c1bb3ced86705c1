import errno
import os
import re
import subprocess
import sys

import pytest
from tests import process

import cotenant
from cotenant.cli import app, catalogue


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["--version"]) == 0
    assert capsys.readouterr().out == f"cotenant {cotenant.__version__}\n"


def test_a_wrong_word_is_one_line_and_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["sampel"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "sampel" in error
    assert "--help" in error


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["analyzer", "--reports-out", "/nonexistent/r.json", "--listen", "127.0.0.1:0"],
        ["analyzer", "--rules", "/nonexistent/r.yaml"],
        ["simulate", "nodes", "--count", "1", "--seconds", "1", "--address", "127.0.0.1:1"],
        ["scheduler", "--reports", "/nonexistent/r.json"],
        ["record", "/nonexistent/r.jsonl"],
        ["replay", "/nonexistent/r.jsonl"],
        ["config", "check", "/nonexistent/r.yaml"],
        ["enforce", "--once", "--pods", "/nonexistent/p.json", "--slo", "/nonexistent/s.yaml"],
        ["check", "--root", "/nonexistent"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_what_is_not_there_is_one_line_with_its_place_and_exit_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "/nonexistent" in said.err or "127.0.0.1:1" in said.err


@pytest.mark.parametrize(
    ("closed", "printed"),
    [
        ("<&-", f"cotenant {cotenant.__version__}\n"),
        ("2>&-", f"cotenant {cotenant.__version__}\n"),
        (">&-", ""),
        ("<&- >&- 2>&-", ""),
    ],
)
def test_a_stream_that_was_closed_before_is_one_that_nobody_reads(closed: str, printed: str) -> None:
    line = f'exec "$0" -m cotenant --version {closed}'
    done = process.run(["sh", "-c", line, sys.executable])
    assert (done.returncode, done.stdout, done.stderr) == (0, printed, "")


@pytest.mark.slow
@pytest.mark.parametrize("words", [["crd", "print"], ["--version"]], ids=["much", "little"])
def test_a_full_disk_behind_stdout_is_one_line(words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = process.cotenant(*words, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr == (
        f"cotenant: standard output: {os.strerror(errno.ENOSPC)}; free some space there, or name another place\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--version"], ["crd", "print"]], ids=["little", "much"])
def test_a_reader_that_has_gone_is_no_failure(words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = process.cotenant(*words, capture_output=False, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("columns", [80, 100])
@pytest.mark.parametrize("command", [one.name for one in catalogue.COMMANDS])
def test_help_cuts_no_option_off(
    command: str, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert app.run([command, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    assert [line for line in lines if re.match(r"\W*--[\w-]+…", line)] == []
