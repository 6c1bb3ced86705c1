"""Which pods get the affinity for verdicts, in which strength, beside what affinity they have."""

from typing import Any

import pytest
from tests.manager.webhook.objects import around, arrival, offline, pod

from cotenant.manager.webhook import affinity, mutation

ONLINE = {"key": "cotenant.io/avoid-online", "operator": "DoesNotExist"}
OFFLINE = {"key": "cotenant.io/avoid-offline", "operator": "DoesNotExist"}
CALM = {"key": "cotenant.io/interference", "operator": "NotIn", "values": ["high", "severe"]}
PREFER_CALM = {"weight": 50, "preference": {"matchExpressions": [CALM]}}
QOS = "koordinator.sh/qosClass"


def injected(value: dict[str, Any], strength: affinity.Strength = "hard", **given: Any) -> Any:
    found = mutation.mutate(arrival(value), given.pop("profiles", []), around(**given), strength)
    return (found.pod["spec"].get("affinity") or {}).get("nodeAffinity")


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {affinity.REQUIRED: {"nodeSelectorTerms": list(terms)}}}


def test_hard_is_the_snippet_of_the_documentation() -> None:
    assert injected(pod(labels={QOS: "LS"})) == {
        affinity.REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [ONLINE]}]},
        affinity.PREFERRED: [PREFER_CALM],
    }


def test_soft_only_prefers_and_off_does_nothing() -> None:
    assert injected(pod(labels={QOS: "BE"}), "soft") == {
        affinity.PREFERRED: [{"weight": 100, "preference": {"matchExpressions": [OFFLINE]}}, PREFER_CALM]
    }
    assert injected(pod(labels={QOS: "BE"}), "off") is None


@pytest.mark.parametrize(
    ("labels", "given", "expected"),
    [
        ({}, {}, None),
        ({}, {"namespace_labels": {"cotenant.io/colocation": "enabled"}}, OFFLINE),
        ({}, {"namespace_labels": {"cotenant.io/colocation": "no"}}, None),
        ({}, {"profiles": [offline()]}, OFFLINE),
        ({QOS: "LSR"}, {}, ONLINE),
        ({QOS: "SYSTEM"}, {}, None),
        ({QOS: "typo"}, {}, None),
    ],
)
def test_managed_pods(labels: dict[str, str], given: dict[str, Any], expected: Any) -> None:
    found = injected(pod(labels=labels), **given)
    assert (found and found[affinity.REQUIRED]["nodeSelectorTerms"][0]["matchExpressions"]) == (expected and [expected])


def test_a_pod_says_for_itself_how_strong() -> None:
    assert injected(pod(labels={QOS: "LS", affinity.STRENGTH_LABEL: "off"})) is None
    assert affinity.REQUIRED not in injected(pod(labels={QOS: "LS", affinity.STRENGTH_LABEL: "soft"}))
    assert affinity.REQUIRED in injected(pod(labels={QOS: "LS", affinity.STRENGTH_LABEL: "hard"}), "off")
    assert affinity.REQUIRED in injected(pod(labels={QOS: "LS", affinity.STRENGTH_LABEL: "typo"}))


@pytest.mark.parametrize(
    "value",
    [
        pod(labels={QOS: "LS"}, nodeName="n1"),
        pod(labels={QOS: "LS"}, priorityClassName="system-node-critical"),
        pod(labels={QOS: "LS"}, priority=2_000_000_000),
        {**pod(labels={QOS: "LS"}), "metadata": {"labels": {QOS: "LS"}, "ownerReferences": [{"kind": "DaemonSet"}]}},
    ],
)
def test_pods_that_nothing_keeps_from_a_node(value: dict[str, Any]) -> None:
    assert injected(value) is None


def test_every_alternative_is_narrowed_and_one_that_matches_no_node_stays_so() -> None:
    zone = {"key": "zone", "operator": "In", "values": ["a"]}
    field = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    value = pod(labels={QOS: "LS"}, affinity=required({"matchExpressions": [zone]}, field, {}))
    assert injected(value)[affinity.REQUIRED]["nodeSelectorTerms"] == [
        {"matchExpressions": [zone, ONLINE]},
        {**field, "matchExpressions": [ONLINE]},
        {},
    ]


def test_what_the_pod_says_of_a_label_itself_stands() -> None:
    own = {"key": "cotenant.io/avoid-online", "operator": "Exists"}
    value = pod(labels={QOS: "LS"}, affinity={**required({"matchExpressions": [own]}), "podAffinity": {}})
    found = mutation.mutate(arrival(value), [], around(), "hard").pod["spec"]["affinity"]
    assert found["podAffinity"] == {}
    assert found["nodeAffinity"][affinity.REQUIRED]["nodeSelectorTerms"] == [{"matchExpressions": [own]}]
    assert found["nodeAffinity"][affinity.PREFERRED] == [PREFER_CALM]
