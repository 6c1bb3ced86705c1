"""What a hostile request may cost: its names are kept in decisions, and its values are all decoded at once."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from cotenant.api import extender_kube, extender_volcano, folding
from cotenant.api.errors import BadRequest
from cotenant.api.extender_bounds import NAME_CHARACTERS, NODES

Decode = Callable[[bytes], Any]
POD: dict[str, Any] = {"metadata": {"name": "web"}}
LONG = "x" * (NAME_CHARACTERS + 1)


def kube(pod: Any, *names: str) -> Any:
    return {"Pod": pod, "NodeNames": list(names)}


def preemption(pod: Any, *names: str) -> Any:
    return {"Pod": pod, "NodeNameToMetaVictims": {name: {"Pods": [{"UID": "v"}]} for name in names}}


def predicate(pod: Any, *names: str) -> Any:
    return {"task": {"Pod": pod}, "node": {"Name": names[0]}}


def prioritize(pod: Any, *names: str) -> Any:
    return {"task": {"Pod": pod}, "nodes": [{"Name": name} for name in names]}


VERBS = [
    (extender_kube.decode_args, kube),
    (extender_kube.decode_preemption, preemption),
    (extender_volcano.decode_predicate, predicate),
    (extender_volcano.decode_prioritize, prioritize),
]


@pytest.mark.parametrize(("decode", "request_of"), VERBS)
def test_names_longer_than_kubernetes_takes_are_refused(decode: Decode, request_of: Callable[..., Any]) -> None:
    decode(json.dumps(request_of(POD, LONG[1:])).encode())
    for part in ("name", "namespace", "uid"):
        with pytest.raises(BadRequest, match="more than 253 characters"):
            decode(json.dumps(request_of({"metadata": {part: LONG}}, "n1")).encode())
    with pytest.raises(BadRequest, match="more than 253 characters"):
        decode(json.dumps(request_of(POD, LONG)).encode())


@pytest.mark.parametrize(("decode", "request_of"), [*VERBS[:2], VERBS[3]])
def test_more_nodes_than_any_cluster_has_are_refused(decode: Decode, request_of: Callable[..., Any]) -> None:
    with pytest.raises(BadRequest, match=f"more than {NODES}"):
        decode(json.dumps(request_of(POD, *map(str, range(NODES + 1)))).encode())


def test_more_nodes_in_full_are_not_even_decoded() -> None:
    with pytest.raises(BadRequest, match=f"more than {NODES}"):
        extender_kube.decode_args(b'{"Pod":{},"Nodes":{"items":[' + b",".join([b"{}"] * (NODES + 1)) + b"]}}")


@pytest.mark.parametrize("begin", [b'{"Pod":{"x":[', b'{"Pod":{},"NodeNames":[', b'{"task":{"x":[', b"["])
@pytest.mark.parametrize("decode", [decode for decode, _ in VERBS])
def test_a_large_body_of_nothing_but_small_values_is_not_decoded(decode: Decode, begin: bytes) -> None:
    with pytest.raises(BadRequest, match="one value in 12"):
        decode(begin + b'"",' * (folding.LARGE_BYTES // 3 + 1))


def test_a_large_body_is_read_as_it_is_spelled() -> None:
    annotations = {"a": "x" * folding.LARGE_BYTES}
    large = {"metadata": {"name": "web", "annotations": annotations}}
    assert extender_kube.decode_args(json.dumps(kube(large, "n1")).encode()).names == ["n1"]
    with pytest.raises(BadRequest, match="Expected `str`, got `null`"):
        extender_kube.decode_args(json.dumps(kube({"metadata": {**large["metadata"], "uid": None}}, "n1")).encode())
    with pytest.raises(BadRequest, match="no Pod"):
        extender_kube.decode_args(json.dumps({"pod": large, "NodeNames": ["n1"]}).encode())
