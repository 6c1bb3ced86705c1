"""Each gate by worked values: what passes, what fails, and what cannot be told."""

from typing import Any

import msgspec
import pytest

from cotenant.api import timestamp
from cotenant.api.report import AgentCounts, NodeCheck, NodeFacts
from cotenant.api.rollout import Gates, LatencyGate
from cotenant.manager.rollout import gates
from cotenant.manager.rollout.holding import Hold
from cotenant.manager.rollout.view import NodeView
from cotenant.model.latency import P99, Quantile, ServiceLatency

NOW = 1_800_007_200.0
MODE = "cotenant.io/mode"


def view(
    name: str = "n",
    level: float | None = 0.1,
    before: float | None = 0.1,
    counts: AgentCounts | None = AgentCounts(started_at="s"),
    **changes: Any,
) -> NodeView:
    """Return a node that was changed two hours ago and is well, but for what is given."""
    hold = Hold(
        rollout="r",
        uid="u",
        stage="s",
        at=timestamp.render(NOW - 7200),
        set={MODE: "enforce"},
        was={MODE: None},
        level=before,
        counts=AgentCounts(started_at="s", evictions=3, restore_failures=1),
    )
    facts = NodeFacts(mode="enforce", check=NodeCheck(irreversible=False), counts=counts)
    known: dict[str, Any] = {"interface": "mainline-idle", "facts": facts, "heard": True, "level": level}
    return NodeView(name=name, labels={MODE: "enforce"}, hold=hold, **(known | changes))


def asked(gate: str, spec: dict[str, Any], *nodes: NodeView, share: float = 0.1, **latency: Any) -> gates.Result:
    """Return what one gate says."""
    given = msgspec.convert({gate: spec}, Gates)
    found = gates.evaluate(given, nodes, gates.Latency(**({"now": {}, "before": {}} | latency)), share, NOW)
    return next(one for one in found if one.name == gate)


@pytest.mark.parametrize(
    ("spec", "levels", "state"),
    [
        ({"max": 0.5}, [0.5, 0.1], "passing"),
        ({"max": 0.5}, [0.51, 0.1], "failing"),
        ({"max": 0.5, "maxShare": 0.5}, [0.51, 0.1], "passing"),
        ({"max": 0.5}, [None, 0.1], "unknown"),
        ({"max": 0.5}, [None, 0.9], "failing"),
        ({"max": 0.5}, [None, *[0.1] * 9], "passing"),
        ({"maxIncrease": 0.2}, [0.3, 0.3], "passing"),
        ({"maxIncrease": 0.2}, [0.3, 0.4], "failing"),
        ({"max": 0.5}, [None], "unknown"),
    ],
)
def test_levels(spec: dict[str, Any], levels: list[float | None], state: str) -> None:
    found = asked("interferenceLevel", spec, *(view(f"n{n}", level) for n, level in enumerate(levels)))
    assert found.state == state, found


def test_a_rise_is_not_known_without_the_level_from_before() -> None:
    assert asked("interferenceLevel", {"maxIncrease": 0.2}, view(before=None)).state == "unknown"


@pytest.mark.parametrize(
    ("evictions", "started_at", "state", "value"),
    [(5, "s", "passing", 1.0), (6, "s", "failing", 1.5), (2, "later", "passing", 1.0), (3, "later", "failing", 1.5)],
)
def test_evictions_since_the_change_and_since_the_agent_s_restart(
    evictions: int, started_at: str, state: str, value: float
) -> None:
    counts = AgentCounts(started_at=started_at, evictions=evictions)
    found = asked("evictions", {"maxPerNodeHour": 1}, view(counts=counts))
    assert (found.state, found.value) == (state, value)


def test_a_moment_counts_as_an_hour() -> None:
    young = view(counts=AgentCounts(started_at="s", evictions=4))
    assert young.hold is not None
    young = NodeView(
        name="n", labels=young.labels, hold=msgspec.structs.replace(young.hold, at=timestamp.render(NOW)),
        facts=young.facts, heard=True,
    )  # fmt: skip
    assert asked("evictions", {"maxPerNodeHour": 1}, young).state == "passing"


def test_restore_failures_count_from_the_change_on() -> None:
    same = view(counts=AgentCounts(started_at="s", restore_failures=1))
    more = view(counts=AgentCounts(started_at="s", restore_failures=2))
    assert asked("restoreFailures", {}, same).state == "passing"
    assert asked("restoreFailures", {}, more).state == "failing"
    assert asked("restoreFailures", {"max": 1}, more).state == "passing"
    assert asked("restoreFailures", {}, view(counts=None)).state == "unknown"


