import json
import pathlib

import pytest
from tests.detect.samples import at

from cotenant.cli import app
from cotenant.model import sample

RULES = """\
apiVersion: cotenant.io/v1alpha1
kind: DetectionRuleConfig
spec:
  detections:
    ioCongestion:
      signals: [{signal: psi.io_some_ratio, normal: 0.1, threshold: 0.3, saturation: 0.9}]
"""


def write(path: pathlib.Path, seconds: int, value: float = 0.5) -> pathlib.Path:
    lines = [sample.encode(at(second, psi={"io_some_ratio": value})).decode() for second in range(seconds)]
    path.write_text("".join(line + "\n" for line in lines))
    return path


def test_one_line_for_each_sample_in_the_contracts_shape(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = tmp_path / "r.yaml"
    rules.write_text(RULES)
    file = write(tmp_path / "s.jsonl", 5)
    assert app.run(["replay", str(file), "--rules", str(rules), "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 5
    last = lines[-1]
    assert list(last) == [
        "node",
        "time",
        "interferenceLevel",
        "bucket",
        "coverage",
        "detections",
        "hard",
        "missing",
    ]
    assert (last["node"], last["time"]) == ("n1", "2026-11-30T00:00:04.000Z")
    congestion = last["detections"]["ioCongestion"]
    assert list(congestion) == ["triggered", "index", "signals", "victims", "suspects"]
    assert congestion["triggered"] is True
    assert congestion["signals"] == {"psi.io_some_ratio": {"value": 0.5, "index": 0.5, "threshold": 0.3}}
    assert lines[0]["detections"]["ioCongestion"]["triggered"] is None
    assert lines[0]["interferenceLevel"] is None
    assert last["missing"]["llc.miss_ratio"] == "too_few"


def test_the_same_bytes_every_time(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "s.jsonl", 60)
    outputs = []
    for _ in range(2):
        assert app.run(["replay", str(file), "--json"]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]


def test_unknown_keys_are_ignored_and_absent_ones_unknown(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "s.jsonl"
    file.write_text('{"node":"n","time":"2026-11-30T00:00:00Z","extra":{"a":[1]},"psi":{"new_ratio":1}}\n\n')
    assert app.run(["replay", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bucket"] == "unknown"


@pytest.mark.parametrize("line", ["{", "[]", "null", '{"node":"n"}', '{"node":"n","time":3}', "\x00", "\xff"])
def test_a_line_that_is_no_sample_ends_it_with_its_number(
    line: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "s.jsonl", 2)
    file.write_bytes(file.read_bytes() + line.encode("latin-1") + b"\n")
    assert app.run(["replay", str(file), "--json"]) == 2
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 2
    assert printed.err.startswith(f"cotenant: {file}:3: not a sample: ")
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize(("tail", "status"), [('{"node":"n","ti', 3), ('{"node":"n"}', 2), ("nonsense", 2)])
def test_only_half_an_object_is_taken_for_a_line_that_was_cut_off(
    tail: str, status: int, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "s.jsonl", 2)
    file.write_text(file.read_text() + tail)
    assert app.run(["replay", str(file), "--json"]) == status
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 2
    assert f"{file}:3: " in printed.err


def test_a_sample_without_any_time_is_named_by_its_line(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "s.jsonl"
    file.write_text('{"node":"n","time":""}\n')
    assert app.run(["replay", str(file)]) == 2
    assert f"{file}:1: node n: no uptime_s" in capsys.readouterr().err


def test_bad_rules_and_missing_files_are_one_line(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "s.jsonl", 1)
    rules = tmp_path / "r.yaml"
    rules.write_text(RULES.replace("psi.io_some_ratio", "psi.io_som_ratio"))
    assert app.run(["replay", str(file), "--rules", str(rules)]) == 2
    assert "r.yaml:6: " in capsys.readouterr().err
    assert app.run(["replay", str(tmp_path / "none")]) == 2
    assert "cannot be read: No such file" in capsys.readouterr().err
    assert app.run(["replay", str(tmp_path)]) == 2
    assert "Is a directory" in capsys.readouterr().err


def test_a_table_for_people(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = tmp_path / "r.yaml"
    rules.write_text(RULES)
    assert app.run(["replay", str(write(tmp_path / "s.jsonl", 5)), "--rules", str(rules)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["TIME", "NODE", "LEVEL", "BUCKET", "KNOWN", "TRIGGERED"]
    assert lines[-1].split()[1:] == ["n1", "0.50", "high", "30", "%", "ioCongestion", "0.50"]
