"""One node's commands, and where its tree is."""

import pathlib

import pytest
from tests.contracts.node_tree import Commands


@pytest.fixture
def cotenant(capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path) -> Commands:
    return Commands(capsys, tmp_path)


@pytest.fixture
def place(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "root"
