"""``manager render``: what nodes would get, from files."""

import json
import pathlib

import pytest
import yaml

from cotenant.cli import app

EXAMPLES = pathlib.Path(__file__).parents[2] / "docs" / "examples"
CONFIG, NODES = str(EXAMPLES / "slo-controller-config.yaml"), str(EXAMPLES / "nodes.yaml")


def test_each_node_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["manager", "render", CONFIG, NODES, "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["nodes"]
    assert first["nodeSLO"]["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"] == 65
    assert "selectedBy" not in first
    assert second["nodeSLO"]["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"] == 50
    assert second["selectedBy"] == {"resource-threshold-config": ["search"]}
    assert second["metricCollectPolicy"]["reportIntervalSeconds"] == 60


def test_without_nodes_it_is_one_without_labels(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["manager", "render", CONFIG]) == 0
    (only,) = yaml.safe_load_all(capsys.readouterr().out)
    assert only["nodeSLO"]["resourceQOSStrategy"] == {"beClass": {"cpuQOS": {"enable": True}}}


def test_what_cannot_be_used_is_named(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.json"
    data = {
        "system-config": '{"clusterStrategy": {"watermarkScaleFactor": 500, "x": 1}}',
        "cpu-burst-config": '{"y": 1}',
    }
    file.write_text(json.dumps({"kind": "ConfigMap", "data": data}))
    assert app.run(["manager", "render", str(file)]) == 1
    told = capsys.readouterr()
    assert "refused: system-config: clusterStrategy.watermarkScaleFactor is 500: not within 1..400" in told.err
    assert "cpu-burst-config: nobody knows y" in told.err
    assert yaml.safe_load(told.out)["nodeSLO"]["systemStrategy"]["watermarkScaleFactor"] == 150


def test_json_that_is_no_text_is_named(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("kind: ConfigMap\ndata: {colocation-config: {enable: true}}\n")
    assert app.run(["manager", "render", str(file)]) == 1
    assert "colocation-config: not a text" in capsys.readouterr().err


def test_without_the_config_map_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["manager", "render", NODES]) == 2
    assert "0 ConfigMaps: give the one named slo-controller-config" in capsys.readouterr().err
