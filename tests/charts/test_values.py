"""The schema and the reference page are made of the comments in values.yaml, by rules of our own."""

import json
import pathlib
import sys

import pytest
import yaml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))

from tests.charts.conftest import CHART

import chart_pages

TEXT = """\
# Not a value: a comment on the file.

one:
  # What it is, in two
  # lines.
  # one of: a, b
  name: a
  # type: object
  free:
    anything: {goes: here}
    # even a comment
    more: 1
  # minimum: 0
  count: 2
  below:
    deep: true
# A list.
# type: list of strings
names:
- x
- y
last: "z"
"""


def test_a_value_has_its_description_its_rules_and_its_place() -> None:
    one, names, last = chart_pages.read(TEXT)
    assert [value.path for value in one.below] == [("one", "name"), ("one", "free"), ("one", "count"), ("one", "below")]
    name, free, count, below = one.below
    assert (name.description, name.rules) == ("What it is, in two lines.", {"one of": "a, b"})
    assert free.below == []
    assert free.default == {"anything": {"goes": "here"}, "more": 1}
    assert count.rules == {"minimum": "0"}
    assert [value.path for value in below.below] == [("one", "below", "deep")]
    assert (names.description, names.default, last.default) == ("A list.", ["x", "y"], "z")


@pytest.mark.parametrize(
    ("text", "why"),
    [("a: []\n", "needs a line"), ("# type: thing\na: 1\n", "type 'thing'"), ("a: null\n", "needs a line")],
)
def test_a_value_whose_type_cannot_be_told_is_refused(text: str, why: str) -> None:
    with pytest.raises(chart_pages.BadValues, match=why):
        chart_pages.schema_of(text)


def test_every_value_is_described_or_speaks_for_itself() -> None:
    plain = {"nodeSelector", "tolerations", "port", "priorityClassName", "pullPolicy", "resources", "affinity"}
    for value in (leaf for top in chart_pages.read((CHART / "values.yaml").read_text()) for leaf in leaves(top)):
        assert value.description or value.path[-1] in plain, ".".join(value.path)


def leaves(value: chart_pages.Value) -> list[chart_pages.Value]:
    return [value] if not value.below else [leaf for one in value.below for leaf in leaves(one)]


@pytest.mark.parametrize("path", sorted(CHART.glob("values-*.yaml")), ids=lambda path: path.stem)
def test_a_scenario_sets_only_what_there_is(path: pathlib.Path) -> None:
    schema = json.loads(chart_pages.schema())

    def check(tree: dict[str, object], node: dict[str, object], where: str) -> None:
        for key, value in tree.items():
            known = node["properties"]
            assert isinstance(known, dict)
            assert key in known, f"{path.name}: {where}{key}"
            if isinstance(value, dict) and "properties" in known[key]:
                check(value, known[key], f"{where}{key}.")

    check(yaml.safe_load(path.read_text()), schema, "")
