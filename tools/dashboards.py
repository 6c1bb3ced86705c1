"""Grafana dashboards and alerts of the chart, made from what ``dashboards/`` says: a title, queries, a unit.

Targets of the node agents carry the label ``node`` (the chart's PodMonitor sets it).
"""

import functools
import json
import pathlib
from collections.abc import Callable
from typing import Any

import msgspec
import yaml

SOURCES = pathlib.Path(__file__).resolve().parent.parent / "dashboards"
FOLDER = "charts/cotenant/files/dashboards"
ALERTS = "charts/cotenant/files/alerts.yaml"
BOOK = "docs/monitoring.md"
NAMES = ("cluster", "node", "workload", "incidents", "scheduling", "agent-cost")
COLUMNS, HEIGHT = 24, 8


class Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One query and how its series are named."""

    expr: str
    legend: str = ""


class Panel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One panel; ``width`` is in twenty-fourths of the page."""

    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    width: int = 12
    kind: str = "timeseries"
    text: str = ""


class Variable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A label whose values can be chosen, and a metric that has it."""

    label: str
    metric: str


class Dashboard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One page."""

    title: str
    text: str
    panels: tuple[Panel, ...]
    variables: tuple[Variable, ...] = ()


class Alert(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One alert: when, for how long, how bad, what it means and what to do."""

    name: str
    expr: str
    minutes: int
    severity: str
    summary: str
    remedy: str


def read(name: str) -> Dashboard:
    """Return one dashboard as written."""
    return msgspec.yaml.decode((SOURCES / f"{name}.yaml").read_bytes(), type=Dashboard)


def read_alerts() -> tuple[Alert, ...]:
    """Return the alerts as written."""
    return msgspec.yaml.decode((SOURCES / "alerts.yaml").read_bytes(), type=tuple[Alert, ...])


def dashboard(name: str) -> str:
    """Return the JSON of one dashboard."""
    page = read(name)
    panels: list[dict[str, Any]] = []
    x = y = 0
    for number, panel in enumerate(page.panels, start=1):
        if x + panel.width > COLUMNS:
            x, y = 0, y + HEIGHT
        panels.append(_panel(number, panel, x, y))
        x += panel.width
    body = {
        "uid": f"cotenant-{name}",
        "title": page.title,
        "description": page.text,
        "tags": ["cotenant"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_source(), *(_variable(variable) for variable in page.variables)]},
        "panels": panels,
    }
    return json.dumps(body, indent=1, ensure_ascii=False) + "\n"


def _source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _variable(variable: Variable) -> dict[str, Any]:
    return {
        "name": variable.label,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": f"label_values({variable.metric}, {variable.label})",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "sort": 1,
    }


def _panel(number: int, panel: Panel, x: int, y: int) -> dict[str, Any]:
    return {
        "id": number,
        "title": panel.title,
        **({"description": panel.text} if panel.text else {}),
        "type": panel.kind,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"h": HEIGHT, "w": panel.width, "x": x, "y": y},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": query.expr, "legendFormat": query.legend}
            for index, query in enumerate(panel.queries)
        ],
    }


def alerts() -> str:
    """Return the rule groups, as a PrometheusRule and Prometheus' own rule files have them."""
    rules = [
        {
            "alert": alert.name,
            "expr": alert.expr,
            "for": f"{alert.minutes}m",
            "labels": {"severity": alert.severity},
            "annotations": {"summary": alert.summary, "description": alert.remedy},
        }
        for alert in read_alerts()
    ]
    body = {"groups": [{"name": "cotenant", "rules": rules}]}
    text: str = yaml.safe_dump(body, sort_keys=False, width=1000, allow_unicode=True)
    return text


def book() -> str:
    """Return the page of dashboards and alerts."""
    pages = [(name, read(name)) for name in NAMES]
    lines = [
        "# Dashboards and alerts",
        "",
        "Generated from the folder `dashboards/`. With `monitoring.enabled` the [chart](helm.md) installs it for",
        "the Prometheus operator and Grafana's sidecar. Without them: scrape each program's `/metrics`, give the node",
        "agents' targets a label `node`, load `charts/cotenant/files/alerts.yaml` as a rule file, and import the JSON",
        "files.",
        "",
        "| dashboard | answers |",
        "|---|---|",
        *(f"| [{page.title}](../{FOLDER}/{name}.json) | {page.text} |" for name, page in pages),
        "",
        "## Alerts",
        "",
        "| alert | when | what to do |",
        "|---|---|---|",
        *(_row(alert) for alert in read_alerts()),
        "",
    ]
    return "\n".join(lines)


def _row(alert: Alert) -> str:
    return (
        f"| `{alert.name}` ({alert.severity}, {alert.minutes} min) | {_plain(alert.summary)} | {_plain(alert.remedy)} |"
    )


def _plain(text: str) -> str:
    for label in ("node", "limit", "cap", "namespace"):
        text = text.replace(f"{{{{ $labels.{label} }}}}", label.upper())
    return text


def files() -> dict[str, Callable[[], str]]:
    """Return the renderers by path, for the table of generated files."""
    pages: dict[str, Callable[[], str]] = {
        f"{FOLDER}/{name}.json": functools.partial(dashboard, name) for name in NAMES
    }
    return {**pages, ALERTS: alerts, BOOK: book}
