"""From files of samples to rules that the parser takes, and that replay as was said."""

import json
import pathlib

import pytest
from tests.detect.test_recommendation import TODAY, Trace

from cotenant.cli import app
from cotenant.detect import parser, rendering, scoring
from cotenant.local import past
from cotenant.model import sample


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Samples, latencies and today's rules of one class of nodes."""
    directory = tmp_path_factory.mktemp("class-a")
    trace = Trace()
    with (directory / "samples.jsonl").open("wb") as file:
        for one in trace.samples():
            file.write(sample.encode(one) + b"\n")
    slow = trace.truth.of("")
    with (directory / "latency.jsonl").open("w") as lines:
        for one in trace.samples():
            at = past.timestamp.parse(one.time) or 0.0
            hurt = any(episode.start <= at <= episode.end for episode in slow)
            lines.write(json.dumps({"time": one.time, "service": "shop", "p99_seconds": 0.2 if hurt else 0.02}) + "\n")
    (directory / "today.yaml").write_text(rendering.text_of(TODAY))
    return directory


def run(files: pathlib.Path, *more: str) -> int:
    options = ["--from", str(files / "samples.jsonl"), "--rules", str(files / "today.yaml"), "--false-per-day", "24"]
    return app.run(["recommend", *options, *more])


def test_rules_are_written_that_can_be_applied_and_do_what_was_said(
    files: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "rules.yaml"
    more = ("--latency", str(files / "latency.jsonl"), "--name", "class-a", "--node-selector", "class=a")
    assert run(files, *more, "--write", str(out), "--json") == 0
    said = json.loads(capsys.readouterr().out)
    (parsed,) = parser.parse(out.read_text(), str(out))
    assert rendering.object_of(parsed.rules) == said["rules"]
    assert said["rules"]["spec"]["nodeSelector"] == {"class": "a"}
    assert said["holds"] is True
    assert (said["expected"]["false_triggers"], said["expected"]["missed_share"]) == (0, 0)
    assert said["today"]["calm_triggered_share"] > 0.9
    other = Trace(21)
    score = scoring.replay(parsed.rules, other.samples(), other.truth)
    assert score.missed == 0
    assert score.false_per_day is not None
    assert score.false_per_day <= said["expected"]["false_per_day_at_most"]


def test_people_see_both_side_by_side_and_the_rules(
    files: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert run(files) == 0
    text = capsys.readouterr().out
    assert "psi.io_some_ratio" in text
    assert "0.1 / 0.2 / 0.9" in text
    assert "No latency was given" in text
    (parsed,) = parser.parse(text[text.index("apiVersion:") :], "printed")
    assert parsed.rules.name == "recommended"


def test_too_little_is_exit_status_1_and_says_what_is_needed(
    files: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = tmp_path / "short.jsonl"
    short.write_bytes(b"".join((files / "samples.jsonl").read_bytes().splitlines(keepends=True)[:100]))
    assert app.run(["recommend", "--from", str(short), "--rules", str(files / "today.yaml")]) == 1
    assert "4 are needed; record for longer" in capsys.readouterr().err
    assert app.run(["recommend", "--from", "history", "--data", str(tmp_path / "none")]) == 2


def test_sources_are_not_mixed(files: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(files, "--from", "history") == 2
    assert run(files, "--node-selector", "x") == 2
    assert run(files, "--latency", "/nowhere") == 2
    assert run(files, "--write", "/nowhere/rules.yaml") == 2


def test_one_way_to_say_who_asks_a_prometheus(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["recommend", "--from", "prometheus"]
    assert app.run([*words, "--token-file", "a", "--basic-auth-file", "b"]) == 2
    assert "give one of" in capsys.readouterr().err
    assert app.run([*words, "--url", "http://user:secret@127.0.0.1:9090"]) == 2
    said = capsys.readouterr().err
    assert "an address names no user" in said
    assert "secret" not in said
