"""Pages that hear nothing more say so, and do not look as if all were well."""

import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests import process as programs

pytestmark = [pytest.mark.browser, pytest.mark.real]

SERVE = pathlib.Path(__file__).with_name("fleet_server.py")
STALE = "document.getElementById('stale')"
MOOD = "getComputedStyle(document.querySelector('.hero')).getPropertyValue('--mood')"
UNKNOWN = "getComputedStyle(document.body).getPropertyValue('--unknown')"


@pytest.fixture(params=["one host", "fleet"])
def ending(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """The address of a page, and the program behind it."""
    up = [*programs.COTENANT, "up", "--port", "0", "--data", str(tmp_path), "--period", "300ms"]
    command = up if request.param == "one host" else [sys.executable, str(SERVE), "3"]
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            found = re.search(r"http://\S+", programs.next_line(process, tmp_path / "log"))
            assert found, programs.tail(tmp_path / "log")
            yield found[0], process
        finally:
            process.kill()


def test_when_the_program_ends_its_page_says_since_when_nothing_is_known(
    tab: Any, ending: tuple[str, "subprocess.Popen[str]"]
) -> None:
    address, process = ending
    tab.open(address)
    tab.wait("document.getElementById('live')?.className.includes('on')")
    tab.wait(f"{STALE}.clientHeight === 0")
    process.kill()
    process.wait()
    said = tab.wait(f"{STALE}.clientHeight > 0 && {STALE}.textContent")
    assert re.search(r"since \d\d:\d\d:\d\d UTC: what is below may no longer hold", said)
    assert tab.evaluate(f"{MOOD} === {UNKNOWN}"), "no colour says that all is well"
    assert tab.evaluate(f"{STALE}.getAttribute('role')") == "alert"
