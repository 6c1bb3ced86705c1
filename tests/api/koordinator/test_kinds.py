"""Koordinator's kinds as definitions: what we write fits them, and what others write is kept."""

import json
import pathlib
from typing import Any

import pytest
import yaml
from tests.api.koordinator.test_node_metric import GIVEN
from tests.api.test_crd import faults

from cotenant.api import crd
from cotenant.api.koordinator import kinds, node_slo
from cotenant.api.koordinator.slo_config import SloConfig
from cotenant.cli import app

CHART = pathlib.Path(__file__).parents[3] / "charts" / "cotenant" / "koordinator"


def schema_of(plural: str) -> dict[str, Any]:
    (version,) = crd.definition(kinds.KINDS[plural])["spec"]["versions"]
    return dict(version["schema"]["openAPIV3Schema"])


def closed(found: Any) -> Any:
    """Return a schema that takes only the fields that it names."""
    if not isinstance(found, dict):
        return found
    named = "properties" in found
    return {
        key: closed(value)
        for key, value in found.items()
        if not (named and key == "x-kubernetes-preserve-unknown-fields")
    }


def test_what_the_manager_renders_is_named_field_by_field() -> None:
    spec = node_slo.rendered(SloConfig(), {})
    system = {name: value for name, value in spec["systemStrategy"].items() if name != "totalNetworkBandwidth"}
    value = {"spec": {**spec, "systemStrategy": system}}  # bandwidth is a number or text
    assert faults(value, closed(schema_of("nodeslos"))) == []


def test_a_node_metric_of_koordlet_is_named_field_by_field() -> None:
    given = {key: value for key, value in GIVEN.items() if key != "metadata"}
    assert faults(given, closed(schema_of("nodemetrics"))) == []


@pytest.mark.parametrize("plural", list(kinds.KINDS))
def test_fields_that_we_do_not_know_are_kept(plural: str) -> None:
    def walk(found: Any) -> None:
        if isinstance(found, dict):
            if "properties" in found:
                assert found.get("x-kubernetes-preserve-unknown-fields") is True
            for value in found.values():
                walk(value)

    for name, field in schema_of(plural)["properties"].items():
        if name not in ("apiVersion", "kind", "metadata"):
            walk(field)


def test_definitions_are_ours_by_label_and_in_the_chart() -> None:
    for plural, kind in kinds.KINDS.items():
        found = yaml.safe_load((CHART / f"{plural}.yaml").read_text())
        assert found == crd.definition(kind)
        assert found["metadata"]["labels"] == {"app.kubernetes.io/part-of": "cotenant"}
        assert found["metadata"]["name"] == f"{plural}.{kind.group}"


def test_the_command_prints_them_apart_from_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["crd", "print", "--koordinator", "--json"]) == 0
    names = [one["metadata"]["name"] for one in json.loads(capsys.readouterr().out)["items"]]
    assert names == [
        "nodeslos.slo.koordinator.sh",
        "nodemetrics.slo.koordinator.sh",
        "clustercolocationprofiles.config.koordinator.sh",
        "noderesourcetopologies.topology.node.k8s.io",
    ]
    assert app.run(["crd", "print", "--koordinator", "nir"]) == 2
    assert "give nodeslos or nodemetrics" in capsys.readouterr().err
