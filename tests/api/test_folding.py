"""What a Go program would read the same is read the same: keys in any case, null for what is left out."""

import json
from typing import Any

import pytest

from cotenant.api import extender_kube, extender_volcano
from cotenant.api.errors import BadRequest

POD: dict[str, Any] = {"metadata": {"name": "web", "namespace": "shop"}, "spec": {"runtimeClassName": "kata"}}


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    "sparse",
    [
        {"metadata": {"name": "web", "namespace": "shop", "uid": None, "ownerReferences": [None, {"kind": None}]}},
        {"metadata": {"name": "web", "namespace": "shop", "labels": {"app": None}}, "spec": None, "status": None},
        {"metadata": {"name": "web", "namespace": "shop"}, "spec": {"containers": [{"resources": {"requests": None}}]}},
    ],
)
def test_null_is_what_was_left_out(sparse: dict[str, Any]) -> None:
    asked = extender_kube.decode_args(encoded({"Pod": sparse, "Nodes": None, "NodeNames": ["n1"]}))
    assert (asked.pod.metadata.name, asked.pod.metadata.namespace, asked.names) == ("web", "shop", ["n1"])
    assert asked.pod.metadata.uid == ""
    assert not any(owner.kind for owner in asked.pod.metadata.owner_references or ())


def test_nodes_in_full_keep_their_nulls_in_the_answer() -> None:
    item = {"metadata": {"name": "n1", "creationTimestamp": None}, "spec": {"taints": None}, "status": None}
    asked = extender_kube.decode_args(encoded({"Pod": POD, "Nodes": {"metadata": {}, "items": [item]}}))
    assert json.loads(extender_kube.encode_filter(asked, {}))["Nodes"]["items"] == [item]


def test_keys_of_the_protocol_in_any_case_and_nobody_elses() -> None:
    pod = {"metadata": {"name": "web", "labels": {"Pod": "x", "pod": "y"}}}
    items = [{"metadata": {"name": "n1", "labels": {"NAME": "x", "name": "y"}}}]
    asked = extender_kube.decode_args(encoded({"Pod": pod, "nodes": {"Items": items}}))
    assert asked.names == ["n1"]
    assert asked.pod.metadata.labels == {"Pod": "x", "pod": "y"}
    assert json.loads(extender_kube.encode_filter(asked, {}))["Nodes"]["items"] == items


def test_nodes_with_their_items_in_another_case_are_not_an_empty_list() -> None:
    asked = extender_kube.decode_args(encoded({"Pod": POD, "Nodes": {"Items": [{"metadata": {"name": "n1"}}]}}))
    assert asked.names == ["n1"]


def test_victims_are_not_lost_by_the_case_of_their_keys() -> None:
    meta = {"n1": {"pods": [{"uid": "a"}], "numPdbViolations": 2}, "n2": {"Pods": [{"UID": "b"}]}, "n3": None}
    asked = extender_kube.decode_preemption(encoded({"pod": POD, "nodeNameToMetaVictims": meta}))
    answer = json.loads(extender_kube.encode_preemption(asked, {}))["NodeNameToMetaVictims"]
    assert answer["n1"] == {"Pods": [{"UID": "a"}], "NumPDBViolations": 2}
    assert answer["n2"] == {"Pods": [{"UID": "b"}], "NumPDBViolations": 0}
    assert answer["n3"]["Pods"] == []
    full = {"n1": {"pods": [{"metadata": {"name": "v", "uid": "a"}}], "numpdbviolations": 1}}
    in_full = extender_kube.decode_preemption(encoded({"Pod": POD, "NodeNameToVictims": full}))
    answer = json.loads(extender_kube.encode_preemption(in_full, {}))["NodeNameToMetaVictims"]
    assert answer == {"n1": {"Pods": [{"UID": "a"}], "NumPDBViolations": 1}}


def test_a_task_is_judged_by_its_pod_whatever_the_case() -> None:
    request = {"Task": {"name": "web", "namespace": "shop", "pod": POD}, "node": {"name": "n1", "tasks": {}}}
    pod, node = extender_volcano.decode_predicate(encoded(request))
    assert (pod.spec.runtime_class_name, node.name) == ("kata", "n1")
    asked = {"task": request["Task"], "Nodes": [{"name": "n1"}, {"Name": "n2"}, None]}
    assert [node.name for node in extender_volcano.decode_prioritize(encoded(asked))[1]] == ["n1", "n2"]


@pytest.mark.parametrize(
    "body",
    [
        encoded({"Pod": {"metadata": {"labels": {"a": 5, "b": None}}}, "NodeNames": []}),
        b'{"Pod":{"metadata":null},"NodeNames":["\\ud800"]}',
        b'{"Pod":{"metadata":null,"x":' + b"[" * 50_000,
        b'{"Pod":{"metadata":null,"x":1e999},"NodeNames":[]}',
    ],
)
def test_what_is_wrong_besides_null_is_still_refused(body: bytes) -> None:
    with pytest.raises(BadRequest):
        extender_kube.decode_args(body)
