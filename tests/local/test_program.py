"""The program as people start it: a process of its own on a free port of loopback, with this machine's kernel."""

import contextlib
import os
import pathlib
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.asking import answered
from tests.process import cotenant, end, next_line, run, tail
from tests.waiting import PATIENCE_SECONDS, await_true

pytestmark = pytest.mark.real


class Up:
    def __init__(self, data: pathlib.Path, *options: str) -> None:
        self.log = data.parent / "up.log"
        command = [sys.executable, "-m", "cotenant", "up", "--port", "0", "--data", str(data), *options]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        self.line = next_line(self.process, self.log)
        found = re.search(r"http://\S+", self.line)
        self.url = found[0] if found else ""
        self.data = data

    def get(self, path: str) -> Any:
        return answered(self.url + path, self.said)

    def said(self) -> str:
        return tail(self.log)

    def status(self, path: str, headers: dict[str, str] | None = None, data: bytes | None = None) -> int:
        request = urllib.request.Request(self.url + path, headers=headers or {}, data=data)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def rss_mib(self) -> float:
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+)", text)[0]) / 1024

    def end(self, number: int) -> int:
        return end(self.process, number, self.log)


Start = Callable[..., Up]


@pytest.fixture
def start(tmp_path: pathlib.Path) -> Iterator[Start]:
    running: list[Up] = []

    def run(*options: str) -> Up:
        up = Up(tmp_path / "data", *options)
        running.append(up)
        return up

    yield run
    for up in running:
        if up.process.poll() is None:
            up.process.kill()
        up.process.wait()
        assert up.process.stdout is not None
        up.process.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_starts_and_ends_cleanly(start: Start, number: int) -> None:
    up = start()
    assert up.url, up.line
    sample = up.get("api/v1/sample")
    assert 0 <= sample["cpu"]["used_ratio"] <= 1
    assert up.status("") == 200
    # A page that is open must not hold up the end.
    with urllib.request.urlopen(up.url + "api/v1/stream", timeout=PATIENCE_SECONDS) as stream:
        assert stream.readline() == b"event: tick\n"
        assert up.end(number) == 0
    assert "Traceback" not in up.log.read_text()


def test_history_survives_kill_9(start: Start) -> None:
    first = start("--period", "200ms")
    await_true(lambda: len(first.get("api/v1/history?seconds=900")["points"]) >= 5, "a history", said=first.said)
    before = first.get("api/v1/history?seconds=900")["points"]
    first.end(signal.SIGKILL)
    second = start("--period", "200ms")
    after = second.get("api/v1/history?seconds=900")["points"]
    assert [point[0] for point in after[: len(before)]] == [point[0] for point in before]
    report = second.get("api/v1/report")
    assert report["history"]["error"] is None
    assert report["history"]["notice"] is None


def test_a_damaged_history_is_moved_aside(start: Start, tmp_path: pathlib.Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "history.sqlite").write_bytes(b"\x5a" * 20000)
    up = start()
    assert "history.sqlite.damaged" in up.get("api/v1/report")["history"]["notice"]
    assert (tmp_path / "data" / "history.sqlite.damaged").read_bytes() == b"\x5a" * 20000


def test_a_full_disk_costs_the_history_alone(start: Start, tmp_path: pathlib.Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    data = tmp_path / "data"
    data.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", data], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no tmpfs here: {mounted.stderr.strip()}")
    try:
        up = start("--period", "100ms")
        await_true(lambda: up.get("api/v1/report")["history"]["error"], "the disk is full", said=up.said)
        error = up.get("api/v1/report")["history"]["error"]
        assert "full" in error or "space" in error or "I/O" in error
        first = up.get("api/v1/sample")["uptime_s"]
        await_true(lambda: up.get("api/v1/sample")["uptime_s"] != first, "sampling goes on", said=up.said)
        with urllib.request.urlopen(up.url + "metrics", timeout=PATIENCE_SECONDS) as answer:
            assert "cotenant_history_failed 1.0" in answer.read().decode()
        assert up.end(signal.SIGTERM) == 0
    finally:
        subprocess.run(["umount", "-l", data], check=True)


