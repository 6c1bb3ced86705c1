"""All programs, scraped by a real Prometheus: every series is held, every query answered, latency read back."""

import json
import re
import urllib.request
from collections.abc import Iterable
from typing import Any

import msgspec
import promql_parser
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as text_families
from tests.charts.test_monitoring import queries
from tests.manager.rollout.test_gates import asked, view
from tests.prometheus.conftest import World
from tests.prometheus.servers import DEADLINE_SECONDS, Labels
from tests.waiting import await_true

import dashboards
from cotenant.api.rollout import Gates
from cotenant.latency import configuration
from cotenant.latency.watching import PrometheusReading
from cotenant.manager.latency.table import Source, Table
from cotenant.manager.rollout import gates
from cotenant.model.latency import P99
from cotenant.units.clock import SystemClock

pytestmark = pytest.mark.real

ACCEPT = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
"""As Prometheus 2.42 asks."""
PROGRAMS = ("up", "node", "analyzer", "scheduler", "verdicts", "manager")
TARGET = frozenset({"instance", "job", "namespace", "pod", "container", "endpoint", "service", "node"})
NOTHING_TO_SHOW = frozenset(
    {
        "cotenant_node_plan_items_total",  # nothing is planned where no pod runs
        "cotenant_scheduler_nodes_refused_total",  # nobody asks the extender
        "cotenant_webhook_requests_total",  # nor the webhook
        "cotenant_webhook_unmutated_pods",
        "cotenant_rollout_changed_nodes",  # there is no rollout
        "cotenant_rollout_nodes",
    }
)
"""Metrics that have no series here."""


