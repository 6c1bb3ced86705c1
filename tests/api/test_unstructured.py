"""Objects of which any part may be absent."""

from typing import Any

import pytest

from cotenant.api import unstructured


def test_what_is_there_is_returned() -> None:
    metadata = {"labels": {"a": "b"}, "annotations": {"c": "d"}, "uid": "u", "generation": 3}
    value = {"metadata": metadata}
    assert unstructured.metadata(value) == metadata
    assert unstructured.labels(value) == {"a": "b"}
    assert unstructured.annotations(value) == {"c": "d"}
    assert (unstructured.uid(value), unstructured.generation(value)) == ("u", 3)


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        {"metadata": None},
        {"metadata": {"labels": None, "annotations": None, "uid": None, "generation": None}},
    ],
)
def test_what_is_absent_or_null_is_empty(value: dict[str, Any] | None) -> None:
    assert unstructured.labels(value) == unstructured.annotations(value) == {}
    assert (unstructured.uid(value), unstructured.generation(value)) == ("", 0)
