"""``check --daemonsets`` and ``scheduler daemonsets`` on an API server of the test's own."""

import http.server
import json
import pathlib
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from cotenant.cli import app

TOLERANT = {"metadata": {"namespace": "a", "name": "t"},
            "spec": {"template": {"spec": {"tolerations": [{"operator": "Exists"}]}}}}  # fmt: skip
REFUSED = {"metadata": {"namespace": "kube-system", "name": "proxy"}, "spec": {"template": {"spec": {}}}}


class Lists(http.server.BaseHTTPRequestHandler):
    items: Sequence[object] = ()

    def do_GET(self) -> None:
        assert self.path.startswith("/apis/apps/v1/daemonsets")
        body = json.dumps({"kind": "DaemonSetList", "metadata": {}, "items": list(self.items)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def kubeconfig(kubeconfig_of: Callable[[int], pathlib.Path]) -> Iterator[pathlib.Path]:
    with http.server.HTTPServer(("127.0.0.1", 0), Lists) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield kubeconfig_of(server.server_port)
        server.shutdown()
        serving.join()


@pytest.mark.parametrize("words", [["check", "--daemonsets"], ["scheduler", "daemonsets"]])
def test_both_commands_say_the_same(
    words: list[str], kubeconfig: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lists, "items", [TOLERANT, REFUSED])
    assert app.run([*words, "--kubeconfig", str(kubeconfig)]) == 1
    assert capsys.readouterr().out == "kube-system/proxy\n"
    assert app.run([*words, "--kubeconfig", str(kubeconfig), "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"keptOut": ["kube-system/proxy"]}
    monkeypatch.setattr(Lists, "items", [TOLERANT])
    assert app.run([*words, "--kubeconfig", str(kubeconfig)]) == 0
    assert "every DaemonSet tolerates the taint" in capsys.readouterr().out
