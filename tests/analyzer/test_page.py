"""The fleet page, its data and /metrics, over the ASGI application."""

import html
import json
import re
from collections.abc import Callable
from typing import Any

import httpx
import msgspec
import prometheus_client
import pytest

from cotenant.analyzer import heat, receiving
from cotenant.analyzer import page as fleet_page
from cotenant.analyzer.fleet import Fleet
from cotenant.analyzer.metrics import AnalyzerCollector
from cotenant.analyzer.page import FleetSite
from cotenant.analyzer.writing import Writer
from cotenant.api import report
from cotenant.model.evaluation import Detection, Evaluation, SignalState, Suspect, Victim
from cotenant.units.clock import ManualClock
from cotenant.web.guard import AllowedHosts

Live = Callable[..., None]


class Sink:
    async def write(self, name: str, value: report.NodeInterferenceReport) -> None:
        return


@pytest.fixture
def site(fleet: Fleet, clock: ManualClock) -> FleetSite:
    metrics = prometheus_client.CollectorRegistry()
    receiver = receiving.Receiver(fleet, receiving.Instructions())
    metrics.register(AnalyzerCollector(fleet, receiver, Writer(fleet, Sink(), clock), lambda: True))
    return FleetSite(fleet, clock, AllowedHosts("127.0.0.1", frozenset({"fleet.example"})), metrics)


async def get(site: FleetSite, path: str, host: str = "127.0.0.1:80", method: str = "GET") -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(site.application), base_url=f"http://{host}") as asking:
        return await asking.request(method, path)


async def test_before_anything_is_known(site: FleetSite) -> None:
    answer = await get(site, "/")
    assert "Not known yet" in answer.text
    assert (await get(site, "/api/v1/fleet")).json()["nodes"] == []


async def test_nodes_come_worst_first_with_their_last_hour(site: FleetSite, live: Live, clock: ManualClock) -> None:
    for node, thrashing in (("a-calm", False), ("b-bad", True), ("c-calm", False)):
        live(12, thrashing, node)
        site.note()
    fleet = (await get(site, "/api/v1/fleet")).json()
    assert (fleet["state"], fleet["headline"]) == ("hurt", "b-bad is hurt")
    assert [node["name"] for node in fleet["nodes"]] == ["b-bad", "a-calm", "c-calm"]
    assert fleet["nodes"][0]["triggered"] == ["memoryPressure"]
    assert [node["heat"].strip(".") for node in fleet["nodes"]] == ["4", "0", "0"]
    page = await get(site, "/")
    assert "3 nodes" in page.text
    assert "b-bad is hurt" in page.text
    (titles,) = re.findall(r'data-titles="([^"]*)"', page.text)
    assert json.loads(html.unescape(titles))["memoryPressure"] == "Memory pressure"


async def test_a_hurt_node_says_by_whom_and_who_is_hurt(site: FleetSite, fleet: Fleet, live: Live) -> None:
    live(12, True, "bad")
    found = fleet.nodes["bad"].evaluation
    assert isinstance(found, Evaluation)
    named = Detection(
        triggered=True, index=0.9, victims=[Victim(name="shop/web", evidence="e")],
        suspects=[Suspect(name="batch/build", confidence=0.9, evidence="e")],
    )  # fmt: skip
    fleet.nodes["bad"].evaluation = msgspec.structs.replace(found, detections={"memoryPressure": named})
    (node,) = (await get(site, "/api/v1/fleet")).json()["nodes"]
    assert (node["suspect"], node["victim"]) == ("batch/build", "shop/web")


async def test_that_some_are_calm_is_no_good_news_while_most_are_unknown(site: FleetSite, live: Live) -> None:
    live(12, False, "calm")
    assert (await get(site, "/api/v1/fleet")).json()["headline"] == "Nobody is hurt"
    for number in range(3):
        live(1, False, f"new-{number}")
    site._kept = None
    fleet = (await get(site, "/api/v1/fleet")).json()
    assert (fleet["state"], fleet["headline"]) == ("unknown", "Nobody is hurt, as far as is known: 1 of 4 nodes")


