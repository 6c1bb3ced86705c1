"""What a pod gets for its type of business: class, affinity, and the type itself for its node's agent."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.manager.webhook.objects import around, arrival, offline, pod, ready

from cotenant.detect import templates
from cotenant.manager.webhook import affinity, mutation, validation

TYPE = "cotenant.io/workload-type"
QOS = "koordinator.sh/qosClass"


def mutated(value: dict[str, Any], strength: affinity.Strength = "soft", **given: Any) -> dict[str, Any]:
    return mutation.mutate(arrival(value), given.pop("profiles", []), around(**given), strength).pod


def labels(value: dict[str, Any]) -> dict[str, str]:
    return dict(value["metadata"].get("labels") or {})


def requires(value: dict[str, Any]) -> bool:
    return affinity.REQUIRED in ((value["spec"].get("affinity") or {}).get("nodeAffinity") or {})


def test_class_and_affinity_come_from_the_pod_s_own_type() -> None:
    found = mutated(pod(labels={TYPE: "redis"}))
    assert labels(found) == {TYPE: "redis", QOS: "LS"}
    assert requires(found), "hard, where the manager was told soft"
    assert not requires(mutated(pod(labels={TYPE: "web"}), "hard"))


def test_a_namespace_s_type_is_for_its_pods_and_reaches_the_agent_by_their_label() -> None:
    found = mutated(pod(), namespace_labels={TYPE: "batch"})
    assert labels(found) == {TYPE: "batch", QOS: "BE"}
    assert labels(mutated(pod(labels={TYPE: "redis"}), namespace_labels={TYPE: "batch"}))[QOS] == "LS"


def test_what_the_pod_or_a_profile_says_comes_first() -> None:
    assert labels(mutated(pod(labels={TYPE: "redis", QOS: "BE"})))[QOS] == "BE"
    assert labels(mutated(pod(labels={TYPE: "redis"}), profiles=[offline()]))[QOS] == "BE"
    own = pod(labels={TYPE: "redis", affinity.STRENGTH_LABEL: "off"})
    assert "affinity" not in mutated(own)["spec"]


def test_off_is_off_for_every_type() -> None:
    assert "affinity" not in mutated(pod(labels={TYPE: "redis"}), "off")["spec"]


@pytest.mark.parametrize("name", ["unheard-of", ""])
def test_a_type_that_nobody_knows_changes_nothing(name: str) -> None:
    value = pod(labels={TYPE: name})
    assert mutated(value) == value


def test_a_second_round_gives_no_class_by_a_priority_that_a_profile_gave() -> None:
    value = pod(labels={TYPE: "redis"}, priority=5000, priorityClassName="koord-batch")
    profiles = [ready(priorityClassName="koord-mid")]
    once = mutated(value, profiles=profiles)
    assert QOS not in labels(once), "LS does not go with batch"
    assert mutated(once, profiles=profiles) == once


def test_a_class_that_does_not_go_with_the_priority_is_not_given() -> None:
    found = mutated(pod(labels={TYPE: "batch"}, priority=9500))
    assert labels(found) == {TYPE: "batch"}
    assert validation.problems(found, None) == []


def test_an_update_changes_no_class() -> None:
    value = pod(labels={TYPE: "redis", "pod.koordinator.sh/mutating-update": "true"})
    found = mutation.mutate(arrival(value, update=True), [], around(), "hard").pod
    assert QOS not in labels(found)


def test_own_templates_are_used() -> None:
    own = {"ledger": templates.Template(name="ledger", qos_class="LSR", affinity="soft")}
    assert labels(mutated(pod(labels={TYPE: "ledger"}), templates=own))[QOS] == "LSR"


@given(
    st.sampled_from([*templates.bundled(), "unheard-of"]),
    st.sampled_from([*templates.bundled(), None]),
    st.booleans(),
    st.sampled_from([None, 5500, 7500, 9500]),
)
def test_twice_is_once(own: str, of_namespace: str | None, profiled: bool, priority: int | None) -> None:
    value = pod(labels={TYPE: own}) if own != "unheard-of" else pod()
    if priority is not None:
        value["spec"]["priority"] = priority
    surroundings = around({TYPE: of_namespace} if of_namespace else {})
    profiles = [offline()] if profiled else []
    once = mutation.mutate(arrival(value), profiles, surroundings, "hard").pod
    assert mutation.mutate(arrival(once), profiles, surroundings, "hard").pod == once
