"""The operations turn one document into the other, by an implementation of RFC 6902 that is only here."""

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.manager.webhook import patching

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b/c", "d~e", ""]), inner),
    max_leaves=8,
)


def applied(document: Any, operations: list[dict[str, Any]]) -> Any:
    """Return the document after the operations; raises where RFC 6902 makes one an error."""
    whole = {"": copy.deepcopy(document)}
    for operation in operations:
        parts = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")]
        *parents, last = parts
        target: Any = whole
        for part in parents:
            target = target[int(part)] if isinstance(target, list) else target[part]
        if isinstance(target, list):
            if operation["op"] == "add":
                target.insert(len(target) if last == "-" else int(last), operation["value"])
            else:
                assert operation["op"] == "replace"
                target[int(last)] = operation["value"]
        elif operation["op"] == "remove":
            del target[last]
        else:
            assert operation["op"] == "add" or last in target
            target[last] = operation["value"]
    return whole[""]


@settings(max_examples=150)
@given(DOCUMENTS, DOCUMENTS)
def test_the_operations_lead_from_one_to_the_other(before: Any, after: Any) -> None:
    assert patching._same(applied(before, patching.difference(before, after)), after)


@settings(max_examples=30)
@given(DOCUMENTS)
def test_nothing_to_do_between_equals(document: Any) -> None:
    assert patching.difference(document, copy.deepcopy(document)) == []


def test_what_is_added_is_named_and_nothing_else() -> None:
    before = {"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [{"name": "x"}], "n": True}}
    after = {"metadata": {"labels": {"a": "1", "b.c/d": "2"}}, "spec": {"containers": [{"name": "x", "y": 1}], "n": 1}}
    assert patching.difference(before, after) == [
        {"op": "add", "path": "/metadata/labels/b.c~1d", "value": "2"},
        {"op": "add", "path": "/spec/containers/0/y", "value": 1},
        {"op": "replace", "path": "/spec/n", "value": 1},
    ]


def test_a_null_is_added_over() -> None:
    assert patching.difference({"labels": None}, {"labels": {"a": "b"}}) == [
        {"op": "add", "path": "/labels", "value": {"a": "b"}}
    ]
