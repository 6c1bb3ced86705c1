"""The page in a real browser, on this machine's real numbers."""

import json
import os
import pathlib
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests import process
from tests.asking import answered
from tests.waiting import PATIENCE_SECONDS, await_true

from cotenant.kernel import paths

pytestmark = [pytest.mark.browser, pytest.mark.real]

Up = Callable[..., str]
LIVE = "document.getElementById('live').className.includes('on')"

RULES = """\
apiVersion: cotenant.io/v1alpha1
kind: DetectionRuleConfig
metadata: {name: default}
spec:
  windowSeconds: 3
  hysteresis: {enterFor: 1, leaveForSeconds: 1, minHoldSeconds: 1}
  detections:
    cpuContention:
      signals:
      - {signal: cpu.used_ratio, normal: 0.5, threshold: 0.8, saturation: 1.0}
"""


def replace(path: pathlib.Path, text: str) -> None:
    new = path.with_name("new.yaml")
    new.write_text(text)
    os.replace(new, path)


def test_real_values_live_and_nothing_from_a_network(tab: Any, up: Up) -> None:
    url = up("--period", "300ms")
    tab.open(url)
    tab.wait(LIVE)

    def shows_what_is_answered() -> bool:
        available = answered(url + "api/v1/sample")["memory"]["available_ratio"]
        shown = tab.evaluate("document.querySelector('[data-panel=available] .key b').textContent")
        return abs(float(shown.removesuffix(" %")) - available * 100) < 5

    await_true(shows_what_is_answered, "the memory that is available")
    tab.wait("document.querySelectorAll('[data-panel]:not([hidden]) canvas').length > 10")
    first = tab.evaluate("document.getElementById('live').textContent")
    tab.wait(f"document.getElementById('live').textContent !== {json.dumps(first)}")
    assert tab.evaluate("document.querySelector('h1').textContent.length") > 5
    assert not [asked for asked in tab.requests if not asked.startswith((url, "about:", "data:"))]
    # A disk that does not answer is no error of the page: there is no history for a while.
    assert [error for error in tab.errors if "503" not in error] == [], "scripts or the content security policy"


def test_first_paint_needs_no_script(tab: Any, up: Up) -> None:
    url = up("--period", "300ms")
    tab.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        tab.call("Page.navigate", url=url)

        def texts() -> list[str]:
            # In one call: between two of them the document may be replaced by the next one.
            return list(tab.call("DOMSnapshot.captureSnapshot", computedStyles=[])["strings"])

        awaited = {"Is anyone hurt now?", "CPU time", "API"}  # from the first to the last line
        await_true(lambda: awaited <= set(texts()), "the page", said=lambda: "\n".join(texts()), pause_seconds=0.2)
        assert any(re.fullmatch(r"[\d.]+ %", one) for one in texts()), "numbers in the charts' legends"
    finally:
        tab.call("Emulation.setScriptExecutionDisabled", value=False)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1440])
def test_it_fits_the_window(tab: Any, up: Up, tmp_path: pathlib.Path, width: int, scheme: str) -> None:
    url = up("--period", "300ms")
    tab.size(width, 812 if width < 600 else 900)
    tab.scheme(scheme)
    tab.open(url)
    tab.wait(LIVE)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    background = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(int(part) for part in background.strip("rgb() ").split(",")[:3]) / 3
    assert (brightness < 80) == (scheme == "dark")
    picture = tmp_path / f"page-{width}-{scheme}.png"
    tab.picture(picture, whole=True)
    assert picture.stat().st_size > 20_000
    print(f"to be looked at: {picture}")


