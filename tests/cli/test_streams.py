"""Standard streams in other conditions than a terminal's: full, closed, unread, in a locale without UTF-8."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

COTENANT = [sys.executable, "-m", "cotenant"]
NO_UTF8 = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
LATIN = {"PYTHONIOENCODING": "latin-1"}
SAMPLE = '{"node":"n\u00fc","time":"2026-11-30T00:00:00Z","uptime_s":1}\n'


@pytest.mark.parametrize("locale", [NO_UTF8, LATIN], ids=["C", "latin-1"])
@pytest.mark.parametrize("command", ["replay", "explain"])
def test_json_stays_json_in_a_locale_without_utf_8(
    command: str, locale: dict[str, str], tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "s.jsonl"
    file.write_text(SAMPLE)
    done = subprocess.run([*COTENANT, command, file, "--json"], env=os.environ | locale, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    answer = json.loads(done.stdout.decode("ascii"))
    assert answer.get("evaluation", answer)["node"] == "n\u00fc"


def test_text_for_people_is_whole_in_a_locale_without_utf_8(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "s.jsonl"
    file.write_text(SAMPLE)
    done = subprocess.run([*COTENANT, "replay", file], env=os.environ | NO_UTF8, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"n\\u00fc" in done.stdout.splitlines()[1]


def test_a_file_whose_name_is_no_text_is_named_all_the_same(tmp_path: pathlib.Path) -> None:
    name = os.fsdecode(b"r\xff.yaml")
    (tmp_path / name).write_text("kind: DetectionRuleConfig\napiVersion: cotenant.io/v1alpha1\n")
    for options in ([], ["--json"]):
        command = [*COTENANT, "config", "check", name, *options]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True)
        assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["files"][0]["file"] == r"r\udcff.yaml"


def test_a_name_that_is_no_text_is_refused_where_only_text_can_go() -> None:
    command = [*COTENANT, "explain", "pod", os.fsdecode(b"n/\xff")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "cotenant: 'n/\\udcff' is not UTF-8 text; write it in UTF-8\n"


def test_a_remark_that_cannot_be_written_changes_no_status(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "s.jsonl"
    file.write_text(SAMPLE + '{"node"')
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COTENANT, "replay", file, "--json"], stdout=subprocess.PIPE, stderr=full)
    assert done.returncode == 3
    assert json.loads(done.stdout)["bucket"] == "unknown"


@pytest.mark.parametrize(("unbuffered", "printed"), [("1", "now"), ("", "")])
def test_output_is_as_unbuffered_as_python_is_told_to_be(unbuffered: str, printed: str) -> None:
    program = (
        "import os, sys; from cotenant.cli import streams as s; s.open_all(); sys.stdout.write('now'); os._exit(0)"
    )
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, printed)
