"""A real Prometheus on loopback, and what it scrapes: our own programs, and pages that a test writes."""

import contextlib
import ctypes
import http
import http.server
import json
import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
import yaml
from tests.waiting import await_true

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))

import binaries

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEADLINE_SECONDS = 300.0
"""For what takes a few seconds; a machine that is busy with other things may stand still for most of it."""
TRIES = 5
SCRAPE_INTERVAL = "3s"
"""As long is a scrape's deadline: a shorter one leaves gaps where the machine is busy."""
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)

Labels = frozenset[tuple[str, str]]


def die_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Process:
    """A program with its output in a file; ended by :meth:`stop`, or with the tests."""

    def __init__(self, command: Sequence[str], log: pathlib.Path) -> None:
        self._command, self.log = command, log
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=ROOT,
                preexec_fn=die_with_parent,
            )

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def stop(self) -> None:
        if not self.ended:
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait(30)


def cotenant(log: pathlib.Path, *arguments: str) -> Process:
    return Process([sys.executable, "-m", "cotenant", *arguments], log)


def url_printed(process: Process, pattern: str = r"http://127\.0\.0\.1:\d+") -> str:
    """Return the address that a program says it serves."""
    await_true(lambda: process.ended or re.search(pattern, process.said()), "an address", DEADLINE_SECONDS)
    found = re.search(pattern, process.said())
    assert found, process.said()
    return found[0]


class Prometheus:
    """The server, with a configuration and files of rules, on a free port."""

    def __init__(
        self,
        folder: pathlib.Path,
        configuration: Mapping[str, Any],
        *flags: str,
        path: str = "",
        scheme: str = "http",
    ) -> None:
        try:
            program = binaries.prometheus()
        except binaries.NotToBeHad as error:
            pytest.skip(str(error))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "prometheus.yml").write_text(yaml.safe_dump(dict(configuration)))
        for attempt in range(TRIES):  # another process may take the port before the server does
            self.port = free_port()
            command = [
                *(str(program), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"),
                *(f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn", *flags),
            ]
            self.process = Process(command, folder / f"prometheus-{attempt}.log")
            self.url = f"{scheme}://127.0.0.1:{self.port}{path}"
            await_true(lambda: self.process.ended or self._is_ready(), "Prometheus", DEADLINE_SECONDS)
            if not self.process.ended:
                return
            assert "address already in use" in self.process.said(), self.process.said()
        raise AssertionError(self.process.said())

    def _is_ready(self) -> bool:
        """Return whether it answers, be it that it wants to know who asks."""
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5, context=ssl._create_unverified_context()):
                return True
        except urllib.error.HTTPError as error:
            with error:
                return error.code == http.HTTPStatus.UNAUTHORIZED
        except OSError:
            return False

    def get(self, path: str, **parameters: str) -> Any:
        """Return the ``data`` of an answer of its API."""
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=60) as found:
            answer = json.load(found)
        assert answer["status"] == "success"
        assert not answer.get("warnings"), answer
        return answer["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the elements of the vector that an expression gives now."""
        try:
            found = self.get("query", query=expression)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expression}: {error.read().decode()}") from None
        assert found["resultType"] == "vector", expression
        result: list[dict[str, Any]] = found["result"]
        return result

    def value(self, expression: str) -> float | None:
        """Return the number that an expression gives now, or None where it gives none."""
        found = self.query(expression)
        assert len(found) <= 1, found
        return float(found[0]["value"][1]) if found else None

    def alerts(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Return the alerts that are pending or firing, by their names and nodes."""
        found = self.get("alerts")["alerts"]
        return {(one["labels"]["alertname"], one["labels"].get("node", "")): one for one in found}

    def targets(self) -> dict[str, dict[str, Any]]:
        """Return what it knows of each target, by job."""
        return {one["labels"]["job"]: one for one in self.get("targets", state="active")["activeTargets"]}

    def await_scraped(self, *jobs: str) -> None:
        """Wait until each job's target was scraped well."""

        def all_up() -> bool:
            found = self.targets()
            return all(found.get(job, {}).get("health") == "up" for job in jobs)

        try:
            await_true(all_up, f"{jobs} to be scraped", DEADLINE_SECONDS)
        except AssertionError as error:
            said = {job: one["lastError"] for job, one in self.targets().items()}
            raise AssertionError(f"{error}; {said}") from None

    def stop(self) -> None:
        self.process.stop()


@contextlib.contextmanager
def page(text: Callable[[], bytes], kind: str) -> Iterator[str]:
    """Serve what a function returns at each request, as ``/metrics`` on loopback; yields HOST:PORT."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = text()
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(OSError):  # who asked did not wait for it
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def job(name: str, address: str, **labels: str) -> dict[str, Any]:
    """Return the configuration of one page that is scraped often, and otherwise as the chart's monitors have it."""
    place = urllib.parse.urlsplit(address if "://" in address else f"http://{address}").netloc
    targets = [{"targets": [place], "labels": labels}]
    return {"job_name": name, "scrape_interval": SCRAPE_INTERVAL, "honor_labels": True, "static_configs": targets}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of ours to its end."""
    command = [sys.executable, "-m", "cotenant", *arguments]
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
