import http.server
import json
import pathlib
import threading
from collections.abc import Iterator

import pytest
from tests import process
from tests.detect.samples import at

from cotenant.cli import app
from cotenant.detect import engine, presets
from cotenant.model import sample


def hurt(second: int) -> sample.Sample:
    groups = [{"path": "web.slice", "class": "online", "throttled_ratio": 0.5}]
    return at(second, psi={"memory_some_ratio": 0.4}, cgroups=groups)


@pytest.fixture
def up() -> Iterator[str]:
    """What ``cotenant up`` answers, from a server of its own."""
    import msgspec

    judge = engine.Engine(presets.get())
    for second in range(4):
        found = judge.evaluate(hurt(second))
    answers = {
        "/api/v1/report": msgspec.json.encode({"evaluation": found, "incident": None}),
        "/api/v1/sample": sample.encode(hurt(3)),
        "/wrong/api/v1/report": b"<html>",
    }
    refusals = {
        "/else": (404, b"<html>no such page"),
        "/other": (404, b'{"error": "no such path"}'),
        "/proxy": (401, b'{"error": {"code": 7}}'),
        "/host": (403, b'{"error": "this Host is not ours"}'),
        "/early": (503, b'{"error": "no sample yet"}'),
        "/none": (502, b""),
    }

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, content = refusals.get(self.path.removesuffix("/api/v1/report"), (200, b""))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(content or answers.get(self.path, b""))

        def log_message(self, *words: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_running_up_is_explained(up: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["explain", "--url", up]) == 0
    out = capsys.readouterr().out
    assert "Dominant cause: Memory pressure." in out
    assert "psi.memory_some_ratio is 40.0 %, threshold 10.0 %" in out
    assert "web.slice is throttled by its own quota in 50 % of periods; that is not interference." in out


ELSE = "another program listens there; start `cotenant up`, give its address with --url, or give a file of samples"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/wrong", "not an answer of `cotenant up`"),
        ("/else", f"/api/v1/report: answered 404 Not Found: {ELSE}\n"),
        ("/other", f"answered 404 Not Found: {ELSE}\n"),
        ("/proxy", f"answered 401 Unauthorized: {ELSE}\n"),
        ("/host", "answered 403 Forbidden: this Host is not ours\n"),
        ("/early", "answered 503 Service Unavailable: no sample yet; try again\n"),
        ("/none", "answered 502 Bad Gateway; try again\n"),
    ],
)
def test_what_is_no_answer_is_said(up: str, path: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["explain", "--url", up + path]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


def test_nobody_there_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["explain", "--url", "http://127.0.0.1:9"]) == 2
    assert "start `cotenant up`, give its address with --url, or give a file of samples" in capsys.readouterr().err
    assert app.run(["explain", "--url", "file:///etc/passwd"]) == 2
    assert "not an address" in capsys.readouterr().err


def test_the_end_of_a_file_is_explained(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "s.jsonl"
    file.write_bytes(b"".join(sample.encode(hurt(second)) + b"\n" for second in range(4)))
    assert app.run(["explain", str(file), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["dominant"] == "memoryPressure"
    assert answer["evaluation"]["node"] == "n1"
    assert "that is (0.3 × 0.79) ÷ 0.3." in answer["sentences"][0]


def test_an_empty_file_explains_nothing(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s").write_text("")
    assert app.run(["explain", str(tmp_path / "s")]) == 2
    assert "no samples in it" in capsys.readouterr().err


@pytest.mark.slow
def test_the_address_is_taken_as_up_prints_it_by_a_process_that_judged_nothing(up: str) -> None:
    # Of its own: this process has loaded the detections already.
    done = process.cotenant("explain", "--url", f"{up}/")
    assert (done.returncode, done.stderr) == (0, "")
    assert "interference level" in done.stdout


def test_a_pod_without_a_name_is_asked_for_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["explain", "pod"]) == 2
    assert "NAMESPACE/NAME" in capsys.readouterr().err
