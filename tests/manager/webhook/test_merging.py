"""Strategic merge patches of pods, by worked examples and as a property."""

from typing import Any

import pytest
from hypothesis import given, settings
from tests.manager.webhook import objects

from cotenant.manager.webhook import merging

POD: dict[str, Any] = {
    "metadata": {"labels": {"a": "1", "b": "2"}, "finalizers": ["x"]},
    "spec": {
        "containers": [
            {"name": "main", "image": "one", "args": ["1", "2"], "ports": [{"containerPort": 80, "name": "http"}]},
            {"name": "side", "image": "two", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
        ],
        "tolerations": [{"key": "old"}],
        "volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}],
        "nodeSelector": {"disk": "ssd"},
    },
}


@pytest.mark.parametrize(
    ("patch", "path", "expected"),
    [
        ({"metadata": {"labels": {"a": None, "c": "3"}}}, "metadata.labels", {"b": "2", "c": "3"}),
        ({"metadata": {"finalizers": ["x", "y"]}}, "metadata.finalizers", ["x", "y"]),
        ({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x"]}}, "metadata.finalizers", []),
        ({"spec": {"tolerations": [{"key": "new"}]}}, "spec.tolerations", [{"key": "new"}]),
        ({"spec": {"nodeSelector": {"zone": "a"}}}, "spec.nodeSelector", {"disk": "ssd", "zone": "a"}),
        ({"spec": {"nodeSelector": {"$patch": "replace", "zone": "a"}}}, "spec.nodeSelector", {"zone": "a"}),
        ({"spec": {"nodeSelector": {"$patch": "delete"}}}, "spec.nodeSelector", {}),
        ({"spec": {"containers": [{"name": "main", "args": ["3"]}]}}, "spec.containers.0.args", ["3"]),
        ({"spec": {"containers": [{"name": "main", "args": ["3"]}]}}, "spec.containers.0.image", "one"),
        (
            {"spec": {"containers": [{"name": "main", "ports": [{"containerPort": 80, "protocol": "UDP"}]}]}},
            "spec.containers.0.ports",
            [{"containerPort": 80, "name": "http", "protocol": "UDP"}],
        ),
        (
            {"spec": {"containers": [{"name": "side", "env": [{"name": "B", "value": "3"}, {"name": "C"}]}]}},
            "spec.containers.1.env",
            [{"name": "A", "value": "1"}, {"name": "B", "value": "3"}, {"name": "C"}],
        ),
        (
            {"spec": {"containers": [{"name": "side", "env": [{"$patch": "replace"}, {"name": "C", "x": None}]}]}},
            "spec.containers.1.env",
            [{"name": "C"}],
        ),
        ({"spec": {"containers": [{"name": "main", "$patch": "delete"}]}}, "spec.containers.0.name", "side"),
        ({"spec": {"containers": [{"name": "new", "image": "x"}]}}, "spec.containers.2", {"name": "new", "image": "x"}),
        (
            {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]}},
            "spec.volumes",
            [{"name": "v", "hostPath": {"path": "/"}}],
        ),
        ({"spec": {"initContainers": [{"name": "i"}]}}, "spec.initContainers", [{"name": "i"}]),
    ],
)
def test_examples(patch: dict[str, Any], path: str, expected: Any) -> None:
    assert merging.problems(patch) == []
    found: Any = merging.merge(POD, patch)
    for part in path.split("."):
        found = found[int(part)] if isinstance(found, list) else found[part]
    assert found == expected


@pytest.mark.parametrize(
    ("patch", "problem"),
    [
        ("text", "spec.patch: must be an object"),
        ({"status": {}}, "spec.patch.status: a profile changes metadata and spec only"),
        ({"metadata": {"name": "x"}}, "spec.patch.metadata.name: a profile cannot change this"),
        ({"spec": []}, "spec.patch.spec: must be an object"),
        ({"spec": {"priority": 5}}, "spec.patch.spec.priority"),
        ({"spec": {"containers": [{"image": "x"}]}}, "spec.patch.spec.containers[0]: must be an object with name"),
        ({"spec": {"containers": ["x"]}}, "spec.patch.spec.containers[0]"),
        ({"spec": {"$setElementOrder/containers": []}}, "this directive is not supported"),
        ({"spec": {"nodeSelector": {"$patch": "remove"}}}, "give replace, merge or delete"),
        ({"spec": {"tolerations": [{"$patch": "replace"}]}}, "this list is replaced as a whole"),
        ({"metadata": {"$deleteFromPrimitiveList/finalizers": "x"}}, "must be a list"),
    ],
)
def test_what_is_refused(patch: Any, problem: str) -> None:
    assert any(problem in found for found in merging.problems(patch)), merging.problems(patch)


@settings(max_examples=60)
@given(objects.pods(), objects._PATCHES)
def test_merging_twice_is_merging_once(pod: dict[str, Any], patch: Any) -> None:
    once = merging.merge(pod, patch or {})
    assert merging.merge(once, patch or {}) == once
