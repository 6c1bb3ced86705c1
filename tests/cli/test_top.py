import io
import json
import os
import pty
import re
import select
import subprocess

import msgspec
import pytest
from rich.console import Console
from tests import process
from tests.waiting import PATIENCE_SECONDS, await_true

from cotenant.cli import app, top
from cotenant.model.enforcement import HeldFile
from cotenant.model.evaluation import Detection, Evaluation, SignalState, Suspect, Victim
from cotenant.model.sample import Block, Cgroup, CgroupPsi, Cpu, Sample


def sample() -> Sample:
    return Sample(
        node="a-node-with-a-rather-long-name.example.org",
        time="2026-11-30T00:00:10.000Z",
        cpu=Cpu(used_ratio=0.5),
        block=Block(p99_usec=65000),
        cgroups=[
            Cgroup(path="system.slice/" + "long" * 30, class_="online", cpu_used_ratio=0.1, memory_bytes=5 << 30),
            Cgroup(path="b", cpu_used_ratio=0.3, read_bytes_per_sec=1e6, psi=CgroupPsi(io_some_ratio=0.9)),
            Cgroup(path="c"),
        ],
        missing={"llc": "no_pmu"},
    )


def evaluation() -> Evaluation:
    io = Detection(
        triggered=True,
        index=0.6,
        signals={"block.p99_usec": SignalState(value=65000, index=0.6, threshold=30000)},
        victims=[Victim(name="web.service", evidence="I/O stall 40 % of the time")],
        suspects=[Suspect(name="backup", confidence=0.9, evidence="wrote 310 MiB/s, 90 % of all bytes, from 2 MiB/s")],
    )
    return Evaluation(
        node="n", time="t", interference_level=0.6, bucket="high", coverage=0.4,
        detections={"ioCongestion": io, "cachePollution": Detection()},
    )  # fmt: skip


def drawn(width: int, sort: str = "c", height: int | None = None, *, live: bool = False) -> list[str]:
    console = Console(width=width, record=True, file=open(os.devnull, "w"), highlight=False)  # noqa: SIM115
    console.print(top.screen(sample(), evaluation(), sort, height, live, narrow=width < top.NARROW_COLUMNS))
    console.file.close()
    return console.export_text().splitlines()


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_every_line_fits_and_says_who(width: int) -> None:
    lines = drawn(width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "web.service is hurt" in text
    assert "TRIGGERED" in text
    assert "backup (90 % sure)" in text
    assert "last-level cache (no_pmu)" in text
    assert "I/O congestion   0.60" in text
    assert len(lines) <= 24


def test_who_is_hurt_and_by_whom_comes_first() -> None:
    assert [line.split()[0] for line in drawn(80)[2:4]] == ["victim", "suspect"]


def test_that_nobody_is_named_is_said_with_what_would_name_them() -> None:
    unmarked = msgspec.structs.replace(sample(), missing={"online": "no_class"})
    nameless = msgspec.structs.replace(evaluation().detections["ioCongestion"], victims=[], suspects=[])
    found = msgspec.structs.replace(evaluation(), detections={"ioCongestion": nameless}, hard=["psiMemoryFull"])
    console = Console(width=80, record=True, file=io.StringIO(), highlight=False)
    console.print(top.screen(unmarked, found, "c", None, live=False))
    lines = console.export_text().splitlines()[2:5]
    assert [line.rstrip() for line in lines] == [
        "hard     every task waited for memory; take no new work",
        "victim   not known: no group is marked online (--match)",
        "suspect  not known: the evidence is weak",
    ]


def test_a_narrow_screen_keeps_names_and_what_it_is_sorted_by() -> None:
    heading = next(line for line in drawn(60, "m") if line.startswith("group"))
    assert heading.split() == ["group", "CPU", "memory", "↓", "stall"]
    assert any(line.startswith("system.slice/longlonglong") for line in drawn(60))


@pytest.mark.parametrize(("height", "lines"), [(10, 18), (18, 18), (24, 24), (40, 40)])
def test_groups_have_the_room_that_is_left_and_three_lines_at_least(height: int, lines: int) -> None:
    many = msgspec.structs.replace(sample(), cgroups=[Cgroup(path=f"g{n}") for n in range(50)])
    console = Console(width=80, record=True, file=io.StringIO(), highlight=False)
    console.print(top.screen(many, evaluation(), "c", height, live=True))
    shown = console.export_text().splitlines()
    assert len(shown) == lines
    assert shown[-1].startswith("sort: ")


@pytest.mark.parametrize(("sort", "order"), [("c", "bs"), ("m", "sb"), ("i", "bs"), ("p", "bs")])
def test_sorting_puts_the_unknown_last(sort: str, order: str) -> None:
    lines = drawn(100, sort)
    groups = [line[0] for line in lines if re.match(r"(system\.slice|b |c )", line)]
    assert "".join(groups) == f"{order}c"


def test_a_wrong_sort_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["top", "--once", "--sort", "x"]) == 2
    assert "none of c, m, i, p" in capsys.readouterr().err


@pytest.mark.real
def test_without_a_terminal_it_prints_once_and_without_colour() -> None:
    done = process.cotenant("top", "--period", "200ms")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "CPU contention" in done.stdout


@pytest.mark.real
def test_json_is_one_snapshot() -> None:
    done = process.cotenant("top", "--json", "--period", "200ms")
    assert done.returncode == 0, done.stderr
    snapshot = json.loads(done.stdout)
    assert 0 <= snapshot["sample"]["cpu"]["used_ratio"] <= 1
    assert "cpuContention" in snapshot["evaluation"]["detections"]


@pytest.mark.real
@pytest.mark.parametrize("no_color", [False, True])
def test_in_a_terminal_it_draws_until_q(no_color: bool) -> None:
    master, slave = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"TERM": "xterm-256color"}
    environment |= {"NO_COLOR": "1"} if no_color else {}
    command = [*process.COTENANT, "top", "--period", "200ms"]
    running = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    text = ""

    def drawn_with_a_state() -> bool:
        nonlocal text
        if select.select([master], [], [], 0.2)[0]:
            text += os.read(master, 65536).decode(errors="replace")
        return bool(re.search("calm|raised|TRIGGERED", text)) and "q quit" in text

    try:
        await_true(drawn_with_a_state, "a whole screen", said=lambda: text)
        assert bool(re.search(r"\x1b\[[0-9;]*3[0-7]m", text)) is not no_color
        os.write(master, b"q")
        while select.select([master], [], [], PATIENCE_SECONDS)[0]:  # drained until its end, or it could not end
            try:
                if not os.read(master, 65536):
                    break
            except OSError:
                break
        assert running.wait(PATIENCE_SECONDS) == 0
    finally:
        if running.poll() is None:
            running.kill()
            running.wait()
        os.close(master)


def test_what_is_held_back_and_what_others_made_of_it() -> None:
    def file(name: str, actual: str, strategy: str) -> HeldFile:
        return HeldFile(
            path=f"sys/fs/cgroup/cpu/be/{name}",
            target="1",
            actual=actual,
            strategy=strategy,
            reason="why",
            original="0",
        )

    written = [file("cpu.idle", "1", "group_identity"), *(file(f"q{n}", "2", "cpu_suppress") for n in range(3))]
    console = Console(width=80, record=True)
    console.print(top.screen(sample(), evaluation(), "c", lines=None, live=False, written=written))
    lines = [line for line in console.export_text().splitlines() if line.startswith("held")]
    assert lines[0].rstrip() == "held     be q0 2, not 1 (before 0): why"
    assert lines[-1].startswith("held     1 files more")
    assert all(len(line) <= 80 for line in lines)
