"""The kinds' definitions against the API servers' own schemas, strictly: an unknown field is a fault."""

import copy
import pathlib
from typing import Any

import pytest
import yaml
from tests import schemas

pytestmark = pytest.mark.slow

CHART = pathlib.Path(__file__).parents[2] / "charts/cotenant"
DEFINITIONS = sorted([*CHART.glob("definitions/*.yaml"), *CHART.glob("koordinator/*.yaml")])
VERSIONS = [f"1.{minor}" for minor in range(25, 38)]
"""All that the package knows from 1.24 on; it has no schemas of 1.24 itself."""


def load(path: pathlib.Path) -> dict[str, Any]:
    return dict(yaml.safe_load(path.read_text()))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_definition_is_accepted(version: str) -> None:
    assert len(DEFINITIONS) >= 7
    for path in DEFINITIONS:
        assert schemas.validate(load(path), version) == version, path


def test_a_fault_is_seen() -> None:
    broken = copy.deepcopy(load(DEFINITIONS[0]))
    broken["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["propertys"] = {}
    with pytest.raises(schemas.ValidationError, match="propertys"):
        schemas.validate(broken, VERSIONS[0])
