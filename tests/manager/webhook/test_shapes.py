"""Objects of another shape than the API server's: answered, or refused with the place, and never an error of ours."""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from tests.manager.webhook import objects

from cotenant.api.errors import BadRequest
from cotenant.manager.webhook import profiles, shapes
from cotenant.manager.webhook.answering import Answering
from cotenant.manager.webhook.review import Request
from cotenant.manager.webhook.surroundings import Surroundings

CONFIGURATION = "koordinator-system/slo-controller-config"
JUNK: tuple[Any, ...] = (None, 1, 1.5, "", "x", [], {}, [None], ["x"], {"a": None}, True)
_TERM = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
POD = objects.pod(
    {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
    labels={"app": "web"},
    annotations={"cotenant.io/profiles": "{}"},
    initContainers=[{"name": "side", "restartPolicy": "Always", "resources": {"limits": {"cpu": 1}}}],
    affinity={
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_TERM]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": _TERM}],
        },
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]},
    },
)
POD["spec"]["resources"] = {"requests": {}}
NODE = {
    "metadata": {"name": "n1", "annotations": {"node.koordinator.sh/resource-amplification-ratio": '{"cpu":1.5}'}},
    "status": {"capacity": {"cpu": "2"}, "allocatable": {"cpu": "2"}},
}
CONFIG_MAP = {"metadata": {"name": "slo-controller-config"}, "data": {"cpu-burst-config": "{}"}}
PROFILE = {
    "metadata": {"name": "a", "annotations": {"config.koordinator.sh/skip-update-resources": "true"}},
    "spec": {
        "selector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["x"]}]},
        "probability": 5,
        "labels": {"a": "b"},
        "patch": {"spec": {"containers": [{"name": "main", "env": [{"name": "A"}]}]}},
    },
}


class Cluster:
    """One profile that touches whatever it can."""

    @property
    def ready(self) -> Sequence[profiles.Ready]:
        patch = {"spec": {"containers": [{"name": "main", "env": [{"name": "A", "value": "1"}]}]}}
        return [objects.offline(labelSuffixes={"app": "-x"}, labelKeysMapping={"app": "tier"}, patch=patch)]

    async def around(self, namespace: str) -> Surroundings:
        return objects.around()

    def has_priority_class(self, name: str) -> bool:
        return True


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of everything in a document."""
    yield place
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from places(one, (*place, key))


def spoilt(value: Any, place: tuple[Any, ...], junk: Any) -> Any:
    """Return the document with something else in one place."""
    if not place:
        return junk
    changed = copy.deepcopy(value)
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = junk
    return changed


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
@pytest.mark.parametrize(
    ("method", "good"),
    [
        ("mutate_pod", POD),
        ("validate_pod", POD),
        ("mutate_node_status", NODE),
        ("validate_configuration", CONFIG_MAP),
        ("validate_profile", PROFILE),
    ],
)
async def test_whatever_stands_in_one_place_there_is_an_answer_or_a_bad_request(
    method: str, good: dict[str, Any], operation: str
) -> None:
    answering = Answering(Cluster(), "hard", CONFIGURATION)
    answered, refusals = 0, []
    for place in places(good):
        for junk in JUNK:
            request = Request(
                uid="u1",
                operation=operation,
                namespace="koordinator-system",
                name="slo-controller-config",
                object=spoilt(good, place, junk),
                old_object=good if operation == "UPDATE" else None,
            )
            try:
                (await getattr(answering, method)(request)).encode()
                answered += 1
            except BadRequest as error:
                refusals.append(str(error))
    assert answered
    assert all(text.startswith(("AdmissionReview: object: ", f"AdmissionReview: {operation} ")) for text in refusals)


def test_the_place_is_named() -> None:
    with pytest.raises(BadRequest, match=r'oldObject: Expected `str`, got `int` - at `\$.metadata.labels\["app"\]`'):
        shapes.checked({"metadata": {"labels": {"app": 1}}}, shapes.Pod, "oldObject")
