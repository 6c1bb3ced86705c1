"""What profiles make of pods: every field, the order, resources, affinity, and a second round that changes nothing."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.manager.webhook import objects
from tests.manager.webhook.objects import around, arrival, offline, pod, ready

from cotenant.manager.webhook import mutation, patching
from cotenant.manager.webhook.errors import Refused
from cotenant.manager.webhook.profiles import Ready

BATCH_CPU, BATCH_MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
SPEC_ANNOTATION = "node.koordinator.sh/extended-resource-spec"


def mutated(value: dict[str, Any], *profiles: Ready, update: bool = False, **given: Any) -> dict[str, Any]:
    return mutation.mutate(arrival(value, update=update), profiles, around(**given)).pod


def labels(value: dict[str, Any]) -> dict[str, str]:
    return dict(value["metadata"]["labels"])


def resources(value: dict[str, Any], index: int = 0, kind: str = "containers") -> Any:
    return value["spec"][kind][index]["resources"]


def test_what_is_set() -> None:
    profile = ready(
        labels={"a": "1"}, annotations={"b": "2"}, schedulerName="koord-scheduler", qosClass="BE",
        priorityClassName="koord-batch", koordinatorPriority=1234,
    )  # fmt: skip
    found = mutated(pod(labels={"a": "0", "keep": "x"}), profile)
    assert labels(found) == {
        "a": "1", "keep": "x", "koordinator.sh/qosClass": "BE", "koordinator.sh/priority": "1234"
    }  # fmt: skip
    assert found["metadata"]["annotations"]["b"] == "2"
    assert (found["spec"]["schedulerName"], found["spec"]["priority"]) == ("koord-scheduler", 5000)
    assert found["spec"]["priorityClassName"] == "koord-batch"


def test_what_is_copied_and_appended_to() -> None:
    profile = ready(
        labels={"team": "ads"}, labelKeysMapping={"team": "quota", "missing": "never"},
        annotationKeysMapping={"from": "to"}, labelSuffixes={"app": "-offline", "absent": "-x"},
    )  # fmt: skip
    found = mutated(pod(labels={"app": "web"}, annotations={"from": "here"}), profile)
    assert labels(found) == {"app": "web-offline", "team": "ads", "quota": "ads"}
    assert found["metadata"]["annotations"]["to"] == "here"


def test_a_mapping_reads_everything_before_it_writes() -> None:
    found = mutated(pod(labels={"a": "1", "b": "2"}), ready(labelKeysMapping={"a": "b", "b": "a"}))
    assert labels(found) == {"a": "2", "b": "1"}


def test_the_later_name_wins_whatever_the_order_given() -> None:
    first, second = ready("a", labels={"x": "1"}, qosClass="LS"), ready("b", labels={"x": "2"}, qosClass="BE")
    for profiles in ((first, second), (second, first)):
        found = mutated(pod(), *profiles)
        assert (labels(found)["x"], labels(found)["koordinator.sh/qosClass"]) == ("2", "BE")


def test_selectors_see_the_pod_as_it_came() -> None:
    profiles = (ready("a", labels={"x": "1"}), ready("b", selector={"matchLabels": {"x": "1"}}, labels={"y": "1"}))
    assert labels(mutated(pod(), *profiles)) == {"x": "1"}


def test_both_selectors_must_match() -> None:
    profile = ready(
        namespaceSelector={"matchLabels": {"team": "ads"}}, selector={"matchLabels": {"app": "web"}},
        labels={"hit": "1"},
    )  # fmt: skip
    chosen = pod(labels={"app": "web"})
    assert "hit" in labels(mutated(chosen, profile, namespace_labels={"team": "ads"}))
    assert "hit" not in labels(mutated(chosen, profile, namespace_labels={"team": "web"}))
    assert "hit" not in labels(mutated(pod(labels={"app": "db"}), profile, namespace_labels={"team": "ads"}))


def test_a_pod_that_no_profile_matches_goes_on_as_it_came() -> None:
    value = pod({"requests": {"cpu": "1"}}, labels={"app": "db"})
    assert mutated(value, offline(selector={"matchLabels": {"app": "web"}})) == value
    assert mutated(value, offline(probability=0)) == value


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}},
            {"requests": {BATCH_CPU: "1000", BATCH_MEMORY: "1Gi"}, "limits": {BATCH_CPU: "2000", BATCH_MEMORY: "2Gi"}},
        ),
        ({"limits": {"cpu": "500m"}}, {"limits": {BATCH_CPU: "500"}, "requests": {BATCH_CPU: "500"}}),
        ({"requests": {"cpu": "100u"}}, {"requests": {BATCH_CPU: "1"}}),
        ({"requests": {"cpu": "1.0001"}}, {"requests": {BATCH_CPU: "1001"}}),
        ({"requests": {"memory": "1500m"}}, {"requests": {BATCH_MEMORY: "2"}}),
        ({"requests": {"memory": "0.3Ki"}}, {"requests": {BATCH_MEMORY: "308"}}),
        ({"requests": {"memory": "1.5Gi"}}, {"requests": {BATCH_MEMORY: "1.5Gi"}}),
        ({"requests": {"cpu": "1", BATCH_CPU: "300"}}, {"requests": {BATCH_CPU: "300"}}),
        ({"requests": {"cpu": "0"}}, {"requests": {BATCH_CPU: "0"}}),
        ({"requests": {"nvidia.com/gpu": "1"}}, {"requests": {"nvidia.com/gpu": "1"}}),
        (
            {"requests": {"cpu": "1"}, "limits": {"hugepages-2Mi": "2Mi"}},
            {"requests": {BATCH_CPU: "1000", "cpu": "0"}, "limits": {"hugepages-2Mi": "2Mi"}},
        ),
        ({}, {}),
    ],
)
def test_resources_of_offline_work(given: Any, expected: Any) -> None:
    assert resources(mutated(pod(given), offline())) == expected


def test_mid_resources() -> None:
    profile = ready(qosClass="LS", priorityClassName="koord-mid")
    found = mutated(pod({"limits": {"cpu": "2", "memory": "1Gi"}}), profile)
    side = {"kubernetes.io/mid-cpu": "2000", "kubernetes.io/mid-memory": "1Gi"}
    assert resources(found) == {"limits": side, "requests": side}


@pytest.mark.parametrize("name", ["koord-prod", "koord-free"])
def test_other_bands_keep_their_resources(name: str) -> None:
    given = {"requests": {"cpu": "1"}}
    assert resources(mutated(pod(given), ready(priorityClassName=name))) == given


def test_a_class_without_a_priority_stands_for_its_band() -> None:
    assert resources(mutated(pod({"requests": {"cpu": "1"}}), ready(qosClass="BE"))) == {
        "requests": {BATCH_CPU: "1000"}
    }


def test_init_containers_and_sidecars_too_but_only_what_runs_together_is_in_the_annotation() -> None:
    asks = {"requests": {"cpu": "1"}}
    init = [
        {"name": "prepare", "resources": {"requests": {"cpu": "2"}}},
        {"name": "sidecar", "restartPolicy": "Always", "resources": {"limits": {"memory": "100M"}}},
    ]
    found = mutated(pod(asks, initContainers=init), offline())
    assert resources(found, 0, "initContainers") == {"requests": {BATCH_CPU: "2000"}}
    assert resources(found, 1, "initContainers")["limits"] == {BATCH_MEMORY: "100M"}
    assert json.loads(found["metadata"]["annotations"][SPEC_ANNOTATION]) == {
        "containers": {
            "main": {"requests": {BATCH_CPU: "1000"}},
            "sidecar": {"limits": {BATCH_MEMORY: "100000000"}, "requests": {BATCH_MEMORY: "100000000"}},
        }
    }


def test_resources_stay_where_a_profile_says_so() -> None:
    given = {"requests": {"cpu": "1"}}
    keeping = offline(marks={"config.koordinator.sh/skip-update-resources": ""})
    found = mutated(pod(given), keeping)
    assert resources(found) == given
    assert labels(found)["koordinator.sh/qosClass"] == "BE"
    assert resources(mutated(pod(given), keeping, offline("other"))) == given


def test_batch_resources_that_a_pod_states_itself_are_told_to_the_node() -> None:
    found = mutated(pod({"limits": {BATCH_CPU: "1k"}}, annotations={SPEC_ANNOTATION: "stale"}))
    spec = json.loads(found["metadata"]["annotations"][SPEC_ANNOTATION])
    assert spec == {"containers": {"main": {"limits": {BATCH_CPU: "1000"}}}}
    assert SPEC_ANNOTATION not in mutated(pod(annotations={SPEC_ANNOTATION: "stale"}))["metadata"].get(
        "annotations", {}
    )


@pytest.mark.parametrize(
    ("value", "profile", "reason"),
    [
        (pod(), ready(priorityClassName="missing"), "there is no such PriorityClass"),
        (pod(labels={"app": "w" * 60}), ready(labelSuffixes={"app": "-offline"}), "metadata.labels[app]"),
        (pod({"requests": {"cpu": "much"}}), offline(), "spec.containers[0].resources.requests.cpu"),
    ],
)  # fmt: skip
def test_what_cannot_be_applied_is_refused_with_the_profile(value: Any, profile: Any, reason: str) -> None:
    with pytest.raises(Refused) as caught:
        mutated(value, profile)
    assert reason in str(caught.value)


def test_resources_of_the_whole_pod_are_refused() -> None:
    value = pod()
    value["spec"]["resources"] = {"requests": {"cpu": "1"}}
    with pytest.raises(Refused, match=r"spec\.resources"):
        mutated(value, offline())
    assert mutated(value, ready(qosClass="LS"))["spec"]["resources"] == {"requests": {"cpu": "1"}}


def test_a_running_pod_keeps_its_class_and_everything_in_its_spec() -> None:
    profile = offline(labels={"a": "1"}, koordinatorPriority=5, patch={"metadata": {"annotations": {"p": "1"}}})
    given = {"requests": {"cpu": "1"}}
    running = pod(given, labels={"pod.koordinator.sh/mutating-update": "true"})
    found = mutated(running, profile, update=True)
    assert labels(found) == {"pod.koordinator.sh/mutating-update": "true", "a": "1"}
    assert found["metadata"]["annotations"]["p"] == "1"
    assert found["spec"] == running["spec"]
    assert mutated(pod(given), profile, update=True) == pod(given)


def test_a_mirror_of_a_static_pod_is_left_alone() -> None:
    value = pod({"requests": {"cpu": "1"}}, annotations={"kubernetes.io/config.mirror": "x"})
    assert mutated(value, offline()) == value


def test_the_priority_follows_the_class_with_its_preemption_policy() -> None:
    value = pod(priority=9000, priorityClassName="koord-prod", preemptionPolicy="Never")
    found = mutated(value, ready(priorityClassName="koord-batch"))["spec"]
    assert (found["priority"], found["preemptionPolicy"]) == (5000, "PreemptLowerPriority")
    gone = mutated(value, ready(patch={"spec": {"priorityClassName": None}}))["spec"]
    assert not {"priority", "priorityClassName", "preemptionPolicy"} & gone.keys()


@settings(max_examples=90, deadline=None)
@given(objects.pods(), objects.ready_profiles(), st.sampled_from(["", "redis", "batch"]))
def test_a_second_round_changes_nothing(value: dict[str, Any], profiles: list[Ready], business: str) -> None:
    value["metadata"]["labels"]["pod.koordinator.sh/mutating-update"] = "true"
    there = around({"cotenant.io/workload-type": business} if business else {})
    try:
        once = mutation.mutate(arrival(value), profiles, there, "hard")
    except Refused:
        return
    again = mutation.mutate(arrival(once.pod), profiles, there, "hard")
    assert patching.difference(once.pod, again.pod) == []
    assert again.applied == once.applied
    updated = mutation.mutate(arrival(once.pod, update=True), profiles, there, "hard")
    assert patching.difference(once.pod, updated.pod) == []


@settings(max_examples=60, deadline=None)
@given(objects.pods(), objects.ready_profiles())
def test_a_pod_is_never_changed_in_place(value: dict[str, Any], profiles: list[Ready]) -> None:
    before = json.dumps(value)
    came = mutation.Arrival(pod=value, identity="x")
    with contextlib.suppress(Refused):
        mutation.mutate(came, profiles, around(), "soft")
    assert json.dumps(value) == before


@pytest.mark.parametrize(
    "given",
    [
        {"requests": {"memory": "1Gi"}, "limits": {"memory": "1Gi", "hugepages-2Mi": "4Mi"}},
        {"limits": {"memory": "1Gi", "hugepages-2Mi": "4Mi"}},
        {"requests": {BATCH_MEMORY: "1Gi", "hugepages-2Mi": "4Mi"}},
        {"requests": {"cpu": "0", "hugepages-2Mi": "4Mi"}, "limits": {"cpu": "2"}},
        {"requests": {"cpu": "0", "hugepages-2Mi": "4Mi"}},
    ],
)
def test_a_second_round_leaves_the_cpu_beside_huge_pages(given: Any) -> None:
    """The 0 that huge pages need is no request for CPU, whoever wrote it."""
    once = mutated(pod(given), offline())
    assert resources(once)["requests"]["cpu"] == "0"
    assert mutated(once, offline()) == once


def test_a_second_round_after_defaults_came_in_between() -> None:
    """A LimitRange gives a translated container native cpu again, before the webhook is asked a second time."""
    once = mutated(pod({"requests": {"cpu": "2"}}), offline(labelSuffixes={"app": "-x"}))
    once["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "100m"
    assert resources(mutated(once, offline())) == {"requests": {BATCH_CPU: "2000"}}
