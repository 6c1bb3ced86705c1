from typing import Any

import pytest

from cotenant.api.reading import row_of


def report(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "n1"}, "status": status}


def test_the_summary_and_what_names_no_node_are_no_rows() -> None:
    assert row_of({"metadata": {"name": "cluster"}, "status": {"nodes": []}}) is None
    assert row_of({}) is None
    assert row_of({"metadata": {"name": 3}}) is None


def test_the_node_is_the_one_in_the_spec() -> None:
    row = row_of({"metadata": {"name": "report-of-n1"}, "spec": {"nodeName": "n1"}})
    assert row is not None
    assert row.node == "n1"


@pytest.mark.parametrize("level", [None, "0.5", True, [], {}, float("nan"), float("inf")])
def test_a_level_that_is_no_number_is_unknown(level: Any) -> None:
    row = row_of(report(interferenceLevel=level))
    assert row is not None
    assert row.level is None


@pytest.mark.parametrize(
    ("level", "held"), [(0, 0.0), (1, 1.0), (-0.25, 0.0), (7, 1.0), (0.42, 0.42), pytest.param(10**400, 1.0, id="huge")]
)
def test_a_level_is_brought_into_range(level: float, held: float) -> None:
    row = row_of(report(interferenceLevel=level))
    assert row is not None
    assert row.level == held


@pytest.mark.parametrize("expires", [None, "", "soon", 12, "2026-11-30T00:30:00"])
def test_without_a_time_that_says_its_offset_a_report_has_expired(expires: Any) -> None:
    row = row_of(report(expiresAt=expires))
    assert row is not None
    assert row.expires_at == 0.0


def test_times_in_any_offset_and_precision() -> None:
    rows = [row_of(report(expiresAt=text)) for text in ("2026-11-30T00:30:00Z", "2026-11-30T08:30:00.000000000+08:00")]
    assert rows[0] is not None
    assert rows[1] is not None
    assert rows[0].expires_at == rows[1].expires_at == 1795998600.0


@pytest.mark.parametrize("hard", [None, "psiMemoryFull", {}, [], [3]])
def test_hard_limits_that_are_no_list_of_names_are_none(hard: Any) -> None:
    row = row_of(report(hard=hard))
    assert row is not None
    assert row.hard == ()
