"""Nodes are judged by what they host: weights and thresholds of the templates over the rules of their object."""

import pytest

from cotenant.analyzer import variants
from cotenant.analyzer.fleet import Fleet
from cotenant.analyzer.rulebook import Rulebook
from cotenant.api import report
from cotenant.detect import presets, templates
from cotenant.model import sample
from cotenant.units.clock import ManualClock


def stalled(node: str, uptime_s: float, ratio: float = 0.07) -> sample.Sample:
    """Return a sample whose online work waits for memory: too much for redis, not for others."""
    return sample.Sample(
        node=node,
        boot_id="b",
        uptime_s=uptime_s,
        time="2026-11-30T00:00:00Z",
        period_s=1.0,
        online=sample.Online(psi=sample.CgroupPsi(memory_some_ratio=ratio, memory_full_ratio=0.0)),
    )


def facts(*types: str) -> report.NodeFacts:
    return report.NodeFacts(mode="observe", workload_types=list(types))


def triggered(fleet: Fleet, node: str) -> bool | None:
    found = fleet.nodes[node].evaluation
    assert found is not None
    return found.detections["memoryPressure"].triggered


def test_what_hurts_redis_hurts_nobody_else(fleet: Fleet) -> None:
    for second in range(15):
        fleet.hear("r", [stalled("r", 100.0 + second)], facts("redis", "batch"))
        fleet.hear("w", [stalled("w", 100.0 + second)], facts("web"))
    assert triggered(fleet, "r") is True
    assert triggered(fleet, "w") is False
    assert fleet.rules_of("r").detections["memoryPressure"].weight == 0.35
    assert fleet.rules_of("w") is fleet.rules_of("somebody")


def test_what_is_known_of_a_node_goes_with_it_when_the_mix_changes(fleet: Fleet) -> None:
    for second in range(15):
        fleet.hear("r", [stalled("r", 100.0 + second)], facts("redis"))
    assert triggered(fleet, "r") is True
    fleet.hear("r", [stalled("r", 115.0)], facts("redis", "search"))
    assert triggered(fleet, "r") is True, "the window is full at once, and what was triggered stays so"
    fleet.hear("r", [stalled("r", 116.0)], facts())
    assert triggered(fleet, "r") is True, "by the rules of all it ends like any other: after a while"
    for second in range(40):
        fleet.hear("r", [stalled("r", 117.0 + second)], facts())
    assert triggered(fleet, "r") is False


def test_a_change_of_the_object_or_of_the_templates_reaches_every_mix(clock: ManualClock) -> None:
    book = Rulebook()
    book.hosts("n", ["redis"])
    first = book.engine_for("n", {})
    value = {
        "apiVersion": "cotenant.io/v1alpha1",
        "kind": "DetectionRuleConfig",
        "metadata": {"name": "default", "generation": 2},
        "spec": {"windowSeconds": 20},
    }
    book.put(value)
    assert book.engine_for("n", {}) is first
    assert first.in_force.window_seconds == 20
    assert first.in_force.detections["memoryPressure"].weight == 0.35
    book.take_templates({"redis": templates.Template(name="redis", weights={"memoryPressure": 0.9})})
    assert book.rules_for("n", {}).detections["memoryPressure"].weight == 0.9


def test_a_node_that_is_gone_is_forgotten(clock: ManualClock) -> None:
    book = Rulebook()
    book.hosts("n", ["redis"])
    engine = book.engine_for("n", {})
    engine.evaluate(stalled("n", 1.0))
    book.forget("n")
    assert "n" not in engine._nodes
    assert book.rules_for("n", {}) == presets.get()


def test_engines_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "MAX_VARIANTS", 2)
    known = {str(n): templates.Template(name=str(n), weights={"memoryPressure": n / 10}) for n in range(1, 6)}
    book = Rulebook(known=known)
    for number in range(1, 6):
        book.hosts(f"n{number}", [str(number)])
    weights = [book.rules_for(f"n{number}", {}).detections["memoryPressure"].weight for number in range(1, 6)]
    own = presets.get().detections["memoryPressure"].weight
    assert weights == [0.1, 0.2, own, own, own]