async def test_one_node_with_its_numbers(site: FleetSite, fleet: Fleet, live: Live) -> None:
    live(12, True, "bad")
    page = await get(site, "/node/bad")
    assert page.status_code == 200
    assert "Memory" in page.text
    assert "bad is under pressure" in page.text
    assert re.search(r"<td>50(\.0)? ?%</td>", page.text), page.text
    assert "Mode" in page.text
    assert page.text.index("Memory pressure") < page.text.index("CPU contention"), "the worst comes first"
    assert "Whether its agent holds anything back is not known." in page.text
    fleet.nodes["bad"].facts = report.NodeFacts(mode="observe", problems=["no PSI"])
    told = (await get(site, "/node/bad")).text
    assert "nothing is held back" in told
    assert "no PSI" in told
    assert (await get(site, "/node/nobody")).status_code == 404


def test_a_signal_that_does_not_count_says_so() -> None:
    signals = {
        "psi.io_some_ratio": SignalState(value=0.74, index=None, threshold=0.2),
        "block.p99_usec": SignalState(value=127e3, index=0.84, threshold=30e3),
    }
    shown = fleet_page._detection("ioCongestion", Detection(triggered=True, index=0.84, signals=signals))["signals"]
    assert [(one["title"], one["index"]) for one in shown] == [
        ("I/O stall (some)", "does not count"),
        ("Block latency p99", "0.84"),
    ]


async def test_names_are_escaped(site: FleetSite, live: Live) -> None:
    live(12, False, "<script>x")
    page = await get(site, "/")
    assert "<script>x" not in page.text
    assert "&lt;script&gt;x" in page.text


async def test_other_names_and_changes_are_refused(site: FleetSite) -> None:
    assert (await get(site, "/", "fleet.example")).status_code == 200
    refused = await get(site, "/", "evil.example")
    assert refused.status_code == 403
    assert "default-src 'none'" in refused.headers["content-security-policy"]
    assert (await get(site, "/", method="POST")).status_code == 401
    assert (await get(site, "/static/fleet.js")).status_code == 200
    assert (await get(site, "/static/..%2fpage.py")).status_code == 404


async def test_metrics_have_no_series_by_node(site: FleetSite, live: Live) -> None:
    live(40, True, "bad")
    live(12, False, "calm")
    text = (await get(site, "/metrics")).text
    assert 'cotenant_analyzer_nodes{bucket="severe"} 1.0' in text
    assert "cotenant_analyzer_hard_limited_nodes 1.0" in text
    assert "cotenant_analyzer_samples_total 52.0" in text
    assert '"bad"' not in text


async def test_a_replica_that_does_not_lead_says_who_does(fleet: Fleet, clock: ManualClock) -> None:
    hosts = AllowedHosts("127.0.0.1")
    follower = FleetSite(fleet, clock, hosts, prometheus_client.CollectorRegistry(), lambda: False, lambda: "a:7443")
    assert "the samples are at a:7443" in (await get(follower, "/")).text


def test_thousands_of_nodes_are_one_answer_for_all_who_ask(fleet: Fleet, clock: ManualClock, make_sample: Any) -> None:
    site = FleetSite(fleet, clock, AllowedHosts("127.0.0.1"), prometheus_client.CollectorRegistry())
    for number in range(2000):
        fleet.hear(f"node-{number}", [make_sample(1.0 + tick, node=f"node-{number}") for tick in range(3)])
    site.note()
    view = site.view()
    assert len(view["nodes"]) == 2000
    assert site.view() is view  # one answer for all who ask within two seconds
    clock.advance(3)
    assert site.view() is not view


def test_the_heat_map_keeps_the_worst_of_a_minute_and_forgets_after_an_hour() -> None:
    kept = heat.Heat(slot_seconds=60, slots=4)
    kept.note("n", "low", False, 0)
    kept.note("n", "severe", False, 30)
    kept.note("n", "none", False, 59)
    assert kept.row("n", 59) == "...4"
    kept.note("n", "high", True, 125)
    assert kept.row("n", 130) == ".4.5"
    assert kept.row("n", 130 + 600) == "...."
    assert kept.row("other", 0) == ""
    kept.keep(set())
    assert kept.row("n", 800) == ""


def test_every_state_has_a_letter_and_a_colour() -> None:
    letters = {heat.letter_of(bucket, False) for bucket in ("unknown", "none", "low", "medium", "high", "severe")}
    letters |= {heat.letter_of("none", True)}
    from cotenant.web.application import STATIC

    css = (STATIC / "fleet.css").read_text()
    assert len(letters) == 7
    assert all(f".h{letter} {{" in css for letter in letters)
