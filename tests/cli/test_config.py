import json
import pathlib

import pytest
from tests.detect.test_parser import EXAMPLE

from cotenant.cli import app
from cotenant.local import revisions


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = app.run(["config", *words])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


@pytest.fixture
def good(tmp_path: pathlib.Path) -> pathlib.Path:
    file = tmp_path / "good.yaml"
    file.write_text(EXAMPLE)
    return file


@pytest.fixture
def bad(tmp_path: pathlib.Path) -> pathlib.Path:
    file = tmp_path / "bad.yaml"
    file.write_text(EXAMPLE.replace("block.p99_usec", "block.p99").replace("enterFor: 2", "enterFor: 0"))
    return file


def test_check_says_yes(good: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "check", str(good)) == (0, f"{good}: valid (default)\n", "")


def test_check_says_no_with_every_place_and_exit_1(bad: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "check", str(bad))
    assert (status, out) == (1, "")
    first, second = err.splitlines()
    assert first == (
        f"cotenant: {bad}:13: spec.detections.ioCongestion.signals[0].signal: unknown signal 'block.p99'; "
        "did you mean 'block.p99_usec'?"
    )
    assert second.startswith(f"cotenant: {bad}:16: spec.hysteresis.enterFor: 0 must be at least 1")


def test_check_of_several_files_as_json(
    good: pathlib.Path, bad: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = run(capsys, "check", str(good), str(bad), str(good.parent / "none"), "--json")
    answer = json.loads(out)
    assert (status, answer["valid"]) == (2, False)
    assert [file["valid"] for file in answer["files"]] == [True, False, False]
    problem = answer["files"][1]["problems"][0]
    assert (problem["line"], problem["nearest"]) == (13, "block.p99_usec")
    assert problem["key"] == "spec.detections.ioCongestion.signals[0].signal"


def test_check_holds_the_window_against_the_period(good: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "check", str(good), "--period", "3s")[0] == 0
    assert run(capsys, "check", str(good), "--period", "4s")[0] == 1
    assert run(capsys, "check", str(good), "--period", "4")[0] == 2


def test_explain_says_where_each_value_came_from(good: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "explain", str(good), "--json")
    values = {value["key"]: value for value in json.loads(out)["default"]}
    assert status == 0
    assert values["spec.hysteresis.enterFor"]["origin"] == f"{good}:16"
    signal = values["spec.detections.ioCongestion.signals[0]"]
    assert (signal["origin"], signal["value"]["threshold"]) == (f"{good}:13", 20000)
    memory = values["spec.detections.memoryPressure.signals[0]"]
    assert memory["origin"] == "preset default"
    assert memory["reason"]
    assert run(capsys, "explain", str(good))[1].splitlines()[0] == "preset: default"


def test_every_value_of_every_preset_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("default", "mco"):
        values = json.loads(run(capsys, "presets", name, "--json")[1])
        unexplained = [v["key"] for v in values if not v["reason"] and not v["key"].endswith((".enabled", ".weight"))]
        assert [key for key in unexplained if "ignals" not in key] == []
        assert [key for key in unexplained if "[" in key] == []
    assert run(capsys, "explain")[1] == run(capsys, "presets", "default")[1]


def test_presets_are_listed_and_an_unknown_one_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(json.loads(run(capsys, "presets", "--json")[1])) == ["default", "mco"]
    status, _, err = run(capsys, "presets", "mc0")
    assert status == 2
    assert "no preset 'mc0'; there are default, mco" in err


def test_who_only_looks_makes_no_directory(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    assert json.loads(run(capsys, "history", "--data", str(data), "--json")[1]) == []
    assert run(capsys, "rollback", "--data", str(data))[0] == 2
    assert not data.exists()


def test_history_and_rollback(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, data = tmp_path / "r.yaml", tmp_path / "data"
    store = revisions.Revisions(data)
    for window in (10, 20):
        text = EXAMPLE.replace("windowSeconds: 10", f"windowSeconds: {window}")
        store.record(text, str(file), "change", 0)
    history = json.loads(run(capsys, "history", "--data", str(data), "--json")[1])
    assert [(one["number"], one["file"]) for one in history] == [(1, str(file)), (2, str(file))]
    assert run(capsys, "rollback", "--data", str(data))[0] == 0
    assert file.read_text() == EXAMPLE
    assert run(capsys, "rollback", "9", "--data", str(data))[0] == 2


def test_templates_are_listed_and_one_is_shown_beside_the_preset(
    capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert app.run(["config", "templates"]) == 0
    assert "io-stress BE hard cachePollution 0.15" in " ".join(capsys.readouterr().out.split())
    assert app.run(["config", "templates", "redis"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "online.run_queue_latency_p99_usec 1000 / 4000 / 20000 2000 / 8000 / 40000" in shown
    own = tmp_path / "own.yaml"
    own.write_text(
        "apiVersion: cotenant.io/v1alpha1\nkind: StrategyTemplates\ntemplates: {ledger: {qosClass: LSR}, web: null}\n"
    )
    assert app.run(["config", "templates", "ledger", "--json", "--file", str(own)]) == 0
    assert json.loads(capsys.readouterr().out)["templates"]["ledger"]["qosClass"] == "LSR"
    own.write_text(own.read_text().replace("LSR", "LSD"))
    assert app.run(["config", "templates", "--file", str(own)]) == 2
    assert "own.yaml:3: templates.ledger.qosClass: 'LSD' is not one of LSE, LSR, LS, BE" in capsys.readouterr().err


def test_a_type_that_is_not_there_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["config", "templates", "redsi"]) == 2
    assert "there are batch, inference" in capsys.readouterr().err
