"""``cotenant node`` goes on in a process without the command line's modules; what goes wrong is still one line."""

import os
import pathlib
import sys
import urllib.request
from typing import Any

import pytest
from tests import asking, process
from tests.waiting import PATIENCE_SECONDS, await_true

from cotenant.cli import app, failures, handing_over
from cotenant.node import program
from cotenant.node.errors import BadSettings


class Replaced(Exception):
    """The process would have gone on as another one."""


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the process would have gone on with."""
    found: dict[str, Any] = {}

    def execve(path: str, arguments: list[str], environment: dict[str, str]) -> None:
        found.update(path=path, arguments=arguments, environment=environment)
        raise Replaced

    monkeypatch.setattr(os, "execve", execve)
    return found


def test_every_setting_arrives(handed: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    token = tmp_path / "token"
    words = ["node", "--node=n1", "--mode=enforce", f"--token-file={token}", "--evict", "--no-whole-cores", "--json"]
    monkeypatch.setattr(sys, "argv", ["cotenant", *words])
    with pytest.raises(Replaced):
        app.run([*words, f"--state={tmp_path}", "--priority-interface=mainline-idle", "--period=2s"])
    assert handed["arguments"] == [sys.executable, "-m", "cotenant.cli.node_process", *words]
    monkeypatch.setenv(handing_over.ENVIRONMENT, handed["environment"][handing_over.ENVIRONMENT])
    given = handing_over.received(program.Settings, "cotenant node")
    settings = given.settings
    assert given.as_json
    assert (settings.name, settings.mode, settings.period_seconds) == ("n1", "enforce", 2.0)
    assert (settings.token_file, settings.kubelet.token_file, settings.state) == (token, token, tmp_path)
    assert (settings.evict, settings.whole_cores, settings.interface) == (True, False, "mainline-idle")
    assert handing_over.ENVIRONMENT not in os.environ


def test_nobody_else_starts_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        handing_over.received(program.Settings, "cotenant node")
    assert ending.value.code == 2
    assert "start that" in capsys.readouterr().err


def test_evictions_need_an_api_server(handed: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["node", "--node=n1", "--no-cluster", "--evict"]) == 2
    assert "--no-cluster" in capsys.readouterr().err
    assert handed == {}


@pytest.mark.parametrize(
    ("error", "line", "status"),
    [
        (BadSettings("kubelet address 'x'"), "kubelet address 'x'", 2),
        (FileNotFoundError(2, "No such file or directory", "/x"), "/x: No such file or directory", 2),
        (
            PermissionError(13, "Permission denied", "/x"),
            "/x: Permission denied; run as root, or name another place",
            2,
        ),
        (OSError("odd"), "odd", 2),
        (MemoryError(), "not enough memory: raise the limit of this process, or end something else", 2),
    ],
)
def test_a_failure_is_one_line(
    error: failures.Failure, line: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert failures.tell(error) == status
    assert capsys.readouterr().err == f"cotenant: {line}\n"


@pytest.mark.slow
def test_in_a_process_of_its_own_a_failure_is_one_line_too() -> None:
    done = process.cotenant("node", "--node=n1", "--no-cluster", "--kubelet=ftp://x")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "cotenant: kubelet address 'ftp://x': write https://HOST:10250\n"


@pytest.mark.slow
def test_it_answers_while_everybody_is_away_and_ends_on_sigterm(
    kubeconfig: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    metrics = f"127.0.0.1:{asking.free_port()}"
    with process.running(
        *("node", "--node=n1", f"--kubeconfig={kubeconfig}", f"--metrics={metrics}", f"--state={tmp_path}"),
        *("--kubelet=http://127.0.0.1:1", "--analyzer=127.0.0.1:1", "--evict"),
    ) as line:
        assert "node n1, mode observe" in line

        def told() -> str:
            with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=PATIENCE_SECONDS) as answer:
                return str(answer.read().decode())

        await_true(lambda: "cotenant_node_verdicts_removed_total 0.0" in told(), "the last to begin", said=told)
        text = told()
        assert 'cotenant_node_mode{mode="observe"} 1.0' in text
        assert 'cotenant_node_evictions_total{result="accepted"} 0.0' in text
