"""The matrix of classes and priorities, whole cores, batch resources, and what may not change."""

from typing import Any

import pytest
from tests.manager.webhook.objects import pod

from cotenant.manager.webhook import validation

QOS = "koordinator.sh/qosClass"
CLASS = "koordinator.sh/priority-class"
PRIORITIES = {
    "none": None,
    "prod": 9500,
    "mid": 7500,
    "batch": 5500,
    "free": 3500,
    "between": 8000,
    "critical": 2 * 10**9,
}
MATRIX = {
    "LSE": {"none", "prod", "between", "critical"},
    "LSR": {"none", "prod", "between", "critical"},
    "LS": {"none", "prod", "mid", "between", "critical"},
    "BE": {"none", "mid", "batch", "free", "between", "critical"},
    "SYSTEM": {"none", "prod", "between", "critical"},
}


def labelled(qos: str | None, priority: int | None = None, cpu: str | None = "1", **labels: str) -> dict[str, Any]:
    given = {QOS: qos} if qos is not None else {}
    value = pod({"requests": {"cpu": cpu}} if cpu else {}, labels={**given, **labels})
    value["spec"]["priority"] = priority
    return value


@pytest.mark.parametrize("qos", MATRIX)
@pytest.mark.parametrize("priority", PRIORITIES)
def test_the_matrix(qos: str, priority: str) -> None:
    found = validation.problems(labelled(qos, PRIORITIES[priority]))
    assert (not found) == (priority in MATRIX[qos]), found


@pytest.mark.parametrize(
    ("priority", "allowed"),
    [(2999, True), (3000, True), (3999, True), (4999, True), (5000, True), (6999, True), (7999, True), (8999, True),
     (9000, False), (9999, False), (10000, True)],
)  # fmt: skip
def test_the_edges_of_the_bands(priority: int, allowed: bool) -> None:
    assert (not validation.problems(labelled("BE", priority))) is allowed


def test_the_label_of_the_class_goes_before_the_priority() -> None:
    assert validation.problems(labelled("BE", 9500, **{CLASS: "koord-batch"})) == []
    assert "koord-prod (the label)" in validation.problems(labelled("BE", 5500, **{CLASS: "koord-prod"}))[0]
    assert "'prod': give koord-prod" in validation.problems(labelled("LS", None, **{CLASS: "prod"}))[0]


def test_a_pod_without_a_class_is_not_checked() -> None:
    assert validation.problems(labelled(None, 5500)) == []
    assert validation.problems(labelled("typo", 5500)) == []


@pytest.mark.parametrize("qos", ["LSE", "LSR"])
@pytest.mark.parametrize(
    ("cpu", "text"),
    [
        ("1", None),
        ("2000m", None),
        ("1500m", "1500m in all"),
        ("0", "required"),
        (None, "required"),
        ("1m", "1m in all"),
    ],
)
def test_whole_cores(qos: str, cpu: str | None, text: str | None) -> None:
    found = validation.problems(labelled(qos, 9500, cpu))
    assert (not found) if text is None else text in found[0]


def test_cores_are_added_up_as_kubernetes_does() -> None:
    value = labelled("LSR", 9500, "500m")
    value["spec"]["containers"].append({"name": "b", "resources": {"limits": {"cpu": "500m"}}})
    assert validation.request_millicores(value) == 1000
    value["spec"]["initContainers"] = [
        {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
        {"name": "i", "resources": {"requests": {"cpu": "3"}}},
    ]
    assert validation.request_millicores(value) == 4000
    value["spec"]["initContainers"].pop()
    assert validation.request_millicores(value) == 2000
    value["spec"]["resources"] = {"requests": {"cpu": "7"}}
    assert validation.request_millicores(value) == 7000


@pytest.mark.parametrize("name", ["kubernetes.io/batch-cpu", "kubernetes.io/batch-memory", "koordinator.sh/batch-cpu"])
@pytest.mark.parametrize("side", ["requests", "limits"])
def test_batch_resources_are_for_offline_pods(name: str, side: str) -> None:
    value = pod({side: {name: "1000"}})
    assert "must be BE" in validation.problems(value)[0]
    value["metadata"]["labels"][QOS] = "BE"
    assert validation.problems(value) == []
    assert validation.problems(pod({side: {name: "0"}})) == []


@pytest.mark.parametrize(
    ("label", "before", "after"),
    [
        (QOS, "BE", "LS"),
        (QOS, None, "BE"),
        (QOS, "BE", None),
        ("koordinator.sh/priority", "1", "2"),
        (CLASS, None, "x"),
    ],
)
def test_labels_that_may_not_change(label: str, before: str | None, after: str | None) -> None:
    old, new = (pod(labels={label: value} if value else {}) for value in (before, after))
    assert f"metadata.labels[{label}]: may not change" in " ".join(validation.problems(new, old))
    assert validation.problems(old, old) == []


def test_the_band_may_not_change() -> None:
    old, new = labelled(None, 5500), labelled(None, 9500)
    assert "spec.priority: may not change, from 5500 to 9500" in validation.problems(new, old)[0]
    assert validation.problems(labelled(None, 5600), old) == []


def test_what_was_wrong_before_does_not_bar_an_update_nor_a_deletion() -> None:
    old = labelled("BE", 9500)
    new = labelled("BE", 9500, other="x")
    assert validation.problems(old)
    assert validation.problems(new, old) == []
    gone = labelled("LS", 9500)
    gone["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert validation.problems(gone, old) == []


def test_the_label_that_skips_the_rules() -> None:
    skip = {"pod.koordinator.sh/skip-enhanced-validation": "true"}
    assert validation.problems(labelled("BE", 9500, **skip)) == []
    assert validation.problems(labelled("BE", 9500, **dict.fromkeys(skip, "false")))


def test_warnings() -> None:
    few = pod({"requests": {"kubernetes.io/batch-cpu": "8"}}, labels={QOS: "BE"})
    assert "write 8000 for 8 cores" in validation.warnings(few)[0]
    native = pod({"requests": {"cpu": "1"}}, labels={QOS: "BE"})
    assert "a BE pod with native cpu" in validation.warnings(native)[0]
    assert validation.warnings(pod({"requests": {"cpu": "1"}})) == []
    assert (
        validation.warnings(pod({"requests": {"kubernetes.io/batch-cpu": "8000", "cpu": "0"}}, labels={QOS: "BE"}))
        == []
    )
