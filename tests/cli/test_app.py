import pytest

import cotenant
from cotenant.cli import app


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["--version"]) == 0
    assert capsys.readouterr().out == f"cotenant {cotenant.__version__}\n"


def test_a_wrong_word_is_one_line_and_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["sampel"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "sampel" in error
    assert "--help" in error
