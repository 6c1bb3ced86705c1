"""The answers of both protocols over the fixture reports.

n1: level 0.1, coverage 1. n2: level 0.9, coverage 0.5, psiMemoryFull in force. n3: unknown. n4: a hard limit, but no
expiry, so expired. n5: no report (the object ``cluster`` names it, which is no report of a node).
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from cotenant.api.errors import BadRequest
from cotenant.scheduler.extender import Extender
from cotenant.units.clock import ManualClock

ALL = ["n1", "n2", "n3", "n4", "n5"]
Bodies = Callable[[str], bytes]
Make = Callable[..., Extender]
Write = Callable[[dict[str, dict[str, Any]]], Any]


def test_filter_by_names_refuses_the_limited_node_for_good(make_extender: Make, request_body: Bodies) -> None:
    answer = json.loads(make_extender().kube_filter(request_body("kube-filter-names")))
    assert answer == {
        "Nodes": None,
        "NodeNames": ["n1", "n3", "n4", "n5"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {"n2": "cotenant: interference limit psiMemoryFull in force"},
        "Error": "",
    }


def test_filter_by_full_nodes_gives_the_nodes_back_as_sent(make_extender: Make, request_body: Bodies) -> None:
    body = request_body("kube-filter-nodes")
    answer = json.loads(make_extender().kube_filter(body))
    sent = json.loads(body)["Nodes"]["items"]
    assert answer["NodeNames"] is None
    assert answer["Nodes"]["items"] == [node for node in sent if node["metadata"]["name"] != "n2"]
    assert list(answer["FailedAndUnresolvableNodes"]) == ["n2"]


def test_keys_in_lower_case_are_the_same_request(make_extender: Make, request_body: Bodies) -> None:
    extender = make_extender()
    assert extender.kube_filter(request_body("kube-filter-lower-case")) == extender.kube_filter(
        request_body("kube-filter-names")
    )


def test_all_pass_when_none_would_remain(make_extender: Make, write_reports: Write, request_body: Bodies) -> None:
    extender = make_extender(write_reports({node: {"hard": ["psiIoSome"]} for node in ALL}))
    answer = json.loads(extender.kube_filter(request_body("kube-filter-names")))
    assert answer["NodeNames"] == ALL
    assert answer["FailedAndUnresolvableNodes"] == {}


def test_preempt_drops_the_same_nodes_without_exception(
    make_extender: Make, write_reports: Write, request_body: Bodies
) -> None:
    extender = make_extender(write_reports({node: {"hard": ["psiIoSome"]} for node in ALL}))
    assert json.loads(extender.kube_preempt(request_body("kube-preempt-meta"))) == {"NodeNameToMetaVictims": {}}


@pytest.mark.parametrize("form", ["kube-preempt-meta", "kube-preempt-victims"])
def test_preempt_answers_victims_by_identity(make_extender: Make, request_body: Bodies, form: str) -> None:
    answer = json.loads(make_extender().kube_preempt(request_body(form)))
    assert answer == {
        "NodeNameToMetaVictims": {
            node: {"Pods": [{"UID": f"uid-low-{node}"}], "NumPDBViolations": position % 2}
            for position, node in enumerate(ALL)
            if node != "n2"
        }
    }


def test_kube_scores_are_whole_and_pull_the_unknown_to_the_mean(make_extender: Make, request_body: Bodies) -> None:
    answer = json.loads(make_extender().kube_prioritize(request_body("kube-filter-names")))
    assert answer == [
        {"Host": "n1", "Score": 9},  # e = 0.1
        {"Host": "n2", "Score": 3},  # e = 0.5 x 0.9 + 0.5 x 0.5 = 0.7
        {"Host": "n3", "Score": 5},  # e = m = 0.5: 5.5 rounds down
        {"Host": "n4", "Score": 5},
        {"Host": "n5", "Score": 5},
    ]
    assert all(isinstance(entry["Score"], int) for entry in answer)


def test_preset_mco_scores_by_the_level_alone(make_extender: Make, request_body: Bodies) -> None:
    extender = make_extender(preset="mco", volcano_weight=1.0)
    answer = json.loads(extender.kube_prioritize(request_body("kube-filter-names")))
    assert [entry["Score"] for entry in answer] == [9, 1, 5, 5, 5]
    answer = json.loads(extender.volcano_prioritize(request_body("volcano-prioritize")))
    assert answer["nodeScore"] == pytest.approx({"n1": 90, "n2": 10, "n3": 50, "n4": 50, "n5": 50})


def test_nothing_known_gives_all_the_same_score(
    make_extender: Make, write_reports: Write, request_body: Bodies, clock: ManualClock
) -> None:
    extender = make_extender()
    clock.advance(3600)  # every report has expired
    for verb, body in (("kube_prioritize", "kube-filter-names"), ("volcano_prioritize", "volcano-prioritize")):
        answer = json.loads(getattr(extender, verb)(request_body(body)))
        scores = [entry["Score"] for entry in answer] if isinstance(answer, list) else answer["nodeScore"].values()
        assert len(set(scores)) == 1
    assert json.loads(extender.kube_filter(request_body("kube-filter-names")))["NodeNames"] == ALL


def test_volcano_refuses_with_code_3_and_a_reason(make_extender: Make, request_body: Bodies) -> None:
    extender = make_extender()
    assert json.loads(extender.volcano_predicate(request_body("volcano-predicate"))) == {
        "status": "cotenant: interference limit psiMemoryFull in force",
        "code": 3,
    }
    other = request_body("volcano-predicate").replace(b'"Name": "n2"', b'"Name": "n1"')
    assert json.loads(extender.volcano_predicate(other)) == {"status": "", "code": 0}


def test_volcano_lets_all_pass_when_every_report_has_a_limit(
    make_extender: Make, write_reports: Write, request_body: Bodies
) -> None:
    body = request_body("volcano-predicate")
    limited: dict[str, dict[str, Any]] = {"n2": {"hard": ["psiIoSome"]}, "n7": {"hard": ["psiIoSome"]}}
    assert json.loads(make_extender(write_reports(limited)).volcano_predicate(body))["code"] == 0
    calm: dict[str, dict[str, Any]] = {"n8": {"interferenceLevel": 0.0}}
    assert json.loads(make_extender(write_reports(limited | calm)).volcano_predicate(body))["code"] == 3


def test_volcano_scores_are_a_map_with_an_empty_message(make_extender: Make, request_body: Bodies) -> None:
    answer = json.loads(make_extender().volcano_prioritize(request_body("volcano-prioritize")))
    assert answer["errorMessage"] == ""
    assert answer["nodeScore"] == pytest.approx({"n1": 27, "n2": 9, "n3": 15, "n4": 15, "n5": 15})
    empty = json.loads(make_extender().volcano_prioritize(b'{"task":{"Name":"a"},"nodes":null}'))
    assert empty == {"nodeScore": {}, "errorMessage": ""}


@pytest.mark.parametrize(
    "pod",
    [
        {"metadata": {"name": "p", "ownerReferences": [{"kind": "DaemonSet", "name": "d"}]}},
        {"metadata": {"name": "p"}, "spec": {"priorityClassName": "system-node-critical"}},
        {"metadata": {"name": "p"}, "spec": {"priority": 2000000000}},
    ],
)
def test_daemonset_and_system_critical_pods_are_never_refused(make_extender: Make, pod: dict[str, Any]) -> None:
    pod.setdefault("spec", {})["runtimeClassName"] = "kata-qemu"
    extender = make_extender(objects="objects.json")
    answer = json.loads(extender.kube_filter(json.dumps({"Pod": pod, "NodeNames": ALL}).encode()))
    assert answer["NodeNames"] == ALL
    victims = {node: {"Pods": [], "NumPDBViolations": 0} for node in ALL}
    answer = json.loads(extender.kube_preempt(json.dumps({"Pod": pod, "NodeNameToMetaVictims": victims}).encode()))
    assert answer == {"NodeNameToMetaVictims": victims}
    predicate = {"task": {"Name": "p", "Pod": pod}, "node": {"Name": "n2"}}
    assert json.loads(extender.volcano_predicate(json.dumps(predicate).encode())) == {"status": "", "code": 0}


@pytest.mark.parametrize(
    ("applies_to", "labels", "judged"),
    [
        ("all", {"koordinator.sh/qosClass": "BE"}, True),
        ("online", {}, True),
        ("online", {"koordinator.sh/qosClass": "BE"}, False),
        ("offline", {"koordinator.sh/qosClass": "BE"}, True),
        ("offline", {"koordinator.sh/priority-class": "koord-batch"}, True),
        ("offline", {"koordinator.sh/qosClass": "LS"}, False),
        ("offline", {}, False),
    ],
)
def test_applies_to(make_extender: Make, applies_to: str, labels: dict[str, str], judged: bool) -> None:
    extender = make_extender(applies_to=applies_to)
    body = json.dumps({"Pod": {"metadata": {"name": "p", "labels": labels}}, "NodeNames": ALL}).encode()
    assert ("n2" in json.loads(extender.kube_filter(body))["FailedAndUnresolvableNodes"]) == judged
    scores = {entry["Score"] for entry in json.loads(extender.kube_prioritize(body))}
    assert (len(scores) > 1) == judged


@pytest.mark.parametrize(
    "verb", ["kube_filter", "kube_prioritize", "kube_preempt", "volcano_predicate", "volcano_prioritize"]
)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"{}",
        b"\xff\xfe",
        b'{"Pod":1,"NodeNames":[],"task":1}',
        b'{"Pod":{"metadata":[]},"NodeNames":["a"],"task":{"Pod":[]},"node":{"Name":3}}',
        b'{"Pod":{},"NodeNames":"n1","NodeNameToMetaVictims":[],"task":{},"node":[],"nodes":{}}',
        b'{"Pod":' + b"[" * 100_000,
    ],
)
def test_what_cannot_be_answered_is_a_bad_request(make_extender: Make, verb: str, body: bytes) -> None:
    with pytest.raises(BadRequest, match="request body: "):
        getattr(make_extender(), verb)(body)


def test_explanations_name_rule_numbers_and_age(make_extender: Make, request_body: Bodies) -> None:
    extender = make_extender()
    extender.kube_filter(request_body("kube-filter-names"))
    extender.kube_prioritize(request_body("kube-filter-names"))
    scored, filtered = extender.explain_pod("shop/web")["decisions"]
    assert [entry["score"] for entry in scored["nodes"]] == [9, 3, 5, 5, 5]
    by_node = {entry["node"]: entry for entry in filtered["nodes"]}
    assert not by_node["n2"]["kept"]
    assert by_node["n2"]["reason"] == "cotenant: interference limit psiMemoryFull in force"
    assert by_node["n2"]["interferenceLevel"] == 0.9
    assert by_node["n2"]["ageSeconds"] == 600
    assert by_node["n4"]["report"] == "expired"
    assert by_node["n5"] == {**by_node["n5"], "kept": True, "report": "missing"}
    node = extender.explain_node("n2")
    assert node["hard"] == ["psiMemoryFull"]
    assert [entry["pod"] for entry in node["refused"]] == ["shop/web"]
