"""What a rollout leaves on a node, and that taking it back is exact."""

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.api.rollout import HOLD_ANNOTATION
from cotenant.manager.rollout.holding import Hold, hold_of, holding_patch, release_patch

KEYS = ["cotenant.io/mode", "cotenant.io/slo-revision", "example.com/pool"]
values = st.sampled_from(["a", "b", "c"])
labels = st.dictionaries(st.sampled_from(KEYS), values)


def merged(node: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Return a node with a merge patch applied, as the API server does it."""
    result = copy.deepcopy(node)
    for part in ("labels", "annotations"):
        for key, value in patch["metadata"].get(part, {}).items():
            if value is None:
                result["metadata"].setdefault(part, {}).pop(key, None)
            else:
                result["metadata"].setdefault(part, {})[key] = value
    return result


def hold(wanted: dict[str, str]) -> Hold:
    return Hold(rollout="r", uid="u", stage="s", at="2026-11-30T00:00:00Z", set=wanted, was={})


def node(found: dict[str, str]) -> dict[str, Any]:
    metadata = {"name": "n", "uid": "n-uid", "resourceVersion": "7", "labels": dict(found), "annotations": {"x": "y"}}
    return {"metadata": metadata}


@settings(max_examples=60)
@given(labels, labels, st.dictionaries(st.sampled_from(KEYS), st.one_of(values, st.none())))
def test_taking_back_restores_each_label_that_nobody_changed_since(
    before: dict[str, str], wanted: dict[str, str], people: dict[str, str | None]
) -> None:
    first = node(before)
    patch = holding_patch(first, hold(wanted))
    assert patch is not None
    held = merged(first, patch)
    assert held["metadata"]["labels"] == before | wanted
    assert holding_patch(held, hold({"cotenant.io/mode": "z"})) is None, "held once"
    edited = merged(held, {"metadata": {"labels": people}})
    back = release_patch(edited, "u")
    assert back is not None
    assert back["metadata"]["resourceVersion"] == "7"
    released = merged(edited, back)
    for key in KEYS:
        now = edited["metadata"]["labels"].get(key)
        touched = key not in wanted or now != wanted[key]
        assert released["metadata"]["labels"].get(key) == (now if touched else before.get(key)), key
    assert released["metadata"]["annotations"] == {"x": "y"}
    assert release_patch(released, "u") is None, "nothing is left to take back"


def test_what_is_kept_stays_and_the_rest_goes() -> None:
    first = node({})
    patch = holding_patch(first, hold({"cotenant.io/mode": "enforce", "cotenant.io/slo-revision": "7"}))
    assert patch is not None
    back = release_patch(merged(first, patch), "u", keep=frozenset({"cotenant.io/mode"}))
    assert back is not None
    assert back["metadata"]["labels"] == {"cotenant.io/slo-revision": None}


def test_another_rollout_s_hold_is_not_ours_to_end() -> None:
    first = node({})
    patch = holding_patch(first, hold({"cotenant.io/mode": "enforce"}))
    assert patch is not None
    assert release_patch(merged(first, patch), "somebody") is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"rollout":"r"}', '{"rollout":"r","uid":"u","stage":"s","at":"","set":{"a":"b"},"was":{}}']
)
def test_an_annotation_that_cannot_be_read_is_left_alone(text: str) -> None:
    broken = node({"cotenant.io/mode": "enforce"})
    broken["metadata"]["annotations"][HOLD_ANNOTATION] = text
    with pytest.raises(ValueError, match=r".+"):
        hold_of(broken["metadata"]["annotations"])
    assert release_patch(broken, "u") is None
    assert holding_patch(broken, hold({"cotenant.io/mode": "observe"})) is None


def test_the_annotation_is_json_that_people_can_read() -> None:
    patch = holding_patch(node({"cotenant.io/mode": "dry-run"}), hold({"cotenant.io/mode": "enforce"}))
    assert patch is not None
    assert msgspec.json.decode(patch["metadata"]["annotations"][HOLD_ANNOTATION]) == {
        "rollout": "r",
        "uid": "u",
        "stage": "s",
        "at": "2026-11-30T00:00:00Z",
        "set": {"cotenant.io/mode": "enforce"},
        "was": {"cotenant.io/mode": "dry-run"},
    }
