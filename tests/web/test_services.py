"""Online services on the page, in the API and in /metrics."""

import httpx
import msgspec
import pytest
from tests.web.conftest import FakeFeed

from cotenant.model.latency import P50, P99, P999, Quantile, ServiceLatency

SHOP = ServiceLatency(
    service="shop",
    source="log",
    observed_at="2026-11-30T00:00:10Z",
    requests_per_sec=120.0,
    quantiles=(
        Quantile(quantile=P50, seconds=0.004, window_seconds=10),
        Quantile(quantile=P99, seconds=0.0125, window_seconds=10),
        Quantile(quantile=P999, seconds=2.5, window_seconds=60, at_least=True),
    ),
)
PAY = ServiceLatency(
    service="pay",
    source="scrape",
    quantiles=tuple(Quantile(quantile=q, missing="stale") for q in (P50, P99, P999)),
    error="http://127.0.0.1:1/metrics: Connection refused",
)


@pytest.fixture
def watched(feed: FakeFeed) -> FakeFeed:
    assert feed.moment is not None
    feed.moment = msgspec.structs.replace(feed.moment, latencies=(PAY, SHOP))
    return feed


async def test_the_page_shows_each_service_and_why_one_is_unknown(watched: FakeFeed, client: httpx.AsyncClient) -> None:
    text = (await client.get("/")).text
    assert 'id="services"' in text
    assert '<th scope="row" class="text">shop</th><td>4 ms</td><td>12.5 ms</td><td>≥ 2.5 s</td><td>120/s</td>' in text
    assert "<td>–</td><td>–</td><td>–</td><td>–</td>" in text
    assert "Connection refused" in text
    assert 'data-names="latency.pay.p99_usec latency.shop.p99_usec"' in text


async def test_without_services_there_is_no_section_and_no_series(client: httpx.AsyncClient) -> None:
    assert 'id="services"' not in (await client.get("/")).text
    assert "cotenant_service" not in (await client.get("/metrics")).text
    assert (await client.get("/api/v1/latency")).json() == {"services": []}


async def test_metrics_have_no_series_for_what_is_unknown(watched: FakeFeed, client: httpx.AsyncClient) -> None:
    text = (await client.get("/metrics")).text
    assert 'cotenant_service_latency_seconds{quantile="0.99",service="shop"} 0.0125' in text
    assert 'cotenant_service_latency_beyond_buckets{quantile="0.999",service="shop"} 1.0' in text
    assert 'cotenant_service_requests_per_second{service="shop"} 120.0' in text
    assert 'cotenant_service_latency_failed{service="pay"} 1.0' in text
    assert 'cotenant_service_latency_seconds{quantile="0.99",service="pay"}' not in text


async def test_the_api_keeps_the_reason(watched: FakeFeed, client: httpx.AsyncClient) -> None:
    pay, shop = (await client.get("/api/v1/latency")).json()["services"]
    assert pay["quantiles"][1] == {
        "quantile": 0.99, "seconds": None, "window_seconds": None, "at_least": False, "missing": "stale",
    }  # fmt: skip
    assert shop["quantiles"][2]["at_least"] is True
