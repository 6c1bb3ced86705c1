"""What fits, what can be reached, and which times are shown, on screens of several widths."""

import itertools
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests import process as programs

pytestmark = [pytest.mark.browser, pytest.mark.real]

SERVE = pathlib.Path(__file__).with_name("fleet_server.py")
BOXES = """
[...document.querySelectorAll('#room .row')].map((row) => {
  const { top, bottom, right } = row.getBoundingClientRect();
  const parts = [...row.children].map((part) => part.getBoundingClientRect());
  return { top, bottom, inside: parts.every((part) => part.bottom <= bottom + 1 && part.right <= right + 1) };
}).sort((a, b) => a.top - b.top)
"""
SIDEWAYS = "(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth)(document.getElementById('rows'))"


@pytest.fixture(scope="module")
def fleet() -> Iterator[str]:
    """The address of a page of some hundred nodes."""
    command = [sys.executable, str(SERVE), "300"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as process:
        try:
            (address,) = re.findall(r"http://\S+", programs.next_line(process))
            yield address
        finally:
            process.kill()


@pytest.mark.parametrize("width", [375, 640, 641, 768, 1280])
def test_rows_of_nodes_fit_the_window_and_do_not_overlap(tab: Any, fleet: str, width: int) -> None:
    tab.size(width, 812)
    tab.open(fleet)
    tab.wait("document.querySelectorAll('#room .row').length > 5")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate(SIDEWAYS) == 0
    boxes = tab.evaluate(BOXES)
    assert all(above["bottom"] <= below["top"] + 1 for above, below in itertools.pairwise(boxes))
    assert all(box["inside"] for box in boxes)
    tab.evaluate("document.getElementById('rows').scrollTop = 1e6")
    tab.wait("[...document.querySelectorAll('#room .row')].some((row) => row.offsetTop + row.offsetHeight + 1 >= "
             "document.getElementById('room').offsetHeight)")  # fmt: skip


def test_a_row_is_an_item_of_a_list_and_no_match_is_said(tab: Any, fleet: str) -> None:
    tab.open(fleet)
    first = "document.querySelector('#room[role=list] > [role=listitem] > a')"
    assert tab.wait(f"{first}?.textContent").startswith("node-")
    tab.evaluate("filter.value = 'no such node'; filter.dispatchEvent(new Event('input'))")
    assert tab.evaluate("document.getElementById('nothing').clientHeight > 0")
    assert tab.evaluate("document.querySelectorAll('#room .row').length") == 0


@pytest.mark.parametrize("width", [375, 768, 1280])
def test_every_part_of_the_page_can_be_reached_from_its_top(tab: Any, up: Callable[..., str], width: int) -> None:
    tab.size(width, 812)
    tab.open(up("--period", "300ms"))
    tab.wait("document.getElementById('live')?.className.includes('on')")
    links = "[...document.querySelectorAll('nav a')]"
    assert tab.evaluate(f"{links}.length > 3 && {links}.every((link) => link.getClientRects().length > 0)")
    assert tab.evaluate(f"{links}.every((link) => document.querySelector(link.getAttribute('href')) !== null)")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_all_times_are_utc_wherever_the_reader_is(tab: Any, up: Callable[..., str]) -> None:
    tab.call("Emulation.setTimezoneOverride", timezoneId="Asia/Kolkata")
    try:
        began = time.time()
        tab.open(up("--period", "300ms"))
        labels = "[...document.querySelectorAll('#day .dygraph-axis-label-x')].map((one) => one.textContent)"
        shown = tab.wait(f"{labels}.length > 2 && {labels}")
        span = range(int(began) - 2 * 3600, int(time.time()) + 1, 60)
        hours = {label[:2] for label in shown if ":" in label}  # midnight is a date
        assert hours <= {time.strftime("%H", time.gmtime(when)) for when in span}
    finally:
        tab.call("Emulation.setTimezoneOverride", timezoneId="")
