"""Nodes as the API server gives them."""

import json
from fractions import Fraction
from typing import Any

import msgspec
import pytest

from cotenant.manager.overcommit import names, nodes
from cotenant.model import node

GIB = 1 << 30


def read(annotations: dict[str, Any] | None = None, **status: dict[str, str]) -> nodes.NodeFacts:
    texts = {name: said if isinstance(said, str) else json.dumps(said) for name, said in (annotations or {}).items()}
    value = {
        "metadata": {"name": "n1", "uid": "u", "labels": {"zone": "a"}, "annotations": texts},
        "status": {
            "capacity": {"cpu": "100", "memory": "100Gi", **status.get("capacity", {})},
            "allocatable": {"cpu": "98", "memory": "96Gi", **status.get("allocatable", {})},
            "images": [{"names": ["x"]}],
        },
    }
    return nodes.decode(msgspec.convert(value, nodes.NodeObject))


def test_what_the_kubelet_keeps_is_reserved() -> None:
    found = read()
    assert found.capacity == {"cpu": 100_000, "memory": 100 * GIB}
    assert found.reserved == {"cpu": 2_000, "memory": 4 * GIB}
    assert found.published == {}


def test_the_larger_reservation_counts() -> None:
    annotation = {"resources": {"cpu": "6", "memory": "1Gi"}}
    found = read({"node.koordinator.sh/reservation": annotation})
    assert found.reserved == {"cpu": 6_000, "memory": 4 * GIB}


def test_an_amplified_node_reserves_what_it_did_before() -> None:
    found = read({node.RAW_ALLOCATABLE_ANNOTATION: {"cpu": "95"}}, allocatable={"cpu": "142"})
    assert found.reserved["cpu"] == 5_000


def test_a_node_of_which_nothing_can_be_allocated_is_all_reserved() -> None:
    assert read(allocatable={"cpu": "0", "memory": "0"}).reserved == {"cpu": 100_000, "memory": 100 * GIB}


def test_more_than_the_capacity_is_no_reservation() -> None:
    assert read(allocatable={"cpu": "101", "memory": "1Ti"}).reserved == {"cpu": 0, "memory": 0}


@pytest.mark.parametrize(
    ("text", "ratio"),
    [("1.15", Fraction(23, 20)), ("0.8", 1), ("fast", 1), ("1.00", 1), ("nan", 1), ("inf", 1), ("50", 1)],
)
def test_the_normalization_ratio(text: str, ratio: Fraction) -> None:
    assert read({node.CPU_NORMALIZATION_ANNOTATION: text}).amplification == ratio


def test_what_is_published_and_whether_it_is_whole() -> None:
    cpu, memory = names.BATCH["cpu"], names.BATCH["memory"]
    found = read(capacity={cpu: "42k", memory: "1Gi"}, allocatable={cpu: "42000", memory: "2Gi", "hugepages-2Mi": "0"})
    assert found.published == {cpu: 42_000, memory: 2 * GIB}
    assert found.torn == {memory}


def test_what_others_gave_out_is_added_up_by_resource() -> None:
    said = {
        "allocations": [
            {"name": "hadoop-yarn", "priority": "koord-batch", "resources": {names.BATCH["cpu"]: "10000"}},
            {"name": "other", "priority": "koord-batch", "resources": {names.BATCH["cpu"]: "5k", "cpu": "3"}},
        ]
    }
    assert read({names.THIRD_PARTY_ANNOTATION: said}).third_party == {names.BATCH["cpu"]: 15_000}


def test_others_never_give_back_what_they_did_not_get() -> None:
    said = {"allocations": [{"resources": {names.BATCH["cpu"]: "-1000"}}]}
    assert read({names.THIRD_PARTY_ANNOTATION: said}).third_party == {names.BATCH["cpu"]: 0}


@pytest.mark.parametrize(
    "annotation",
    [
        {names.THIRD_PARTY_ANNOTATION: "{"},
        {names.THIRD_PARTY_ANNOTATION: {"allocations": [{"resources": {names.BATCH["cpu"]: "many"}}]}},
        {"node.koordinator.sh/reservation": "{"},
        {node.RAW_ALLOCATABLE_ANNOTATION: "[]"},
    ],
)
def test_what_must_not_be_guessed_is_an_error_that_names_the_node(annotation: dict[str, Any]) -> None:
    with pytest.raises(nodes.BadNode, match="node/n1"):
        read(annotation)


def test_a_node_that_has_not_registered_yet_is_an_error() -> None:
    with pytest.raises(nodes.BadNode, match="capacity"):
        nodes.decode(msgspec.convert({"metadata": {"name": "n1"}}, nodes.NodeObject))
