import os
import pathlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.latency.errors import BadSource, Unreadable
from cotenant.latency.log import READ_LIMIT_BYTES, Pattern, Tail

COMBINED = '10.0.0.1 - - [30/Nov/2026:10:00:00 +0000] "GET /a?rt=9 HTTP/1.1" 200 612 "-" "curl/8 (x)" {}'


@pytest.mark.parametrize(
    ("pattern", "line", "seconds"),
    [
        ('" {seconds}$', COMBINED.format("0.013"), 0.013),
        ("{seconds}$", COMBINED.format("0.013"), 0.013),
        ("rt={seconds}", COMBINED.format("rt=0.2 uct=0.1"), 9.0),  # the first place that fits: choose the text well
        (" rt={seconds} ", COMBINED.format("rt=0.2 uct=0.1"), 0.2),
        ('"took":{milliseconds},', '{"took":17.5,"path":"/"}', 0.0175),
        ("{microseconds}", "1500 GET /", 0.0015),
        ("{microseconds}", "GET 1500", None),
        ("took {seconds}s$", "done, took 2s", 2.0),
        ("rt={seconds}", "rt=-", None),
        ("rt={seconds}", "rt=- rt=3", 3.0),
        ("rt={seconds}", "rt=1.2.3", None),
        ("{seconds}$", "no number", None),
        ("aa{seconds}", "aaa5", 5.0),
    ],
)
def test_a_pattern_finds_the_duration(pattern: str, line: str, seconds: float | None) -> None:
    got = Pattern.parse(pattern).seconds(line.encode())
    assert got == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize("text", ["", "seconds", "{seconds}{seconds}", "{hours}", "{}"])
def test_a_pattern_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadSource, match="write one of"):
        Pattern.parse(text)


@settings(max_examples=60)
@given(st.binary(max_size=80), st.floats(0, 1e6), st.booleans())
def test_a_number_behind_its_text_is_found_in_any_line(noise: bytes, value: float, at_end: bool) -> None:
    line = noise.replace(b"\n", b"").replace(b"rt=", b"") + f"|rt={value:.6f}".encode()
    pattern = Pattern.parse("|rt={seconds}$" if at_end else "|rt={seconds}")
    if b"|rt=" not in noise:
        assert pattern.seconds(line) == pytest.approx(float(f"{value:.6f}"))


@pytest.fixture
def log(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "access.log"
    path.write_text("rt=99\n")
    return path


def tail_of(path: pathlib.Path) -> Tail:
    return Tail(path, Pattern.parse("rt={seconds}"))


def append(path: pathlib.Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_only_what_is_appended_counts_and_half_a_line_waits(log: pathlib.Path) -> None:
    tail = tail_of(log)
    assert tail.read().count == 0
    append(log, "rt=0.5\nrt=0.5\nrt=2")
    assert tail.read().count == 2
    append(log, ".0\r\n\nhello\n")
    counts = tail.read()
    assert counts.count == 3
    assert tail.unmatched == 1
    estimate = counts.quantile(1.0)
    assert estimate is not None
    assert estimate.value == pytest.approx(2.0, rel=0.1)


def test_rotation_and_truncation_lose_nothing(log: pathlib.Path) -> None:
    tail = tail_of(log)
    tail.read()
    append(log, "rt=1\n")
    os.rename(log, log.with_suffix(".1"))
    log.write_text("rt=1\nrt=1\n")
    assert tail.read().count == 3
    log.write_text("rt=1\n")  # shorter than what was read: truncated
    assert tail.read().count == 4


def test_a_log_that_comes_later_is_read_from_its_beginning(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "late.log"
    tail = tail_of(path)
    with pytest.raises(Unreadable, match=r"late\.log: No such file"):
        tail.read()
    path.write_text("rt=1\n")
    assert tail.read().count == 1


def test_a_pipe_and_a_directory_are_refused_at_once(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(Unreadable, match="ordinary file"):
            tail_of(path).read()


def test_lines_that_never_match_are_told(log: pathlib.Path) -> None:
    tail = tail_of(log)
    tail.read()
    append(log, "GET /\n" * 3)
    with pytest.raises(Unreadable, match="none of 3 new lines"):
        tail.read()


def test_more_than_can_be_read_in_one_look_is_left_out_and_counted(log: pathlib.Path) -> None:
    tail = tail_of(log)
    tail.read()
    line = "rt=1" + " " * 95 + "\n"
    lines = READ_LIMIT_BYTES // len(line) + 10
    append(log, line * lines)
    counts = tail.read()
    assert tail.skipped_bytes == lines * len(line) - READ_LIMIT_BYTES
    assert READ_LIMIT_BYTES // len(line) - 1 <= counts.count <= READ_LIMIT_BYTES // len(line)
