"""Every query of the dashboards and alerts parses, and asks for metrics and labels that exist."""

import ast
import json
import re
import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import promql_parser
import pytest
import yaml
from tests.charts.conftest import CHART, ROOT

import dashboards
from cotenant.detect import engine, presets
from cotenant.model import sample
from cotenant.web import ledger, sample_metrics

TARGET_LABELS = frozenset({"instance", "job", "namespace", "pod", "node", "le"})
"""What Prometheus adds by itself, or by the chart's monitors, and what every histogram has."""
PROCESS = {"process_cpu_seconds_total": frozenset[str](), "process_resident_memory_bytes": frozenset[str]()}
"""The client library's own collector."""
SUFFIXES = ("", "_total", "_bucket", "_sum", "_count", "_info")


def queries() -> Iterator[tuple[str, str]]:
    for name in dashboards.NAMES:
        for panel in dashboards.read(name).panels:
            for query in panel.queries:
                yield f"{name}: {panel.title}", query.expr
        for variable in dashboards.read(name).variables:
            yield f"{name}: ${variable.label}", variable.metric
    for alert in dashboards.read_alerts():
        yield alert.name, alert.expr


def filled(kind: Any) -> Any:
    """Return a value of a type with every number known."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind)
        return kind(**{field: filled(hints[field]) for field in kind.__struct_fields__})
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return filled(next(one for one in typing.get_args(kind) if one is not types.NoneType))
    origin = typing.get_origin(kind)
    if origin is typing.Literal:
        return typing.get_args(kind)[0]
    if origin is list:
        return [filled(typing.get_args(kind)[0])]
    if origin is dict:
        key, value = typing.get_args(kind)
        return {filled(key): filled(value)}
    return {bool: True, int: 1, float: 1.0, str: "x"}.get(kind)


def sample_families() -> dict[str, frozenset[str]]:
    """Return the metrics of a sample in which everything is known, with their labels."""
    taken = msgspec.structs.replace(filled(sample.Sample), time="2026-11-30T00:00:00Z", missing={})
    judged = engine.Engine(presets.get("default")).evaluate(taken)
    found: dict[str, frozenset[str]] = {}
    accounts = ledger.metrics_of({"x": ledger.Account()}, "namespace", 0.0)
    for family in [*sample_metrics.of_sample(taken, taken.cgroups), *sample_metrics.of_evaluation(judged), *accounts]:
        labels = frozenset(getattr(family, "_labelnames", ())) | ({family.name} if family.type == "stateset" else set())
        found[family.name] = labels
    return found


def literal(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def source_families() -> dict[str, frozenset[str]]:
    """Return the metrics that the code names literally, with the labels that are given in the same call."""
    found: dict[str, frozenset[str]] = {}
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text()
        if "cotenant_" not in text and "koordlet_" not in text:
            continue
        tree = ast.parse(text)
        for node in ast.walk(tree):
            name = literal(node)
            if name and name.startswith(("cotenant_", "koordlet_")):
                found.setdefault(name, frozenset())
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args):
            name = literal(call.args[0])
            if name not in found:
                continue
            given = [keyword.value for keyword in call.keywords if keyword.arg in ("labels", "labelnames")]
            given += [argument for argument in call.args[1:] if isinstance(argument, ast.List | ast.Tuple)]
            labels = [literal(one) for one in given if isinstance(one, ast.List | ast.Tuple) for one in one.elts]
            found[name] |= frozenset(label for label in labels if label)
    return found


@pytest.fixture(scope="module")
def families() -> dict[str, frozenset[str]]:
    found = source_families() | PROCESS
    for name, labels in sample_families().items():
        found[name] = found.get(name, frozenset()) | labels
    return found


def labels_of(families: dict[str, frozenset[str]], metric: str) -> frozenset[str] | None:
    """Return the labels of a metric as queries name it, or None where there is none."""
    for suffix in SUFFIXES:
        base = metric.removesuffix(suffix) if suffix else metric
        if base in families and (not suffix or metric.endswith(suffix)):
            return families[base]
    return None


@pytest.mark.parametrize(("place", "query"), list(queries()))
def test_a_query_asks_for_what_exists(families: dict[str, frozenset[str]], place: str, query: str) -> None:
    tree = promql_parser.parse(query)
    known: set[str] = set(TARGET_LABELS)
    grouped: set[str] = set()
    selectors: list[Any] = []

    def visit(node: Any) -> None:
        if isinstance(node, promql_parser.MatrixSelector):
            selectors.append(node.vector_selector)
        elif isinstance(node, promql_parser.VectorSelector):
            selectors.append(node)
        elif isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            grouped.update(node.modifier.labels)

    promql_parser.walk(tree, visit)
    assert selectors or "vector(" in query
    for selector in selectors:
        labels = labels_of(families, selector.name)
        assert labels is not None, f"{place}: no program has the metric {selector.name}"
        known |= labels
        asked = {matcher.name for matcher in selector.matchers.matchers}
        assert asked <= labels | TARGET_LABELS, f"{place}: {selector.name} has no {asked - labels - TARGET_LABELS}"
    assert grouped <= known, f"{place}: nothing there has {grouped - known}"


@pytest.mark.parametrize("name", dashboards.NAMES)
def test_a_dashboard_is_whole(name: str) -> None:
    page = json.loads((CHART / f"files/dashboards/{name}.json").read_text())
    panels = page["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 4
    cells = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"]) for panel in panels for x in range(panel["gridPos"]["w"])
    ]
    assert len(set(cells)) == len(cells), "panels overlap"
    assert max(x for x, _ in cells) < dashboards.COLUMNS
    variables = {variable["name"] for variable in page["templating"]["list"]}
    text = json.dumps(panels)
    assert ("$node" in text) <= ("node" in variables)


def test_alerts_say_what_to_do_and_are_a_rule_file() -> None:
    written = yaml.safe_load((CHART / "files/alerts.yaml").read_text())
    (group,) = written["groups"]
    names = [rule["alert"] for rule in group["rules"]]
    assert len(set(names)) == len(names) == len(dashboards.read_alerts())
    for rule in group["rules"]:
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["description"]


def test_the_runbook_has_a_part_for_each_alert_with_what_exists(families: dict[str, frozenset[str]]) -> None:
    text = (ROOT / "docs/runbook.md").read_text()
    rules = yaml.safe_load((CHART / "files/alerts.yaml").read_text())["groups"][0]["rules"]
    for rule, alert in zip(rules, dashboards.read_alerts(), strict=True):
        file, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert (ROOT / file).read_text() == text
        assert anchor == alert.name.lower()
        assert f"\n## {alert.name}\n" in text
        assert all((alert.means, alert.look, alert.act))
    named = set(re.findall(r"`[^`]*?(cotenant_[a-z_]+)", text))
    assert len(named) > 5
    assert sorted(metric for metric in named if labels_of(families, metric) is None) == []


def test_a_metric_that_does_not_exist_would_be_found(families: dict[str, frozenset[str]]) -> None:
    assert labels_of(families, "cotenant_analyzer_nodes") == {"bucket"}
    assert labels_of(families, "cotenant_scheduler_request_duration_seconds_bucket") == {"verb"}
    assert labels_of(families, "cotenant_analyzer_node") is None
    assert labels_of(families, "cotenant_cgroup_psi_cpu_some_ratio") == {"cgroup", "name", "class"}
