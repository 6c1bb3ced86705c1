from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.units.malformed import problem


class Container(msgspec.Struct):
    limits: dict[str, int] = {}


class Pod(msgspec.Struct):
    labels: dict[str, str] = {}
    containers: list[Container] = []
    zones: dict[str, dict[str, Container]] = {}
    weights: dict[int, float] = {}


def complaint(value: Any, encoded: bool = False) -> str:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(value, Pod, str_keys=True)
    return problem(caught.value, msgspec.json.encode(value) if encoded else value, Pod)


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"labels": {"a": "x", "b/c.d": 3}}, '$.labels["b/c.d"]'),
        ({"containers": [{}, {"limits": {"cpu": 1, "memory": "2Gi"}}]}, '$.containers[1].limits["memory"]'),
        (
            {"zones": {"a": {"x": {}}, "b": {"x": {}, "y": {"limits": {"cpu": None}}}}},
            '$.zones["b"]["y"].limits["cpu"]',
        ),
        ({"zones": {"a": {"x": 1}}}, '$.zones["a"]["x"]'),
        ({"zones": 3}, "$.zones"),
        ({"labels": {'q"': 1}}, '$.labels["q\\""]'),
    ],
)
@pytest.mark.parametrize("encoded", [False, True])
def test_the_entry_of_a_map_is_named(value: Any, place: str, encoded: bool) -> None:
    assert complaint(value, encoded).endswith(f" - at `{place}`")


def test_the_first_of_several_wrong_entries_is_named() -> None:
    assert complaint({"labels": {"a": 1, "b": 2}}).endswith('`$.labels["a"]`')


def test_what_cannot_be_told_is_left_as_it_came() -> None:
    many = {"labels": {str(number): "x" for number in range(1001)} | {"wrong": 1}}
    assert complaint(many).endswith("`$.labels[...]`")
    error = msgspec.ValidationError("Expected `str`, got `int` - at `$.labels[...]`")
    assert problem(error, {"labels": {"a": "right"}}, Pod) == str(error)
    assert problem(error, b"{", Pod) == str(error)
    assert problem(RecursionError("too deep"), {}, Pod) == "too deep"


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.none(), max_size=6))
def test_whatever_is_named_is_wrong(labels: dict[str, Any]) -> None:
    try:
        msgspec.convert({"labels": labels}, Pod)
    except msgspec.ValidationError as error:
        named = problem(error, {"labels": labels}, Pod).partition(" - at `$.labels[")[2].removesuffix("]`")
        assert not isinstance(labels[msgspec.json.decode(named)], str)
