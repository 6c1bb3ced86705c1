from fractions import Fraction

import pytest

from cotenant.model.node import Node
from cotenant.node.policy import Policy

FALLBACK = Node(capacity_millicores=2000, capacity_memory_bytes=1 << 30)


@pytest.fixture
def kept() -> Policy:
    return Policy("n1", "observe")


@pytest.mark.parametrize(
    ("label", "mode", "is_problem"),
    [("enforce", "enforce", False), ("dry-run", "dry-run", False), (None, "observe", False), ("on", "observe", True)],
)
def test_the_nodes_label_chooses_the_mode(kept: Policy, label: str | None, mode: str, is_problem: bool) -> None:
    kept.take_node({"metadata": {"labels": {} if label is None else {"cotenant.io/mode": label}}})
    assert kept.mode == mode
    assert ("mode" in kept.problems) == is_problem


def test_a_node_that_is_gone_falls_back_to_the_default_mode(kept: Policy) -> None:
    kept.take_node({"metadata": {"labels": {"cotenant.io/mode": "enforce"}}})
    kept.take_node(None)
    assert kept.mode == "observe"


def test_a_bad_policy_keeps_the_last_good_one_and_says_so(kept: Policy) -> None:
    kept.take_slo({"kind": "NodeSLO", "spec": {"resourceUsedThresholdWithBE": {"enable": True}}})
    good = kept.slo
    kept.take_slo({"kind": "NodeSLO", "spec": {"resourceUsedThresholdWithBE": "yes"}})
    assert kept.slo is good
    assert "nodeslo/n1" in kept.problems["slo"]
    kept.take_slo({"kind": "NodeSLO", "spec": {}})
    assert not kept.problems


def test_no_policy_asks_for_nothing(kept: Policy) -> None:
    kept.take_slo({"kind": "NodeSLO", "spec": {}})
    kept.take_slo(None)
    assert kept.slo is None


def test_capacity_and_reservations_come_from_the_node(kept: Policy) -> None:
    assert kept.node(FALLBACK) is FALLBACK
    kept.take_node({"metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "8", "memory": "16Gi"}}})
    assert kept.node(FALLBACK).capacity_millicores == 8000
    kept.take_node({"metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "eight"}}})
    assert kept.node(FALLBACK) is FALLBACK
    assert "node" in kept.problems


def test_the_normalization_ratio_follows_the_annotation_and_a_wrong_one_is_named(kept: Policy) -> None:
    seen = []
    for text in ("1.25", "fast", None):
        annotations = {} if text is None else {"node.koordinator.sh/cpu-normalization-ratio": text}
        kept.take_node({"metadata": {"name": "n1", "annotations": annotations}})
        found = kept.node(FALLBACK)
        seen.append((found.cpu_normalization_ratio, "node" in kept.problems))
    assert seen == [(Fraction(5, 4), False), (1, True), (1, False)]
