"""Latency of services by a query to a real Prometheus: numbers, buckets and native histograms, and what is unknown."""

import json
import pathlib
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from tests.api.test_exposition import delimited
from tests.prometheus import servers
from tests.prometheus.servers import DEADLINE_SECONDS, Prometheus
from tests.waiting import await_true

from cotenant.api import exposition
from cotenant.api.v1 import exposition_pb2 as wire
from cotenant.latency import configuration
from cotenant.latency.errors import NothingFound, Unreadable
from cotenant.latency.prometheus import Server
from cotenant.latency.watching import PrometheusReading
from cotenant.model.latency import P99, P999

pytestmark = pytest.mark.real

SAMPLE_SUM, TYPE_HISTOGRAM = b"\x11", b"\x18\x04"
"""Fields of the form that Prometheus needs and we do not read: numbers 2 of a histogram, 3 of a family."""
BUCKETS = "sum by (le) (rate(shop_seconds_bucket[30s]))"


class Native:
    """A page in protobuf with a native histogram that grows by 1,000 requests at each look."""

    def __init__(self) -> None:
        self._looks = 0

    def page(self) -> bytes:
        self._looks += 1
        n = self._looks
        histogram = wire.ExposedHistogram(
            sample_count=1000 * n,
            schema=3,
            zero_threshold=1e-9,
            positive_span=[wire.BucketSpan(offset=-30, length=2), wire.BucketSpan(offset=20, length=2)],
            positive_delta=[600 * n, -300 * n, -205 * n, -90 * n],  # 600, 300, 95, 5
        )
        histogram.MergeFromString(SAMPLE_SUM + struct.pack("<d", 100.0 * n))
        family = wire.MetricFamily(name="native_seconds", metric=[wire.Metric(histogram=histogram)])
        family.MergeFromString(TYPE_HISTOGRAM)
        return delimited(family)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory, shop: str) -> Iterator[Prometheus]:
    kind = f"{exposition.PROTOBUF_TYPE}; proto=io.prometheus.client.MetricFamily; encoding=delimited"
    with servers.page(Native().page, kind) as native:
        jobs = [servers.job("shop", shop), servers.job("native", native)]
        found = Prometheus(
            tmp_path_factory.mktemp("latency"), {"scrape_configs": jobs}, "--enable-feature=native-histograms"
        )
        try:
            found.await_scraped("shop", "native")
            yield found
        finally:
            found.stop()


def read_once(prometheus: Prometheus, **source: Any) -> PrometheusReading:
    """Return a reading that has just read a source."""
    reading = PrometheusReading(configuration.Prometheus(url=prometheus.url, **({"window_seconds": 30.0} | source)))
    reading.read(0.0)
    return reading


@pytest.mark.parametrize(
    ("query", "theirs"),
    [
        (BUCKETS, f"histogram_quantile(%s, {BUCKETS})"),
        ("sum(rate(native_seconds[30s]))", "histogram_quantile(%s, sum(rate(native_seconds[30s])))"),
    ],
    ids=["classic", "native"],
)
def test_quantiles_are_those_that_prometheus_itself_works_out(prometheus: Prometheus, query: str, theirs: str) -> None:
    """Both see all requests of a time, but not of the same: shares stay, so quantiles do."""
    await_true(lambda: prometheus.value(theirs % 0.99), "two samples", DEADLINE_SECONDS)
    reading = read_once(prometheus, query=query)
    quantiles, rate = reading.measured(1.0)
    for known in quantiles:
        # Prometheus 2 spreads the values of a native bucket evenly, as we do by the logarithm from version 3 on.
        near = 0.05 if "native" in query else 1e-6
        assert known.seconds == pytest.approx(prometheus.value(theirs % known.quantile), rel=near)
    assert rate is not None
    assert rate > 10