def served(address: str, accept: str = ACCEPT) -> tuple[set[Labels], str]:
    """Return the series of a page, each as its labels and name, and the page's type."""
    place = address if "://" in address else f"http://{address}"
    request = urllib.request.Request(f"{place}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=60) as answer:
        text, kind = answer.read().decode(), answer.headers["Content-Type"]
    families = openmetrics_families(text) if "openmetrics" in kind else text_families(text)
    found = [frozenset({**one.labels, "__name__": one.name}.items()) for family in families for one in family.samples]
    assert len(set(found)) == len(found), "a series is there twice"
    return set(found), kind


def own_labels(labels: Iterable[tuple[str, str]]) -> Labels:
    """Return the labels that are not the target's; to Prometheus an empty one is none."""
    return frozenset((name, value) for name, value in labels if value and name not in TARGET)


@pytest.mark.parametrize("job", PROGRAMS)
def test_every_series_is_there(world: World, job: str) -> None:
    prometheus = world.prometheus
    missing: set[Labels] = set()

    def all_there() -> bool:
        """Return whether all that a page has now is held; groups come and go, so the page is read anew each time."""
        nonlocal missing
        wanted, _ = served(world.pages[job])
        held = [one["metric"] for one in prometheus.query(f'{{job="{job}"}}')]
        missing = {own_labels(one) for one in wanted} - {own_labels(one.items()) for one in held}
        return not missing

    try:
        await_true(all_there, f"the series of {job}", DEADLINE_SECONDS)
    except AssertionError as error:
        raise AssertionError(f"{error}: {sorted(map(sorted, missing))[:5]}") from None
    kept, taken = (
        prometheus.value(f'{name}{{job="{job}"}}')
        for name in ("scrape_samples_post_metric_relabeling", "scrape_samples_scraped")
    )
    assert kept == taken
    assert (kept or 0) > 10
    assert prometheus.targets()[job]["lastError"] == ""


def test_one_page_is_the_same_in_both_formats(world: World) -> None:
    text, kind = served(world.pages["scheduler"], "text/plain;version=0.0.4")
    assert kind.startswith("text/plain")
    assert text
    for job in ("up", "node"):
        found, kind = served(world.pages[job])
        assert kind.startswith("application/openmetrics-text; version=1.0.0")
        plain, kind = served(world.pages[job], "text/plain;version=0.0.4")
        assert kind.startswith("text/plain; version=0.0.4")
        names = {dict(one)["__name__"] for one in found & plain}
        assert "cotenant_memory_available_ratio" in names


def test_a_label_that_a_target_has_too_keeps_what_the_program_says(world: World) -> None:
    prometheus = world.prometheus
    found = prometheus.query("cotenant_offline_asked_core_seconds_total")
    assert {one["metric"]["namespace"] for one in found} == {"shop"}
    services = 'cotenant_service_latency_seconds{job="manager", quantile="0.99"}'
    await_true(lambda: prometheus.query(services), "latency from the manager", DEADLINE_SECONDS)
    assert {one["metric"]["service"] for one in prometheus.query(services)} == {"shop/front"}
    for name in ("namespace", "service", "pod", "node", "endpoint", "container"):
        assert prometheus.query(f'{{exported_{name}!=""}}') == []


def metrics_of(expression: str) -> set[str]:
    """Return the metrics that an expression asks for."""
    found: set[str] = set()

    def visit(node: Any) -> None:
        selector = node.vector_selector if isinstance(node, promql_parser.MatrixSelector) else node
        if isinstance(selector, promql_parser.VectorSelector):
            found.add(selector.name)

    promql_parser.walk(promql_parser.parse(expression), visit)
    return found


def asked_of(query: str) -> str:
    """Return a query as Grafana sends it for all nodes."""
    return query.replace("$node", ".*")


@pytest.mark.parametrize("query", sorted({query for _, query in queries()}))
def test_it_is_answered_and_where_there_is_data_with_some(world: World, query: str) -> None:
    prometheus = world.prometheus
    prometheus.query(asked_of(query))
    compares = re.search(r"[<>]|==", query) is not None  # gives what is past a limit, and at best nothing is
    if not compares and not metrics_of(query) & NOTHING_TO_SHOW:
        await_true(lambda: prometheus.query(asked_of(query)), f"series of {query}", DEADLINE_SECONDS)


def legends() -> list[tuple[str, str]]:
    return sorted(
        {
            (query.expr, query.legend)
            for name in dashboards.NAMES
            for panel in dashboards.read(name).panels
            for query in panel.queries
            if "{{" in query.legend
        }
    )


@pytest.mark.parametrize(("query", "legend"), legends())
def test_a_legend_names_labels_that_the_series_have(world: World, query: str, legend: str) -> None:
    wanted = set(re.findall(r"\{\{\s*(\w+)\s*\}\}", legend)) - {"class"}  # of a group whose class is not known: none
    for one in world.prometheus.query(asked_of(query)):
        assert wanted <= set(one["metric"]), one


def table_of(world: World) -> Table:
    """Return what a manager knows of the shop, read by the entry that the running one has."""
    (service,) = configuration.parse(world.latency, "latency.yaml")
    assert service.prometheus is not None
    reading = PrometheusReading(service.prometheus)
    clock = SystemClock()
    reading.read(clock.monotonic())
    table = Table()
    table.start(clock)
    table.queries = {service.name: Source(reading)}
    return table


def test_a_gate_asks_for_the_nodes_of_its_stage_alone(world: World) -> None:
    """The fast pod is on n1 and the slow one on n2: a gate that is about n1 passes, one that is about n2 fails."""
    ready = "count(rate(shop_seconds_bucket[30s]))"
    await_true(lambda: world.prometheus.value(ready), "two samples", DEADLINE_SECONDS)
    table, spec = table_of(world), {"maxSeconds": 1.0}
    gate = msgspec.convert({"onlineLatency": spec}, Gates).online_latency
    assert gate is not None
    found = {}
    for name in ("n1", "n2"):
        known, beyond = gates.measured(gate, table.over({name}))
        found[name] = asked("onlineLatency", spec, view(name), now=known, beyond=beyond)
    assert {name: one.state for name, one in found.items()} == {"n1": "passing", "n2": "failing"}, found
    (nobody,) = table.over({"n3"})
    assert nobody.at(P99).seconds is None


def test_the_manager_that_runs_tells_it(world: World) -> None:
    def told() -> dict[str, Any]:
        with urllib.request.urlopen(f"{world.pages['manager']}/api/v1/latency", timeout=60) as answer:
            return {one["service"]: one for one in json.load(answer)["services"]}

    def p99() -> float | None:
        quantiles = told().get("shop/front", {}).get("quantiles", [])
        return next((one["seconds"] for one in quantiles if one["quantile"] == P99), None)

    await_true(lambda: p99() is not None, "the manager's latency", DEADLINE_SECONDS)
    assert 0.5 < (p99() or 0) < 10
