"""Online services on the fleet page, from a manager's answer."""

from collections.abc import Iterator

import msgspec
import prometheus_client
import pytest
from tests.analyzer.test_page import get
from tests.latency.conftest import Server

from cotenant.analyzer.fleet import Fleet
from cotenant.analyzer.page import KEPT_SECONDS as PAGE_SECONDS
from cotenant.analyzer.page import FleetSite
from cotenant.analyzer.services import KEPT_SECONDS, Services
from cotenant.model.latency import P99, Quantile, ServiceLatency
from cotenant.units.clock import ManualClock
from cotenant.web.guard import AllowedHosts

SHOP = ServiceLatency(service="web/shop", source="scrape", quantiles=(Quantile(quantile=P99, seconds=0.0125),))


@pytest.fixture
def manager() -> Iterator[Server]:
    found = Server()
    found.answers["/api/v1/latency"] = (200, "application/json", msgspec.json.encode({"services": [SHOP]}))
    yield found
    found.close()


async def test_a_manager_that_leads_is_shown_and_one_that_does_not_keeps_the_last(
    fleet: Fleet, clock: ManualClock, manager: Server
) -> None:
    services = Services(f"{manager.url}/api/v1/latency", clock)
    site = FleetSite(fleet, clock, AllowedHosts("127.0.0.1"), prometheus_client.CollectorRegistry(), services=services)
    assert "web/shop" not in (await get(site, "/")).text
    await services.ask()
    clock.advance(PAGE_SECONDS)
    assert '<th scope="row" class="text">web/shop</th><td>–</td><td>12.5 ms</td>' in (await get(site, "/")).text
    manager.answers["/api/v1/latency"] = (503, "application/json", b'{"error":"this replica does not lead"}')
    await services.ask()
    assert services.failures == 1
    assert len(services.rows()) == 1
    clock.advance(KEPT_SECONDS)
    assert services.rows() == []


async def test_an_answer_that_is_none_is_counted(clock: ManualClock, manager: Server) -> None:
    manager.answers["/api/v1/latency"] = (200, "application/json", b"<html>")
    services = Services(f"{manager.url}/api/v1/latency", clock)
    await services.ask()
    assert (services.failures, services.rows()) == (1, [])