def test_numbers_of_two_queries(prometheus: Prometheus) -> None:
    theirs = f"histogram_quantile(%s, {BUCKETS})"
    await_true(lambda: prometheus.value(theirs % 0.99), "two samples", DEADLINE_SECONDS)
    quantiles, _ = read_once(prometheus, p99=theirs % 0.99, p999=theirs % 0.999).measured(1.0)
    found = {one.quantile: one for one in quantiles}
    assert 0.1 < (found[P99].seconds or 0) <= (found[P999].seconds or 0)
    assert [one.missing for one in found.values() if one.seconds is None] == ["not_enabled"]  # the median


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"query": "sum by (le) (rate(nothing_bucket[1m]))"}, "gives no series"),
        ({"p99": "nothing"}, "gives no series"),
        ({"p99": 'odd{kind="inf"}'}, "gives inf, which is no latency"),
        ({"p99": "-vector(1)"}, "gives -1, which is no latency"),
        ({"p99": "odd"}, "gives 2 series; aggregate"),
        ({"p99": "native_seconds"}, "gives a histogram"),
        ({"query": "sum(rate(shop_seconds_count[1m]))"}, r"keep the buckets: sum by \(le\)"),
        ({"query": "shop_seconds_bucket[1m]"}, "gives a matrix"),
        ({"query": "'text'"}, "gives a string"),
        ({"query": "sum("}, "400 Bad Request invalid parameter .* unclosed left parenthesis"),
        ({"query": "shop_seconds_bucket + on() kube_pod_info"}, "422 Unprocessable Entity found duplicate series"),
    ],
)
def test_what_is_no_latency_is_told_and_unknown(prometheus: Prometheus, source: dict[str, Any], said: str) -> None:
    reading = PrometheusReading(configuration.Prometheus(url=prometheus.url, **source))
    with pytest.raises(Unreadable, match=said) as raised:
        reading.read(0.0)
    quantiles, rate = reading.measured(1.0)
    assert rate is None
    reason = "not_running" if isinstance(raised.value, NothingFound) else "first_sample"
    assert {(one.seconds, one.missing) for one in quantiles} == {(None, reason)}


def test_not_a_number_is_too_few_requests(prometheus: Prometheus) -> None:
    quantiles, _ = read_once(prometheus, p99='odd{kind="nan"}').measured(1.0)
    assert [(one.seconds, one.missing) for one in quantiles if one.quantile == P99] == [(None, "too_few")]


def test_infinite_numbers_over_time_are_left_out(prometheus: Prometheus) -> None:
    await_true(lambda: prometheus.value('count_over_time(odd{kind="inf"}[1m])'), "a sample", DEADLINE_SECONDS)
    now = prometheus.value("vector(time())") or 0
    stretches = Server(prometheus.url).range("odd or up", now - 60, now, 1)
    points = {one.labels.get("kind", "up"): one.points for one in stretches}
    assert points["inf"] == points["nan"] == []
    assert points["up"]


def test_up_tells_it_again_to_prometheus(prometheus: Prometheus, tmp_path: pathlib.Path) -> None:
    entry = {"name": "shop", "prometheus": {"url": prometheus.url, "query": BUCKETS, "windowSeconds": 30}}
    (tmp_path / "latency.json").write_text(json.dumps({"services": [entry]}))
    up = servers.cotenant(
        *(tmp_path / "up.log", "up", "--port=0", f"--data={tmp_path}/data", f"--latency={tmp_path}/latency.json")
    )
    own = None
    try:
        own = Prometheus(tmp_path / "own", {"scrape_configs": [servers.job("up", servers.url_printed(up))]})
        query = 'cotenant_service_latency_seconds{service="shop", quantile="0.99"}'
        await_true(lambda: own.value(query), "the latency", DEADLINE_SECONDS)
        assert 0.5 < (own.value(query) or 0) < 10
        assert own.value('cotenant_service_latency_failed{service="shop"}') == 0
    finally:
        up.stop()
        if own is not None:
            own.stop()