@pytest.mark.parametrize("width", [375, 1280])
def test_the_page_of_decisions_fits_the_window(tab: Any, tmp_path: pathlib.Path, width: int) -> None:
    reports = tmp_path / "reports.json"
    reports.write_text('{"kind": "List", "items": []}')
    with process.running("scheduler", "--reports", str(reports), "--listen", "127.0.0.1:0") as line:
        (address,) = re.findall(r"http://[0-9.:]+", line)
        asked = {"Pod": {"metadata": {"name": "p", "namespace": "n"}}, "NodeNames": ["a-node-of-a-long-name.example"]}
        request = urllib.request.Request(
            f"{address}/kube/filter", json.dumps(asked).encode(), {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=PATIENCE_SECONDS).close()
        tab.size(width, 812)
        for place in ("/", "/?pod=n/p"):
            tab.open(address + place)
            assert "n/p" in tab.evaluate("document.body.textContent")
            assert tab.evaluate("document.documentElement.scrollWidth") <= width, place


@pytest.fixture
def two_groups() -> Iterator[None]:
    """Two groups of our own, so that the table has lines to sort."""
    mount = paths.Root().hierarchy("cpu")
    if mount is None:
        pytest.skip("no hierarchy with the cpu controller here")
    made: list[pathlib.Path] = []
    sleeping: list[subprocess.Popen[bytes]] = []
    try:
        try:
            for name in ("page-test-a.service", "page-test-b.service"):
                (mount.path / name).mkdir()
                made.append(mount.path / name)
                sleeping.append(subprocess.Popen(["sleep", "900"]))
                (made[-1] / "cgroup.procs").write_text(str(sleeping[-1].pid))
        except OSError as error:
            pytest.skip(f"no groups can be made here: {error}")
        yield
    finally:
        for one in sleeping:
            one.kill()
            one.wait()
        for group in made:
            group.rmdir()


def test_the_table_sorts_by_keyboard(tab: Any, up: Up, two_groups: None) -> None:
    url = up("--period", "300ms")
    tab.open(url)
    tab.wait(LIVE)
    tab.wait("document.querySelectorAll('#part-groups tr[data-name]').length >= 2")
    tab.evaluate("document.querySelector('[data-sort=name]').focus()")
    tab.press("Enter")
    names = "[...document.querySelectorAll('#part-groups tr[data-name]')].map((row) => row.dataset.name)"
    assert tab.evaluate("document.querySelector('[data-sort=name]').closest('th').ariaSort") == "ascending"
    assert tab.evaluate(f"JSON.stringify({names}) === JSON.stringify({names}.sort((a, b) => a.localeCompare(b)))")
    tab.press("Enter")
    assert tab.evaluate("document.querySelector('[data-sort=name]').closest('th').ariaSort") == "descending"
    told = tab.evaluate("document.getElementById('live').textContent")
    tab.wait(f"document.getElementById('live').textContent !== {json.dumps(told)}")  # updates keep the order
    assert tab.evaluate(f"{names}.length > 1 && {names}[0].localeCompare({names}.at(-1)) >= 0")
    assert tab.evaluate("document.activeElement.dataset.sort") == "name", "the focus stays"


def test_every_control_is_reached_with_tab(tab: Any, up: Up) -> None:
    tab.open(up("--period", "300ms"))
    tab.wait(LIVE)
    tab.evaluate("document.body.focus()")
    reached = set()
    for _ in range(60):
        tab.press("Tab")
        reached.add(tab.evaluate("document.activeElement.dataset.seconds || document.activeElement.dataset.sort || ''"))
    assert {"300", "900", "3600", "21600", "86400", "name", "cpu", "stall"} <= reached


def test_the_focus_stays_on_a_link_while_its_part_is_renewed(tab: Any, up: Up) -> None:
    tab.open(up("--period", "300ms"))
    tab.wait(LIVE)
    tab.wait("document.querySelector('#part-now a') !== null")
    tab.evaluate("document.querySelector('#part-now a').focus(); window.before = document.activeElement; 0")
    tab.wait("window.before !== document.querySelector('#part-now a')")
    assert tab.evaluate("document.activeElement === document.querySelector('#part-now a')")
    assert tab.evaluate("document.getElementById('live').role") is None, "no announcement each second"


def test_an_incident_appears_when_noise_starts_and_ends_with_it(tab: Any, up: Up, tmp_path: pathlib.Path) -> None:
    rules = tmp_path / "rules.yaml"
    replace(rules, RULES)
    url = up("--rules", str(rules))
    tab.open(url)
    # On a machine with other work somebody may be hurt from the start: then there is nothing to announce.
    first = json.dumps(tab.evaluate("document.querySelector('h1').textContent"))
    tab.wait(LIVE)
    # CPU noise on every CPU until it is seen; a shell loop needs no package.
    spinning = ["timeout", str(3 * PATIENCE_SECONDS), "sh", "-c", "while :; do :; done"]
    loops = [subprocess.Popen(spinning) for _ in range((os.cpu_count() or 1) * 2)]
    try:
        tab.wait("document.querySelector('.hero.hurt .detail')?.textContent.includes('CPU used')")
        tab.wait("[...document.querySelectorAll('.incident.open b')].some(b => b.textContent === 'CPU contention')")
        headline, said = (
            "document.querySelector('h1').textContent",
            "document.getElementById('announcement').textContent",
        )
        tab.wait(f"{said} === {headline} || ({said} === '' && {headline} === {first})")
        tab.picture(tmp_path / "incident.png", whole=True)
    finally:
        for loop in loops:
            loop.terminate()
            loop.wait()
    # Other work may keep this machine's CPUs busy: then the incident rightly goes on.
    incidents = answered(url + "api/v1/incidents")["incidents"]
    assert incidents[0]["dominant"] == "cpuContention"
    assert incidents[0]["evidence"][0]["value"] >= 0.8


def test_a_bad_rules_file_shows_its_error_until_it_is_mended(tab: Any, up: Up, tmp_path: pathlib.Path) -> None:
    rules = tmp_path / "rules.yaml"
    replace(rules, RULES)
    tab.open(up("--rules", str(rules), "--period", "300ms"))
    tab.wait(LIVE)
    tab.wait("document.querySelector('.notice') === null")
    replace(rules, RULES.replace("windowSeconds", "windowSecond"))
    error = tab.wait("document.querySelector('.notice.bad')?.textContent")
    assert "rules.yaml:5" in error
    assert "windowSeconds" in error
    replace(rules, RULES)
    tab.wait("document.querySelector('.notice') === null")


def test_rules_are_rolled_back_from_the_page_with_the_token(tab: Any, up: Up, tmp_path: pathlib.Path) -> None:
    rules = tmp_path / "rules.yaml"
    replace(rules, RULES)
    url = up("--rules", str(rules), "--period", "300ms")
    tab.open(url)
    tab.wait(LIVE)
    replace(rules, RULES.replace("0.8", "0.9"))
    tab.wait("document.getElementById('part-agent').textContent.includes('revision 2')")

    def submit(token: str) -> None:
        tab.evaluate("document.querySelector('.change').open = true")
        tab.evaluate(f"document.getElementById('token').value = {json.dumps(token)}")
        tab.evaluate("document.getElementById('rollback').requestSubmit()")

    submit("a wrong token of some length")
    tab.wait("document.getElementById('rollback-answer').textContent.includes('token')")
    assert "0.9" in rules.read_text()
    submit((tmp_path / "data" / "token").read_text().strip())
    tab.wait("document.getElementById('rollback-answer').textContent.includes('is in force')")
    assert "threshold: 0.8" in rules.read_text()


def test_another_site_can_neither_read_nor_change(tab: Any, up: Up, tmp_path: pathlib.Path) -> None:
    url = up("--period", "300ms")
    # Another origin: the same machine, another port.
    other = up("--period", "300ms", "--data", str(tmp_path / "other"))
    token = (tmp_path / "other" / "token").read_text().strip()
    tab.open(url)
    # The page's own policy would stop it first; a foreign page has none, so the policy is set aside here.
    tab.call("Page.setBypassCSP", enabled=True)
    tab.open(url)
    fetching = (
        "fetch('{0}api/v1/rules/rollback', {{method: 'POST', mode: '{1}', body: '{{}}', headers: {2}}})"
        ".then((answer) => answer.type + answer.status, () => 'blocked')"
    )
    try:
        headers = json.dumps({"Authorization": f"Bearer {token}"})
        assert tab.evaluate(fetching.format(other, "cors", headers)) == "blocked"
        assert tab.evaluate(fetching.format(other, "no-cors", "{}")) == "blocked"
        reading = f"fetch('{other}api/v1/sample').then((answer) => answer.text(), () => 'blocked')"
        assert tab.evaluate(reading) == "blocked"
    finally:
        tab.call("Page.setBypassCSP", enabled=False)
    request = urllib.request.Request(
        other + "api/v1/rules/rollback", b"{}", {"Origin": url.rstrip("/"), "Authorization": f"Bearer {token}"}
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=PATIENCE_SECONDS)
    assert refused.value.code == 403
    refused.value.close()
