"""Offline work of all nodes together, its page and its metrics."""

import httpx
import msgspec
import prometheus_client
import pytest
from tests.analyzer.test_page import Sink, get

from cotenant.analyzer import receiving
from cotenant.analyzer.fleet import Fleet
from cotenant.analyzer.ledgers import KEPT_SECONDS, SILENT_SECONDS, Ledgers
from cotenant.analyzer.metrics import AnalyzerCollector
from cotenant.analyzer.page import FleetSite
from cotenant.analyzer.writing import Writer
from cotenant.api.v1 import stream_pb2
from cotenant.model.ledger import Account, Ledger
from cotenant.units.clock import ManualClock
from cotenant.web.guard import AllowedHosts


def books(epoch: str = "e", since: float = 1.0, starved: float | None = None, **asked: float) -> Ledger:
    accounts = {name: Account(asked_core_seconds=n, starved_since=starved) for name, n in asked.items()}
    return Ledger(epoch=epoch, since=since, accounts=accounts)


class Bench:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ledgers = Ledgers(self.clock)

    def asked(self, name: str = "batch") -> tuple[float, float]:
        """What the namespace asked for in all, and since the analyzer listens."""
        self.clock.advance(KEPT_SECONDS)
        found = self.ledgers.total()
        accounts = (found.accounts.get(name, Account()), found.session.get(name, Account()))
        return accounts[0].asked_core_seconds, accounts[1].asked_core_seconds


def test_nodes_add_up_and_what_was_before_we_listened_is_in_no_counter() -> None:
    bench = Bench()
    bench.ledgers.hear("n1", books(batch=100))
    bench.ledgers.hear("n2", books(batch=50, ml=7))
    assert bench.asked() == (150, 0)
    bench.ledgers.hear("n1", books(batch=130))
    assert bench.asked() == (180, 30)
    assert bench.asked("ml") == (7, 0)
    assert bench.ledgers.total().since == 1.0


def test_a_killed_agent_goes_on_from_its_last_save_and_no_counter_falls() -> None:
    bench = Bench()
    bench.ledgers.hear("n1", books(batch=100))
    bench.ledgers.hear("n1", books(batch=130))
    bench.ledgers.hear("n1", books(batch=110))
    assert bench.asked() == (130, 30)
    bench.ledgers.hear("n1", books(batch=160))
    assert bench.asked() == (160, 60)


def test_an_agent_that_lost_its_books_counts_from_zero_beside_the_old() -> None:
    bench = Bench()
    bench.ledgers.hear("n1", books(batch=100))
    bench.ledgers.hear("n1", books("new", batch=5))
    assert bench.asked() == (105, 5)
    bench.ledgers.hear("n1", books("new", batch=8))
    assert bench.asked() == (108, 8)


def test_a_node_that_left_stays_counted() -> None:
    bench = Bench()
    bench.ledgers.hear("n1", books(batch=100))
    bench.ledgers.hear("n1", books(batch=120))
    bench.ledgers.forget("n1")
    bench.ledgers.forget("n1")
    assert bench.asked() == (120, 20)


def test_who_starves_is_forgotten_with_a_silent_node() -> None:
    bench = Bench()
    bench.ledgers.hear("n1", books(batch=1, starved=900.0))
    bench.ledgers.hear("n2", books(batch=1, starved=800.0))
    assert bench.ledgers.total().accounts["batch"].starved_since == 800.0
    bench.clock.advance(SILENT_SECONDS)
    bench.ledgers.hear("n1", books(batch=1, starved=900.0))
    bench.clock.advance(KEPT_SECONDS)
    assert bench.ledgers.total().accounts["batch"].starved_since == 900.0


@pytest.fixture
def receiver(fleet: Fleet) -> receiving.Receiver:
    return receiving.Receiver(fleet, receiving.Instructions())


async def test_from_a_message_to_the_page_and_metrics(
    fleet: Fleet, clock: ManualClock, receiver: receiving.Receiver
) -> None:
    metrics = prometheus_client.CollectorRegistry()
    metrics.register(AnalyzerCollector(fleet, receiver, Writer(fleet, Sink(), clock), lambda: True))
    site = FleetSite(fleet, clock, AllowedHosts("127.0.0.1"), metrics)
    assert "No offline work was seen yet" in (await get(site, "/")).text
    first = (await get(site, "/metrics")).text
    assert "cotenant_offline" not in first
    assert "cotenant_analyzer_calls_refused_total 0.0" in first
    assert "cotenant_analyzer_rules_rolled_back_total 0.0" in first
    for asked in (3600.0, 7200.0):
        message = stream_pb2.Batch(ledger=msgspec.json.encode(books(batch=asked)))
        receiver._hear("n1", message, None)
    clock.advance(KEPT_SECONDS)
    assert 'title="batch">batch</th><td>2.000</td>' in (await get(site, "/")).text
    assert 'title="batch"' in (await get(site, "/api/v1/fleet")).json()["parts"]["ledger"]
    got: httpx.Response = await get(site, "/api/v1/ledger")
    assert got.json()["accounts"]["batch"]["asked_core_seconds"] == 7200.0
    assert 'cotenant_offline_asked_core_seconds_total{namespace="batch"} 3600.0' in (await get(site, "/metrics")).text


async def test_a_replica_that_does_not_lead_has_no_ledger_to_show(fleet: Fleet, clock: ManualClock) -> None:
    metrics = prometheus_client.CollectorRegistry()
    site = FleetSite(fleet, clock, AllowedHosts("127.0.0.1"), metrics, lambda: False, lambda: "10.0.0.3:7443")
    got: httpx.Response = await get(site, "/api/v1/ledger")
    assert got.status_code == 503
    assert got.json() == {"error": "this replica does not lead; ask 10.0.0.3:7443"}


def test_a_ledger_that_is_none_is_counted_and_left_out(fleet: Fleet, receiver: receiving.Receiver) -> None:
    for bad in (b"{", b'{"accounts": 3}', b"[" * 200_000):
        receiver._hear("n1", stream_pb2.Batch(ledger=bad), None)
    assert receiver.malformed == 3
    assert fleet.ledgers.total().accounts == {}
