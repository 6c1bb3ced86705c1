"""Tables as people and pipes read them."""

import pytest

from cotenant.cli import printing

ROWS = [("node-" + "a" * 120, "cotenant: interference limit psiIoSome in force")]


def test_into_a_pipe_a_row_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    printing.print_table(("node", "reason"), ROWS, "none")
    heading, rule, row = capsys.readouterr().out.splitlines()
    assert heading.split() == ["NODE", "REASON"]
    assert all(cell in row for cell in ROWS[0])
    assert len(rule) < 200


def test_a_width_that_is_asked_for_is_kept(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    printing.print_table(("node", "reason"), ROWS, "none")
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_nothing_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    printing.print_table(("node",), [], "none")
    assert capsys.readouterr().out == "none\n"
