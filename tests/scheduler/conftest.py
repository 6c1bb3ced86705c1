"""An extender over the fixture reports, at a time when they hold, and the fixture requests."""

import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from tests.kube.conftest import api, client

from cotenant.api import timestamp
from cotenant.scheduler.extender import Extender
from cotenant.scheduler.metrics import Metrics
from cotenant.scheduler.rules import Rules
from cotenant.scheduler.source import FileSource
from cotenant.units.clock import ManualClock

__all__ = ["api", "client"]

FIXTURES = pathlib.Path(__file__).parent.parent / "fixtures" / "extender"
NOW = timestamp.parse("2026-11-30T00:10:00Z")

MakeExtender = Callable[..., Extender]


@pytest.fixture
def clock() -> ManualClock:
    assert NOW is not None
    return ManualClock(wall=NOW)


@pytest.fixture
def make_extender(clock: ManualClock) -> MakeExtender:
    def make(reports: str | pathlib.Path = "reports.json", objects: str | None = None, **rules: Any) -> Extender:
        source = FileSource(FIXTURES / reports, FIXTURES / objects if objects else None)
        return Extender(source, Rules(**rules), clock, Metrics())

    return make


@pytest.fixture
def request_body() -> Callable[[str], bytes]:
    return lambda name: (FIXTURES / f"{name}.json").read_bytes()


@pytest.fixture
def write_reports(tmp_path: pathlib.Path) -> Callable[[dict[str, dict[str, Any]]], pathlib.Path]:
    """Write reports by node from their status; ``expiresAt`` is in the future unless given."""

    def write(statuses: dict[str, dict[str, Any]]) -> pathlib.Path:
        items = [
            {"metadata": {"name": node}, "status": {"expiresAt": "2026-11-30T00:30:00Z", **status}}
            for node, status in statuses.items()
        ]
        path = tmp_path / "reports.json"
        path.write_text(json.dumps({"kind": "List", "items": items}))
        return path

    return write
