import json
import pathlib
import subprocess
import sys

import pytest

from cotenant.cli import app, record, sampling
from cotenant.kernel import paths, sampler

TREE = pathlib.Path(__file__).parent.parent / "fixtures" / "mainline-6.18-v1"


def test_json_is_one_object_a_line(capsys):
    assert app.run(["sample", "--json", "--root", str(TREE), "--period", "10ms", "--count", "2"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["node"] for line in lines] == ["n1", "n1"]
    assert lines[0]["psi"]["io_some_ratio"] == 0.0
    assert lines[1]["period_s"] > 0


def test_the_table_says_why_a_signal_is_unknown(capsys):
    assert app.run(["sample", "--root", str(TREE), "--period", "10ms"]) == 0
    assert "unknown: unsupported" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--period", "1"], ["--period", "0s"], ["--root", "/nowhere"], ["--count", "0"]])
def test_bad_usage_is_one_line_and_exit_2(words, capsys):
    assert app.run(["sample", "--json", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1


def test_ticks_keep_to_a_grid_and_leave_out_missed_ones():
    now, slept, reads = [0.0], [], []

    class Source(sampler.Sampler):
        def sample(self):
            reads.append(now[0])
            now[0] += 2.5 if len(reads) == 2 else 0.1
            return super().sample()

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    source = Source(paths.Root(TREE), period_s=1.0)
    assert len(list(sampling.ticks(source, 3, now=lambda: now[0], sleep=sleep))) == 3
    assert reads == pytest.approx([0.0, 1.1, 4.1, 5.1])


def test_record_appends_whole_lines(tmp_path):
    file = tmp_path / "r.jsonl"
    for _ in range(2):
        assert app.run(["record", str(file), "--root", str(TREE), "--period", "10ms", "--count", "2"]) == 0
    assert len([json.loads(line) for line in file.read_text().splitlines()]) == 4


def test_record_cuts_off_half_a_sample_and_refuses_other_files(tmp_path):
    file = tmp_path / "r.jsonl"
    file.write_text('{"node":"a","time":"t"}\n{"node":"a","ti')
    with record.Record(file) as opened:
        opened.append(b'{"node":"b","time":"t"}')
    assert [json.loads(line)["node"] for line in file.read_text().splitlines()] == ["a", "b"]
    file.write_text("a shopping list")
    with pytest.raises(record.BadRecord):
        record.Record(file)
    assert file.read_text() == "a shopping list"


def test_record_adds_the_newline_that_was_lost(tmp_path):
    file = tmp_path / "r.jsonl"
    file.write_text('{"node":"a","time":"t"}')
    with record.Record(file) as opened:
        opened.append(b'{"node":"b","time":"t"}')
    assert len(file.read_text().splitlines()) == 2


def test_a_full_disk_leaves_no_half_line():
    with record.Record(pathlib.Path("/dev/full")) as full, pytest.raises(record.BadRecord, match="free space"):
        full.append(b"{}")


@pytest.mark.slow
def test_what_was_recorded_survives_kill_9(tmp_path):
    file = tmp_path / "r.jsonl"
    arguments = ["record", str(file), "--root", str(TREE), "--period", "5ms"]
    command = [sys.executable, "-m", "cotenant", *arguments, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for _ in range(3):
            process.stdout.readline()
        process.kill()
    lines = file.read_text().splitlines(keepends=True)
    assert len(lines) >= 3
    assert all(line.endswith("\n") and json.loads(line) for line in lines)


@pytest.mark.parametrize(
    "content", ["root:x:0:0::/root:/bin/sh\n", '{"kind":"List"}\n', '{"node":"a","time":"t"}\nmore\n']
)
def test_record_leaves_whole_lines_of_something_else_alone(tmp_path, content):
    file = tmp_path / "passwd"
    file.write_text(content)
    with pytest.raises(record.BadRecord, match="something other than samples"):
        record.Record(file)
    assert file.read_text() == content


@pytest.mark.parametrize("words", [["sample"], ["top", "--once"]])
def test_a_period_of_a_millisecond_is_refused(words, capsys):
    assert app.run([*words, "--root", str(TREE), "--period", "1ms"]) == 2
    assert "5ms or more" in capsys.readouterr().err


def test_a_period_that_the_rules_cannot_judge_is_refused(capsys):
    assert app.run(["top", "--once", "--root", str(TREE), "--period", "1h"]) == 2
    assert "must hold 3 periods" in capsys.readouterr().err
