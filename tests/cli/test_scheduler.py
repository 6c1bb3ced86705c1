import http.client
import json
import pathlib

import pytest
import yaml
from tests import process
from tests.waiting import PATIENCE_SECONDS

from cotenant.cli import app

FIXTURES = pathlib.Path(__file__).parent.parent / "fixtures" / "extender"


@pytest.mark.slow
def test_the_program_answers_over_one_connection_and_ends_on_sigterm() -> None:
    reports = str(FIXTURES / "reports.json")
    with process.running("scheduler", "--reports", reports, "--listen", "127.0.0.1:0", "--json") as line:
        started = json.loads(line)
        assert started["reports"] == 4
        connection = http.client.HTTPConnection(started["url"].removeprefix("http://"), timeout=PATIENCE_SECONDS)
        connection.connect()
        first = connection.sock
        for name, field in (("kube-filter-names", "NodeNames"), ("kube-filter-nodes", "Nodes")):
            body = (FIXTURES / f"{name}.json").read_bytes()
            connection.request("POST", "/kube/filter", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            assert answer.status == 200
            assert json.loads(answer.read())[field] is not None
        assert connection.sock is first
        connection.request("POST", "/kube/filter", b" " * (34 << 20), {"Content-Type": "application/json"})
        answer = connection.getresponse()  # seen although all of it was sent first
        assert answer.status == 413
        assert answer.getheader("connection") == "close"
        answer.read()
        connection.close()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--reports", "missing.json"], "missing.json: No such file"),
        (["--reports", "x", "--taints", "hard"], "--taints: --reports has no cluster"),
        (["--reports", "x", "--kubeconfig", "y", "--clear"], "--kubeconfig, --clear: --reports has no cluster"),
        (["--reports", str(FIXTURES / "reports.json"), "--listen", "8088"], "HOST:PORT"),
        (["--reports", str(FIXTURES / "reports.json"), "--listen", "127.0.0.1:99999"], "HOST:PORT"),
        (["--reports", str(FIXTURES / "reports.json"), "--listen", "203.0.113.1:80"], "203.0.113.1:80"),
        (["--applies-to", "nobody"], "nobody"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["scheduler", *words]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1


def test_config_is_by_labels_first_and_shows_the_extender_beside(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["scheduler", "config", "--listen", "127.0.0.1:9000"]) == 0
    text = capsys.readouterr().out
    printed = yaml.safe_load(text)
    (profile,) = printed["profiles"]
    assert "extenders" not in printed
    assert profile["schedulerName"] == "default-scheduler"  # its name is needed, or the pods have no scheduler
    (plugin,) = profile["pluginConfig"]
    preferred = plugin["args"]["addedAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert sum(term["weight"] for term in preferred) == 100
    assert plugin["args"]["addedAffinity"].keys() == {"preferredDuringSchedulingIgnoredDuringExecution"}
    for line in ("urlPrefix: http://127.0.0.1:9000/kube", "weight: 2", "ignorable: true", "httpTimeout: 100ms"):
        assert line in text
    assert app.run(["scheduler", "config", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == printed


def test_config_prints_what_kube_scheduler_needs_to_ask(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["scheduler", "config", "--extender", "--listen", "127.0.0.1:9000"]) == 0
    (extender,) = yaml.safe_load(capsys.readouterr().out)["extenders"]
    assert extender == {
        "urlPrefix": "http://127.0.0.1:9000/kube",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "weight": 2,
        "nodeCacheCapable": True,
        "ignorable": True,
        "httpTimeout": "100ms",
    }
    assert app.run(["scheduler", "config", "--extender", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "KubeSchedulerConfiguration"


def test_config_for_volcano_lists_predicates_before_the_extender(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["scheduler", "config", "--volcano"]) == 0
    tiers = yaml.safe_load(capsys.readouterr().out)["tiers"]
    plugins = tiers[1]["plugins"]
    assert [plugin["name"] for plugin in plugins] == ["predicates", "nodeorder", "extender"]
    assert plugins[2]["arguments"]["extender.ignorable"] is True
