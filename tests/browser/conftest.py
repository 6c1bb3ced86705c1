"""A browser, and a running ``cotenant up`` for it to look at."""

import importlib.util
import pathlib
import re
import subprocess
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from tests import process
from tests.asking import answered

TOOLS = pathlib.Path(__file__).parents[2] / "tools"


def _chromium() -> ModuleType:
    spec = importlib.util.spec_from_file_location("chromium", TOOLS / "chromium.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One tab of a headless browser for all tests."""
    chromium = _chromium()
    try:
        with chromium.running() as tab:
            yield tab
    except chromium.ChromiumMissing as error:
        pytest.skip(str(error))


@pytest.fixture
def tab(browser: Any) -> Any:
    """The tab, its notes empty, in a window of 1440 × 900."""
    browser.open("about:blank")
    browser.size(1440, 900)
    browser.scheme("light")
    browser.errors.clear()
    browser.requests.clear()
    return browser


@pytest.fixture
def up(tmp_path: pathlib.Path) -> Iterator[Callable[..., str]]:
    """Start ``cotenant up`` with some options and return its address; it is ended afterwards."""
    started: list[subprocess.Popen[str]] = []

    def start(*options: str) -> str:
        command = [*process.COTENANT, "up", "--port", "0", "--data", str(tmp_path / "data"), *options]
        with (tmp_path / "up.log").open("a") as log:
            running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        started.append(running)
        found = re.search(r"http://\S+", process.next_line(running, tmp_path / "up.log"))
        assert found, process.tail(tmp_path / "up.log")
        # A page before the first sample has nothing to look at.
        answered(f"{found[0]}api/v1/sample", said=lambda: process.tail(tmp_path / "up.log"))
        return found[0]

    yield start
    for running in started:
        process.end(running, log=tmp_path / "up.log")
        assert running.stdout is not None
        running.stdout.close()
