"""Kata readiness. The fixture nodes: n1 ready with the handler; n2 ready, handlers unknown; n3 not Ready; n4 without
the handler; n5 outside the RuntimeClass's selector."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from cotenant.scheduler import kata
from cotenant.scheduler.extender import Extender

ALL = ["n1", "n2", "n3", "n4", "n5"]
Make = Callable[..., Extender]
Write = Callable[[dict[str, dict[str, Any]]], Any]


def failed(extender: Extender, runtime: str, names: list[str] = ALL) -> dict[str, str]:
    pod = {"metadata": {"name": "vm", "namespace": "shop"}, "spec": {"runtimeClassName": runtime}}
    answer = json.loads(extender.kube_filter(json.dumps({"Pod": pod, "NodeNames": names}).encode()))
    assert answer["FailedNodes"] == {}
    return dict(answer["FailedAndUnresolvableNodes"])


def test_a_kata_pod_lands_on_ready_nodes_only(make_extender: Make, write_reports: Write) -> None:
    assert failed(make_extender(write_reports({}), objects="objects.json"), "kata-qemu") == {
        "n3": "cotenant: Kata not ready: node is not Ready",
        "n4": "cotenant: Kata not ready: container runtime offers no handler kata-qemu",
        "n5": "cotenant: Kata not ready: node is outside the RuntimeClass's nodeSelector",
    }


@pytest.mark.parametrize("form", ["kube-filter-kata-names", "kube-filter-kata-nodes"])
def test_both_forms_of_request_are_judged_alike(
    make_extender: Make, request_body: Callable[[str], bytes], form: str
) -> None:
    answer = json.loads(make_extender(objects="objects.json").kube_filter(request_body(form)))
    assert set(answer["FailedAndUnresolvableNodes"]) == {"n2", "n3", "n4", "n5"}
    assert "psiMemoryFull" in answer["FailedAndUnresolvableNodes"]["n2"]


def test_a_hard_limit_is_waived_among_ready_nodes_but_kata_is_not(make_extender: Make, write_reports: Write) -> None:
    limited: dict[str, dict[str, Any]] = {"n1": {"hard": ["psiIoSome"]}, "n2": {"hard": ["psiIoSome"]}}
    assert set(failed(make_extender(write_reports(limited), objects="objects.json"), "kata-qemu")) == {"n3", "n4", "n5"}


def test_volcano_waives_a_hard_limit_where_no_other_node_with_a_report_can_run_the_pod(
    make_extender: Make, write_reports: Write
) -> None:
    def predicate(runtime: str | None, **others: dict[str, Any]) -> Any:
        extender = make_extender(write_reports({"n1": {"hard": ["psiIoSome"]}, **others}), objects="objects.json")
        task = {"Name": "vm", "Pod": {"metadata": {"name": "vm"}, "spec": {"runtimeClassName": runtime}}}
        return json.loads(extender.volcano_predicate(json.dumps({"task": task, "node": {"Name": "n1"}}).encode()))

    assert predicate("kata-qemu", n3={}, n4={}) == {"status": "", "code": 0}
    assert predicate("kata-qemu", n3={}, n2={})["code"] == 3  # n2 could
    assert predicate(None, n3={})["code"] == 3  # so could n3, which is no Kata node


def test_without_objects_readiness_is_unknown_and_passes(make_extender: Make, write_reports: Write) -> None:
    assert failed(make_extender(write_reports({"n1": {"nodeFacts": {"kata": {"kvm": False}}}})), "kata-qemu") == {}


def test_a_node_that_nobody_described_passes(make_extender: Make, write_reports: Write) -> None:
    assert failed(make_extender(write_reports({}), objects="objects.json"), "kata-qemu", ["n1", "new"]) == {}


@pytest.mark.parametrize(
    ("facts", "fault"),
    [
        ({"kvm": True, "vhostVsock": True}, None),
        ({"kvm": None}, None),
        ({}, None),
        ({"kvm": False}, "host lacks kvm"),
        ({"kvm": True, "vhostVsock": False, "cpuVirtualization": False}, "host lacks cpuVirtualization, vhostVsock"),
        ({"handlers": ["kata-qemu"]}, None),
        ({"handlers": ["runc"]}, "container runtime's configuration has no handler kata-qemu"),
    ],
)
def test_host_facts(make_extender: Make, write_reports: Write, facts: dict[str, Any], fault: str | None) -> None:
    extender = make_extender(write_reports({"n1": {"nodeFacts": {"kata": facts}}}), objects="objects.json")
    expected = {} if fault is None else {"n1": f"cotenant: Kata not ready: {fault}"}
    assert failed(extender, "kata-qemu", ["n1"]) == expected


def test_facts_of_an_expired_report_say_nothing(make_extender: Make, write_reports: Write) -> None:
    status = {"expiresAt": "2026-11-30T00:09:59Z", "nodeFacts": {"kata": {"kvm": False}}}
    assert failed(make_extender(write_reports({"n1": status}), objects="objects.json"), "kata-qemu", ["n1"]) == {}


@pytest.mark.parametrize(
    ("runtime", "is_kata"),
    [
        ("kata-qemu", True),  # by its RuntimeClass's handler
        ("vm-strong", True),  # handler kata-clh under another name
        ("kata-look-alike", False),  # a RuntimeClass whose handler is runc
        ("kata-unknown", True),  # no such object: by the name
        ("katacomb", True),
        ("gvisor", False),
        (None, False),
    ],
)
def test_which_runtime_is_a_kata_one(make_extender: Make, runtime: str | None, is_kata: bool) -> None:
    table = make_extender(objects="objects.json").source.table
    assert kata.asks_for_kata(runtime, table.runtime_classes) == is_kata


def test_other_runtimes_are_left_alone(make_extender: Make, write_reports: Write) -> None:
    extender = make_extender(write_reports({}), objects="objects.json")
    assert failed(extender, "kata-look-alike") == {}
    assert failed(extender, "gvisor") == {}


def test_a_class_without_selector_takes_the_label_of_kata_deploy(make_extender: Make, write_reports: Write) -> None:
    extender = make_extender(write_reports({}), objects="objects.json")
    assert set(failed(extender, "vm-strong")) == {"n1", "n3", "n4"}  # handlers without kata-clh, or not Ready
    node = extender.source.table.nodes["n2"]
    (node.metadata.labels or {})[kata.READY_LABEL] = "false"
    assert "label" in failed(extender, "vm-strong")["n2"]
