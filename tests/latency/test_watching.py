import json
import pathlib
import threading

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from tests.latency.conftest import Server
from tests.waiting import PATIENCE_SECONDS

from cotenant.latency import configuration, watching
from cotenant.latency.errors import NothingFound
from cotenant.latency.watching import PrometheusReading, Watch, Watched
from cotenant.model.latency import P99, P999
from cotenant.units.clock import ManualClock


def test_a_log_from_its_lines_to_its_quantiles(tmp_path: pathlib.Path) -> None:
    path, clock = tmp_path / "access.log", ManualClock()
    path.touch()
    watched = Watched(configuration.of_log(f"shop={path}:rt={{seconds}}"), clock)
    assert watched.latency().at(P99).missing == "first_sample"
    watched.read()
    with path.open("a") as file:
        file.writelines("rt=0.010\n" for _ in range(990))
        file.writelines("rt=0.800\n" for _ in range(11))
    clock.advance(1)
    watched.read()
    seen = watched.latency()
    assert seen.source == "log"
    assert seen.p99_seconds == pytest.approx(0.8, rel=0.1)
    assert seen.at(P999).seconds == pytest.approx(0.8, rel=0.1)
    assert seen.requests_per_sec == pytest.approx(1001)
    assert seen.observed_at is not None
    clock.advance(30)  # the thread hangs: what was known is not passed off as now
    assert watched.latency().at(P99).missing == "stale"


def test_a_log_that_goes_keeps_what_is_known_until_it_is_stale(tmp_path: pathlib.Path) -> None:
    path, clock = tmp_path / "access.log", ManualClock()
    path.touch()
    watched = Watched(configuration.of_log(f"shop={path}:rt={{seconds}}"), clock)
    watched.read()
    path.write_text("rt=0.010\n" * 200)
    clock.advance(1)
    watched.read()
    path.unlink()
    clock.advance(1)
    watched.read()
    assert "No such file" in watched.latency().error
    assert watched.latency().p99_seconds is not None
    clock.advance(5)
    watched.read()
    assert watched.latency().at(P99).missing == "stale"
    assert watched.failures == 2


def test_a_scraped_histogram(server: Server) -> None:
    registry, clock = CollectorRegistry(), ManualClock()
    seconds = Histogram("shop_seconds", "x", ["path"], buckets=(0.01, 0.1, 1), registry=registry)
    scrape = configuration.Scrape(url=f"{server.url}/metrics", metric='shop_seconds{path="/a"}')
    watched = Watched(configuration.Service(name="shop", scrape=scrape), clock)

    def look() -> None:
        server.answers["/metrics"] = (200, "text/plain", generate_latest(registry))
        watched.read()
        clock.advance(5)

    seconds.labels("/a").observe(50)  # before the first look: not of this window
    look()
    for _ in range(200):
        seconds.labels("/a").observe(0.005)
        seconds.labels("/b").observe(5)
    look()
    assert watched.latency().p99_seconds == pytest.approx(0.0099)
    assert watched.latency().at(P999).missing == "too_few"
    assert "protobuf" in server.seen[0][1]["Accept"]
    server.answers["/metrics"] = (200, "text/plain", b"something else")
    watched.read()
    assert "no histogram shop_seconds" in watched.latency().error


def test_queries_by_node_and_numbers(server: Server) -> None:
    def vector(rows: list[tuple[dict[str, str], str]]) -> None:
        result = [{"metric": labels, "value": [1.0, value]} for labels, value in rows]
        body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()
        server.answers["/api/v1/query"] = (200, "application/json", body)

    by_node = PrometheusReading(configuration.Prometheus(url=server.url, query="sum by (le, node) (…)"))
    assert by_node.measured(0.0)[0][0].missing == "first_sample"
    counts = {"n1": ("100", "100", "100"), "n2": ("0", "100", "100")}
    bounds = ("0.1", "1", "+Inf")
    vector([({"node": n, "le": le}, c) for n, row in counts.items() for le, c in zip(bounds, row, strict=True)])
    by_node.read(10.0)
    p99 = {names: by_node.measured(10.0, names)[0][1].seconds for names in (("n1",), ("n2",), ("n1", "n2"), ("n9",))}
    assert p99[("n1",)] == pytest.approx(0.099)
    assert p99[("n2",)] == pytest.approx(0.991)
    assert p99[("n1", "n2")] == pytest.approx(0.982)
    assert p99[("n9",)] is None
    assert by_node.measured(100.0)[0][1].missing == "stale"
    numbers = PrometheusReading(configuration.Prometheus(url=server.url, p99="a"))
    vector([({}, "0.25")])
    numbers.read(0.0)
    _, p99_now, p999_now = numbers.measured(0.0)[0]
    assert p99_now.seconds == 0.25
    assert p999_now.missing == "not_enabled"
    assert numbers.measured(0.0, ["n1"])[0][1].missing == "unsupported"
    vector([])
    with pytest.raises(NothingFound):
        numbers.read(5.0)
    assert {one.missing for one in numbers.measured(5.0)[0]} == {"not_running"}
    vector([({"le": le}, "100") for le in bounds])
    by_node.read(200.0)
    assert by_node.measured(200.0)[0][1].seconds is not None
    assert by_node.measured(200.0, ["n1"])[0][1].missing == "unsupported"  # the query keeps no label node


def test_each_service_has_a_thread_of_its_own_that_ends(server: Server, tmp_path: pathlib.Path) -> None:
    server.answers["/metrics"] = (200, "text/plain", b'a_bucket{le="1"} 0\na_bucket{le="+Inf"} 0\n' + b"#" * 3000)
    server.drip_seconds = 0.02  # a minute for this page: the log must not wait for it
    (tmp_path / "log").touch()
    log = configuration.of_log(f"shop={tmp_path / 'log'}:{{seconds}}")
    scrape = configuration.Scrape(url=f"{server.url}/metrics", metric="a")
    watch = Watch([log, configuration.Service(name="pay", scrape=scrape)], ManualClock())
    ready = threading.Event()
    watch._watched[1].read = ready.set  # type: ignore[method-assign]
    watch.start()
    assert ready.wait(PATIENCE_SECONDS)
    watch.stop()
    assert [one.service for one in watch.services()] == ["pay", "shop"]
    assert watch.over(["anything"]) == watch.services()


def test_a_defect_while_reading_does_not_end_watching(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching.LogReading, "period_seconds", 0.001)
    watch = Watch([configuration.of_log(f"shop={tmp_path / 'x'}:{{seconds}}")], ManualClock())
    reads: list[int] = []
    done = threading.Event()

    def read() -> None:
        reads.append(1)
        if len(reads) > 2:
            done.set()
        raise RuntimeError("defect")

    watch._watched[0].read = read  # type: ignore[method-assign]
    watch.start()
    assert done.wait(PATIENCE_SECONDS)
    watch.stop()