def test_a_port_in_use_is_one_line(tmp_path: pathlib.Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = cotenant("up", "--port", port, "--data", tmp_path)
    assert done.returncode == 2
    assert done.stderr == f"cotenant: port {port} on 127.0.0.1 is in use; choose another with --port\n"


def test_beyond_loopback_without_a_token_is_refused(tmp_path: pathlib.Path) -> None:
    done = cotenant("up", "--listen", "0.0.0.0", "--port", "0", "--data", tmp_path)
    assert done.returncode == 2
    assert "--token-file" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_token_of_the_data_directory_opens_changes(start: Start) -> None:
    up = start()
    token = (up.data / "token").read_text().strip()
    path = "api/v1/rules/rollback"
    assert up.status(path, data=b"{}") == 401
    assert up.status(path, {"Host": "evil.example"}, b"{}") == 403
    assert up.status(path, {"Origin": "http://evil.example", "Authorization": f"Bearer {token}"}, b"{}") == 403
    assert up.status(path, {"Authorization": f"Bearer {token}"}, b"{}") == 409, "a preset has no revisions"


def test_without_the_page_it_is_small_and_still_keeps_history(start: Start) -> None:
    up = start("--no-web", "--period", "200ms")
    assert "http" not in up.line

    def rows() -> int:
        with contextlib.closing(sqlite3.connect(up.data / "history.sqlite", timeout=PATIENCE_SECONDS)) as db:
            return int(db.execute("SELECT count(*) FROM point_1s").fetchone()[0])

    await_true(lambda: rows() >= 3, "rows in the database", said=up.said, pause_seconds=0.3)
    assert up.rss_mib() <= 64
    assert up.end(signal.SIGTERM) == 0


def test_the_page_is_not_large(start: Start) -> None:
    up = start("--period", "200ms")
    up.get("api/v1/sample")  # there is a first one
    for path in ("", "metrics", "api/v1/openapi.json"):
        assert up.status(path) == 200
    up.get("api/v1/history?seconds=86400")
    assert up.rss_mib() <= 120


def test_the_page_is_loaded_only_when_it_is_served() -> None:
    code = (
        "import sys\n"
        "from cotenant.cli import up\nfrom cotenant.detect import engine\nfrom cotenant.local import program\n"
        "print(sorted({'starlette', 'uvicorn', 'jinja2', 'prometheus_client', 'rich'} & set(sys.modules)))"
    )
    done = run([sys.executable, "-c", code])
    assert done.stdout.strip() == "[]", done.stderr


def test_the_latency_of_a_service_comes_from_its_access_log(start: Start, tmp_path: pathlib.Path) -> None:
    log = tmp_path / "access.log"
    log.touch()
    up = start("--latency-log", f"shop={log}:rt={{milliseconds}}$")
    assert up.get("api/v1/latency")["services"][0]["service"] == "shop"
    known: dict[str, Any] = {}

    def measured() -> bool:
        with log.open("a") as file:
            file.writelines("GET /a 200 rt=20\n" for _ in range(200))
        (service,) = up.get("api/v1/latency")["services"]
        known.update(service["quantiles"][1])
        return known.get("seconds") is not None

    await_true(measured, "a P99", said=up.said, pause_seconds=0.5)
    assert known["seconds"] == pytest.approx(0.020, rel=0.1)
    assert up.end(signal.SIGINT) == 0


def test_a_source_of_latency_that_is_none_is_one_line(tmp_path: pathlib.Path) -> None:
    done = cotenant("up", "--data", tmp_path, "--latency-log", "shop=/var/log/x:nothing")
    assert done.returncode == 2
    assert "{seconds}" in done.stderr
    assert done.stderr.count("\n") == 1
