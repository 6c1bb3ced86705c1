import http.server
import json
import pathlib
import threading
from collections.abc import Iterator

import pytest
from tests.waiting import PATIENCE_SECONDS

from cotenant.node import errors, kubelet
from cotenant.units.clock import ManualClock


class Answers:
    """What the pretended kubelet says next, and what it was asked."""

    def __init__(self) -> None:
        self.status = 200
        self.body = b'{"items": []}'
        self.authorization: list[str | None] = []
        self.close_after = False


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubelet, "TIMEOUT_SECONDS", PATIENCE_SECONDS)


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def url(answers: Answers) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            answers.authorization.append(self.headers["Authorization"])
            self.send_response(answers.status)
            self.send_header("Content-Length", str(len(answers.body)))
            self.end_headers()
            self.wfile.write(answers.body)
            self.close_connection = answers.close_after

        def log_message(self, format: str, *args: object) -> None:
            """Keep quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def pods(*names: str) -> bytes:
    items = [{"metadata": {"name": name, "namespace": "ns", "uid": f"u-{name}"}} for name in names]
    return json.dumps({"items": items}).encode()


def test_the_token_is_read_anew_for_each_request(url: str, answers: Answers, tmp_path: pathlib.Path) -> None:
    token = tmp_path / "token"
    client = kubelet.Kubelet(kubelet.Settings(url=url, token_file=token))
    for value in ("one", "two"):
        token.write_text(value + "\n")
        client.pods()
    client.close()
    assert answers.authorization == ["Bearer one", "Bearer two"]


def test_a_kept_connection_that_the_kubelet_closed_is_opened_again(url: str, answers: Answers) -> None:
    client = kubelet.Kubelet(kubelet.Settings(url=url))
    answers.close_after, answers.body = True, pods("a")
    assert [pod.name for pod in client.pods()] == ["a"]
    assert [pod.name for pod in client.pods()] == ["a"]
    client.close()


def test_the_same_list_has_the_same_pods_and_a_bad_one_none(url: str, answers: Answers) -> None:
    client = kubelet.Kubelet(kubelet.Settings(url=url))
    answers.body = pods("a")
    first = client.pods()
    assert client.pods() is first
    answers.body = pods("b")
    assert [pod.name for pod in client.pods()] == ["b"]
    answers.body = b"{}"
    for _ in range(2):
        with pytest.raises(errors.KubeletUnreachable):
            client.pods()
    answers.body = pods("a")
    assert [pod.name for pod in client.pods()] == ["a"]
    client.close()


def test_an_error_or_an_empty_list_keeps_the_pods(url: str, answers: Answers) -> None:
    clock = ManualClock()
    client = kubelet.Kubelet(kubelet.Settings(url=url))
    source = kubelet.PodSource(client, clock)
    assert source.age_seconds is None
    answers.body = pods("a", "b")
    assert source.refresh()
    clock.advance(5)
    answers.body = b'{"items": []}'
    assert not source.refresh()
    answers.status = 401
    assert not source.refresh()
    assert "401" in source.last_error
    answers.status, answers.body = 200, b"<html>"
    assert not source.refresh()
    assert [pod.name for pod in source.pods] == ["a", "b"]
    assert source.age_seconds == 5
    assert source.failures == 2
    client.close()


def test_nobody_listening_is_an_error_with_the_address() -> None:
    client = kubelet.Kubelet(kubelet.Settings(url="http://127.0.0.1:9"))
    with pytest.raises(errors.KubeletUnreachable, match=r"127\.0\.0\.1:9/pods"):
        client.pods()


@pytest.mark.parametrize("url", ["", "kubelet:10250", "ftp://h"])
def test_a_wrong_address_is_refused(url: str) -> None:
    with pytest.raises(errors.BadSettings, match="10250"):
        kubelet.Kubelet(kubelet.Settings(url=url))


def test_an_unverified_certificate_is_accepted_on_loopback_only() -> None:
    kubelet.Kubelet(kubelet.Settings(insecure_tls=True))
    with pytest.raises(errors.BadSettings, match="loopback"):
        kubelet.Kubelet(kubelet.Settings(url="https://10.0.0.1:10250", insecure_tls=True))
