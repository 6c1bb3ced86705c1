"""A Node's status on its way in: what the kubelet writes is multiplied, what was multiplied is not again."""

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.manager.webhook import node_status, patching, registration
from cotenant.manager.webhook.answering import Answering
from cotenant.manager.webhook.review import Request

RATIO = "node.koordinator.sh/resource-amplification-ratio"
RAW = "node.koordinator.sh/raw-allocatable"


def node(
    cpu: str = "4", memory: str = "8Gi", ratio: str | None = '{"cpu":1.5}', raw: str | None = None
) -> dict[str, Any]:
    annotations = {name: text for name, text in ((RATIO, ratio), (RAW, raw), ("theirs", "x")) if text is not None}
    return {
        "metadata": {"name": "n1", "annotations": annotations},
        "status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": "110"}, "phase": "x"},
    }


def allocatable(value: dict[str, Any]) -> dict[str, str]:
    return dict(value["status"]["allocatable"])


def test_what_the_kubelet_writes_is_multiplied_and_kept_as_it_was() -> None:
    found = node_status.amplified(node(), node(cpu="3"))
    assert allocatable(found) == {"cpu": "6", "memory": "8Gi", "pods": "110"}
    assert json.loads(found["metadata"]["annotations"][RAW]) == {"cpu": "4", "memory": "8Gi"}
    assert found["metadata"]["annotations"]["theirs"] == "x"


def test_a_write_of_another_part_of_the_status_multiplies_nothing_again() -> None:
    first = node_status.amplified(node(), node(cpu="3"))
    assert node_status.amplified(copy.deepcopy(first), first) == first


def test_the_kubelet_writes_the_machine_s_amount_again_and_a_machine_may_grow() -> None:
    first = node_status.amplified(node(), node(cpu="3"))
    again = copy.deepcopy(first)
    again["status"]["allocatable"]["cpu"] = "4"  # as the kubelet sees it, each ten seconds
    assert node_status.amplified(again, first) == first
    again["status"]["allocatable"]["cpu"] = "5500m"
    assert allocatable(node_status.amplified(again, first))["cpu"] == "8250m"
    again["status"] |= {"allocatable": {"cpu": "6"}, "capacity": {"cpu": "6"}}  # just what was shown before
    assert allocatable(node_status.amplified(again, first))["cpu"] == "9"


def test_another_ratio_counts_from_what_it_was() -> None:
    first = node_status.amplified(node(), node(cpu="3"))
    changed = copy.deepcopy(first)
    changed["metadata"]["annotations"][RATIO] = '{"cpu":2,"memory":1.1}'
    assert allocatable(node_status.amplified(changed, first)) == {"cpu": "8", "memory": "9448928052", "pods": "110"}


def test_whether_a_node_shows_what_it_should() -> None:
    found = node_status.amplified(node(), node(cpu="3"))
    notes = found["metadata"]["annotations"]
    assert node_status.is_amplified(notes, {**allocatable(found), "cpu": "6000m"})
    assert not node_status.is_amplified(notes, allocatable(node()))
    assert not node_status.is_amplified(node()["metadata"]["annotations"], allocatable(node()))
    assert node_status.is_amplified({RATIO: '{"cpu":"much"}', RAW: '{"cpu":"4"}'}, {"cpu": "4"})
    assert node_status.raw_of(notes) == {"cpu": "4", "memory": "8Gi"}
    assert node_status.raw_of({}) == {}


def test_without_a_ratio_that_can_be_read_nothing_changes() -> None:
    for ratio in (None, "{}", "{", '{"cpu":"much"}'):
        assert node_status.amplified(node(ratio=ratio), None) == node(ratio=ratio)
    assert allocatable(node_status.amplified(node(ratio='{"cpu":0.5}'), None))["cpu"] == "4"
    assert node_status.amplified({"metadata": {}}, None) == {"metadata": {}}


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 512_000), st.integers(100, 500), st.integers(1, 10))
def test_however_often_it_is_written_it_is_multiplied_once(millicores: int, percent: int, writes: int) -> None:
    value = node(cpu=f"{millicores}m", ratio=f'{{"cpu":{percent / 100}}}')
    found = node_status.amplified(value, node(cpu="1u"))
    for _ in range(writes):
        found = node_status.amplified(copy.deepcopy(found), found)
    shown = allocatable(found)["cpu"]
    amount = int(shown[:-1]) if shown.endswith("m") else int(shown) * 1000
    assert amount == max(millicores, -(-millicores * percent // 100))


async def test_the_answer_is_a_patch_of_the_status() -> None:
    answering = Answering(None, "preferred", "a/b")  # type: ignore[arg-type]
    request = Request(uid="u", operation="UPDATE", name="n1", object=node(), old_object=node(cpu="3"))
    answer = await answering.mutate_node_status(request)
    assert {one["path"] for one in answer.operations} == {
        "/metadata/annotations/node.koordinator.sh~1raw-allocatable", "/status/allocatable/cpu",
    }  # fmt: skip
    assert patching.difference(node(ratio=None), node_status.amplified(node(ratio=None), None)) == []


def test_only_amplified_nodes_are_asked_about_and_once() -> None:
    configs = {path: registration.by_url("https://x", path) for path in registration.PATHS}
    webhooks = registration.mutating("c", "cotenant-system", configs)["webhooks"]
    (found,) = (one for one in webhooks if one["name"] == "amplified.nodes.cotenant.io")
    assert found["objectSelector"] == {"matchLabels": {"cotenant.io/amplified": "true"}}
    assert (found["failurePolicy"], found["reinvocationPolicy"]) == ("Ignore", "Never")
    assert found["rules"][0]["resources"] == ["nodes/status"]
