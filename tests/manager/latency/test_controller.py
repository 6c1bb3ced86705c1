"""The controller against an API server's lists and real pages of metrics on loopback."""

import asyncio
import concurrent.futures
import dataclasses
from collections.abc import Iterator
from typing import Any

import msgspec
import prometheus_client
import pytest
from tests.latency.conftest import Server
from tests.manager.conftest import Cluster
from tests.waiting import PATIENCE_SECONDS, until

from cotenant.latency.errors import Unreadable
from cotenant.manager.controller import Settings
from cotenant.manager.latency import controller
from cotenant.manager.latency.controller import Latency
from cotenant.manager.latency.table import Source, Table
from cotenant.manager.latency.targets import PODS_LIMIT, PodObject
from cotenant.model.latency import P99

PODS = "api/v1/pods"
WEB_PODS = "api/v1/namespaces/web/pods"
SERVICES = "api/v1/services"
CONFIG = "api/v1/namespaces/cotenant-system/configmaps"


@pytest.fixture
def page() -> Iterator[Server]:
    found = Server()
    yield found
    found.close()


@pytest.fixture
def on(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(controller, "LIST_SECONDS", 60.0)
    monkeypatch.setattr(controller, "LEAST_LIST_SECONDS", 0.02)
    cluster.context = dataclasses.replace(cluster.context, settings=Settings(latency=True))
    for listed_at in (PODS, WEB_PODS, SERVICES, CONFIG):
        cluster.api.objects.setdefault(listed_at, {})
    return cluster


def add_pod(cluster: Cluster, page: Server, name: str, node: str, at: str = PODS, **annotations: str) -> None:
    port = page.url.rpartition(":")[2]
    said = {"prometheus.io/port": port, "prometheus.io/path": f"/{name}"}
    said |= {f"cotenant.io/latency-{key}": text for key, text in annotations.items()}
    metadata = {"namespace": "web", "uid": f"uid-{name}", "labels": {"app": "shop"}, "annotations": said}
    status = {"phase": "Running", "podIP": "127.0.0.1"}
    cluster.api.put(at, name, metadata=metadata, spec={"nodeName": node}, status=status)


def count(page: Server, pod: str, fast: int, slow: int = 0) -> None:
    lines = f's_bucket{{le="0.1"}} {fast}\ns_bucket{{le="1"}} {fast + slow}\ns_bucket{{le="+Inf"}} {fast + slow}\n'
    page.answers[f"/{pod}"] = (200, "text/plain", lines.encode())


def p99(table: Table, *nodes: str) -> dict[str, float | None]:
    found = table.over(nodes) if nodes else table.services()
    return {one.service: one.p99_seconds for one in found}


async def test_off_by_default_nothing_is_followed_or_read(cluster: Cluster) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        await Latency().run(cluster.context)
    assert cluster.api.requests == []
    assert cluster.context.latencies.services() == []


async def test_pods_are_read_and_told_by_service_and_by_node(on: Cluster, page: Server) -> None:
    for name, node in (("shop-a", "n1"), ("shop-b", "n2")):
        count(page, name, 0)
        add_pod(on, page, name, node, metric="s")
    add_pod(on, page, "other", "n1")
    table = on.context.latencies
    async with on.running(Latency(pause_seconds=0.02)):
        await until(lambda: page.counts()["/shop-a"] > 0 and page.counts()["/shop-b"] > 0)
        count(page, "shop-a", 1000)
        count(page, "shop-b", 0, slow=200)
        await until(lambda: (p99(table, "n2").get("web/shop") or 0) > 0.5)
        await until(lambda: p99(table, "n1").get("web/shop") is not None)  # scraped at times of its own
        assert p99(table, "n1")["web/shop"] == pytest.approx(0.099)
        assert (p99(table)["web/shop"] or 0) > 0.5
        assert p99(table, "n9")["web/shop"] is None
        assert page.counts()["/other"] == 0
        text = prometheus_client.generate_latest(on.context.metrics).decode()
        assert 'cotenant_service_latency_seconds{quantile="0.99",service="web/shop"}' in text
        assert 'cotenant_manager_latency_sources{state="read"} 2.0' in text


async def test_a_services_annotation_finds_its_pods_at_once(on: Cluster, page: Server) -> None:
    annotations = {"cotenant.io/latency-metric": "s"}
    metadata = {"namespace": "web", "annotations": annotations}
    on.api.put(SERVICES, "front", metadata=metadata, spec={"selector": {"app": "shop"}})
    count(page, "shop-a", 0)
    add_pod(on, page, "shop-a", "n1", at=WEB_PODS)
    async with on.running(Latency(pause_seconds=0.02)):
        await until(lambda: page.counts()["/shop-a"] > 0)
        count(page, "shop-a", 500)
        await until(lambda: p99(on.context.latencies).get("web/front") is not None)
    assert any(query.get("labelSelector") == "app=shop" for _, path, query in on.api.requests if path == WEB_PODS)


async def test_a_page_that_fails_and_an_annotation_that_is_none_are_told(on: Cluster, page: Server) -> None:
    add_pod(on, page, "shop-a", "n1", metric="s")
    add_pod(on, page, "shop-b", "n1", metric="s{")
    table = on.context.latencies
    async with on.running(Latency(pause_seconds=0.02)):
        await until(lambda: any(one.error for one in table.services()))
        (shop,) = table.services()
        assert "1 of 1 pods" in shop.error
        assert "404" in shop.error
        assert shop.at(P99).missing == "stale"
        assert "write METRIC" in table.problems["pod web/shop-b"]


QUERY = """
services:
- name: web/search
  prometheus: {url: '%s', query: 'sum by (le, node) (rate(s_bucket[1m]))'}
"""


async def test_queries_come_from_the_configmap_and_a_bad_one_keeps_the_last(on: Cluster, page: Server) -> None:
    rows = [("n1", "0.1", "50"), ("n1", "+Inf", "50"), ("n2", "0.1", "0"), ("n2", "1", "50"), ("n2", "+Inf", "50")]
    vector = ",".join(f'{{"metric":{{"node":"{node}","le":"{le}"}},"value":[1,"{value}"]}}' for node, le, value in rows)
    body = f'{{"status":"success","data":{{"resultType":"vector","result":[{vector}]}}}}'
    page.answers["/api/v1/query"] = (200, "application/json", body.encode())
    metadata = {"namespace": "cotenant-system"}
    on.api.put(CONFIG, "cotenant", metadata=metadata, data={"latency.yaml": QUERY % page.url})
    table = on.context.latencies
    async with on.running(Latency(pause_seconds=0.02)):
        await until(lambda: p99(table, "n1").get("web/search") is not None)
        assert p99(table, "n1")["web/search"] == pytest.approx(0.099)
        on.api.put(CONFIG, "cotenant", metadata=metadata, data={"latency.yaml": "services: [{name: x}]"})
        await until(lambda: table.problems)
        assert "give one of log, scrape, prometheus" in next(iter(table.problems.values()))
        assert list(table.queries) == ["web/search"]
        log = "services: [{name: x, log: {path: /x, pattern: '{seconds}'}}]"
        on.api.put(CONFIG, "cotenant", metadata=metadata, data={"latency.yaml": log})
        await until(lambda: "one host only" in str(table.problems))
        on.api.put(CONFIG, "cotenant", metadata=metadata, data={})
        await until(lambda: not table.queries and not table.problems)


def test_a_defect_while_reading_is_told_like_a_source_that_fails() -> None:
    class Broken:
        period_seconds = 1.0

        def __init__(self, error: Exception) -> None:
            self.error = error

        def read(self, now: float) -> None:
            raise self.error

        def measured(self, now: float) -> Any:
            raise AssertionError

    for error, said in ((Unreadable("no answer"), "no answer"), (RuntimeError("defect"), "RuntimeError: defect")):
        source = Source(Broken(error))
        controller.read_once(source, 0.0)
        assert source.error == said


async def test_a_round_ends_when_every_chosen_page_was_read(on: Cluster, page: Server) -> None:
    for n in range(30):
        count(page, f"shop-{n}", 0)
        add_pod(on, page, f"shop-{n}", f"n{n}", metric="s")
    one = Latency()
    pods = {f"web/{name}": msgspec.convert(value, PodObject) for name, value in on.objects(PODS).items()}
    one._pods.replaced(pods)
    on.context.latencies.start(on.clock)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        await one.round(on.context, pool)
    assert len(page.seen) == PODS_LIMIT == len(on.context.latencies.pods)
    assert all(source.seen_wall is not None for source in on.context.latencies.pods.values())
