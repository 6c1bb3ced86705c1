import json
import pathlib

import pytest
import yaml

from cotenant.cli import app


def test_print_gives_all_definitions_or_the_one_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["crd", "print"]) == 0
    names = [found["metadata"]["name"] for found in yaml.safe_load_all(capsys.readouterr().out)]
    assert names == [
        "nodeinterferencereports.cotenant.io",
        "detectionruleconfigs.cotenant.io",
        "colocationrollouts.cotenant.io",
    ]
    assert app.run(["crd", "print", "drc", "--json"]) == 0
    (only,) = json.loads(capsys.readouterr().out)["items"]
    assert only["spec"]["names"]["shortNames"] == ["drc"]


def test_another_kind_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["crd", "print", "pods"]) == 2
    assert "give nir or drc or crl" in capsys.readouterr().err


def test_install_without_a_cluster_says_so(capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path) -> None:
    assert app.run(["crd", "install", "--kubeconfig", str(tmp_path / "none")]) == 2
    assert "give --kubeconfig" in capsys.readouterr().err
