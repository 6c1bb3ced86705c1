"""Label selectors: what they match, and which do not parse."""

import msgspec
import pytest

from cotenant.api import selector
from cotenant.api.selector import LabelSelector

LABELS = {"app": "web", "tier": "front", "empty": ""}


def parsed(value: object) -> selector.Selector:
    return selector.compiled(msgspec.convert(value, LabelSelector), "spec.selector")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({}, True),
        ({"matchLabels": {}}, True),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "db"}}, False),
        ({"matchLabels": {"missing": ""}}, False),
        ({"matchLabels": {"empty": ""}}, True),
        ({"matchLabels": {"app": "web", "tier": "back"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["db", "web"]}]}, True),
        ({"matchExpressions": [{"key": "missing", "operator": "In", "values": ["web"]}]}, False),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, False),
        ({"matchExpressions": [{"key": "missing", "operator": "NotIn", "values": ["web"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "missing", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
        ({"matchExpressions": [{"key": "missing", "operator": "DoesNotExist", "values": []}]}, True),
    ],
)
def test_what_matches(value: object, expected: bool) -> None:
    assert parsed(value).matches(LABELS) is expected


def test_no_selector_matches_everything() -> None:
    assert selector.compiled(None, "spec.selector").matches({})


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"matchLabels": {"not a key": "x"}}, "spec.selector.matchLabels: 'not a key'"),
        ({"matchLabels": {"UPPER.example/x": "x"}}, "matchLabels: 'UPPER.example/x'"),
        ({"matchLabels": {"/x": "x"}}, "matchLabels: '/x'"),
        ({"matchLabels": {"app": "-web"}}, "matchLabels: '-web'"),
        ({"matchLabels": {"app": "w" * 64}}, "matchLabels"),
        ({"matchExpressions": [{"key": "app", "operator": "in", "values": ["x"]}]}, "matchExpressions[0]: operator"),
        ({"matchExpressions": [{"key": "app", "operator": "In"}]}, "matchExpressions[0]: values"),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": []}]}, "values must not be empty"),
        ({"matchExpressions": [{"key": "app", "operator": "Exists", "values": ["x"]}]}, "takes no values"),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a b"]}]}, "matchExpressions[0]: 'a b'"),
    ],
)
def test_what_does_not_parse(value: object, place: str) -> None:
    with pytest.raises(selector.BadSelector) as caught:
        parsed(value)
    assert place in str(caught.value)


def test_the_query_of_the_api_server() -> None:
    expressions = [
        {"key": "tier", "operator": "NotIn", "values": ["a", "b"]},
        {"key": "x", "operator": "Exists"},
        {"key": "y", "operator": "DoesNotExist"},
    ]
    found = parsed({"matchLabels": {"app": "web"}, "matchExpressions": expressions})
    assert found.query() == "app in (web),tier notin (a,b),x,!y"
    assert parsed({}).query() == ""