def test_irreversible_writes_only_where_they_are_allowed() -> None:
    counts = AgentCounts(started_at="s", irreversible_writes=1)
    guilty = view("bad", counts=counts, interface="openeuler-qos-level")
    assert asked("irreversibleWrites", {}, view(), guilty).state == "failing"
    assert asked("irreversibleWrites", {"allowed": True}, guilty).state == "passing"
    allowed = {"allowedInterfaces": ["openeuler-qos-level"]}
    assert asked("irreversibleWrites", allowed, view(), guilty).state == "passing"
    assert asked("irreversibleWrites", allowed, view(counts=counts)).state == "failing"
    one_silent = [view(f"n{n}", interface="openeuler-qos-level") for n in range(20)]
    assert asked("irreversibleWrites", allowed, *one_silent, view(counts=None)).state == "unknown"


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "passing"),
        ({"heard": False}, "failing"),
        ({"facts": None}, "unknown"),
        ({"facts": NodeFacts(mode="observe")}, "unknown"),
        ({"facts": NodeFacts(mode="enforce", problems=["rounds of enforcement fail"])}, "failing"),
        ({"facts": NodeFacts(mode="enforce", check=NodeCheck(conflicts=["koordlet"]))}, "failing"),
    ],
)
def test_health(changes: dict[str, Any], state: str) -> None:
    assert asked("agentHealth", {}, view(**changes)).state == state


def test_health_of_many_allows_for_a_few() -> None:
    well = [view(f"n{n}") for n in range(19)]
    assert asked("agentHealth", {}, *well, view("sick", heard=False)).state == "passing"
    assert asked("agentHealth", {"minShare": 1}, *well, view("sick", heard=False)).state == "failing"


def test_no_changed_node_is_idle() -> None:
    assert asked("agentHealth", {}).state == "idle"


@pytest.mark.parametrize(
    ("spec", "now", "before", "state"),
    [
        ({"maxSeconds": 0.1}, {"a": 0.1}, {}, "passing"),
        ({"maxSeconds": 0.1}, {"a": 0.2}, {}, "failing"),
        ({"maxSeconds": 0.1}, {}, {}, "unknown"),
        ({"maxIncreaseRatio": 0.1}, {"a": 0.11}, {"a": 0.1}, "passing"),
        ({"maxIncreaseRatio": 0.1}, {"a": 0.12, "b": 1.0}, {"a": 0.1, "b": 1.0}, "failing"),
        ({"maxIncreaseRatio": 0.1}, {"a": 0.1}, {"a": 0.1, "b": 1.0}, "unknown"),
        ({"maxIncreaseRatio": 0.1}, {"a": 0.1}, {}, "unknown"),
        ({"maxIncreaseRatio": 0.1, "services": ["b"]}, {"a": 0.1}, {"a": 0.1}, "unknown"),
    ],
)
def test_latency(spec: dict[str, Any], now: dict[str, float], before: dict[str, float], state: str) -> None:
    assert asked("onlineLatency", spec, view(), now=now, before=before).state == state


@pytest.mark.parametrize(
    ("spec", "now", "before", "state"),
    [
        ({"maxSeconds": 0.1}, {"a": 0.05}, {}, "unknown"),
        ({"maxSeconds": 0.1}, {"a": 0.2}, {}, "failing"),
        ({"maxIncreaseRatio": 0.1}, {"a": 0.1}, {"a": 0.1}, "unknown"),
        ({"maxIncreaseRatio": 0.1}, {"a": 0.2}, {"a": 0.1}, "failing"),
    ],
)
def test_latency_beyond_the_last_bucket_can_fail_and_never_pass(
    spec: dict[str, Any], now: dict[str, float], before: dict[str, float], state: str
) -> None:
    assert asked("onlineLatency", spec, view(), now=now, before=before, beyond=frozenset("a")).state == state


def test_what_is_only_at_least_so_much_is_told_apart() -> None:
    services = [
        ServiceLatency(
            service=name, source="scrape", quantiles=(Quantile(quantile=P99, seconds=2.0, at_least=at_least),)
        )
        for name, at_least in (("exact", False), ("beyond", True))
    ]
    assert gates.measured(LatencyGate(), services) == ({"exact": 2.0, "beyond": 2.0}, {"beyond"})
