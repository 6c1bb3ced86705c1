"""``cotenant explain pod|node`` against an extender's own explanations."""

import json
import pathlib
from collections.abc import Callable

import pytest
import typer

from cotenant.api import timestamp
from cotenant.cli import app, decisions
from cotenant.scheduler.extender import Extender
from cotenant.scheduler.metrics import Metrics
from cotenant.scheduler.rules import Rules
from cotenant.scheduler.source import FileSource
from cotenant.units.clock import ManualClock

FIXTURES = pathlib.Path(__file__).parent.parent / "fixtures" / "extender"


@pytest.fixture
def get() -> Callable[[str], bytes]:
    extender = Extender(
        FileSource(FIXTURES / "reports.json"),
        Rules(),
        ManualClock(wall=timestamp.parse("2026-11-30T00:10:00Z") or 0.0),
        Metrics(),
    )
    body = (FIXTURES / "kube-filter-names.json").read_bytes()
    extender.kube_filter(body)
    extender.kube_prioritize(body)
    answers = {
        "pod=shop%2Fweb": extender.explain_pod("shop/web"),
        "pod=shop%2Fnone": extender.explain_pod("shop/none"),
        "node=n2": extender.explain_node("n2"),
        "node=n9": extender.explain_node("n9"),
    }
    return lambda url: json.dumps(answers[url.partition("/explain?")[2]]).encode()


def test_a_pod_s_decisions_with_scores_and_reasons(
    get: Callable[[str], bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    decisions.show("pod", "shop/web", "http://x", get, as_json=False)
    shown = capsys.readouterr().out
    assert "kube/filter: 5 candidates, 1 refused" in shown
    assert "score 9" in shown
    assert "psiMemoryFull" in shown
    assert "level 0.10, coverage 1.00, 600 s old" in " ".join(shown.split())
    decisions.show("pod", "shop/none", "http://x", get, as_json=False)
    assert "not among the last decisions" in capsys.readouterr().out


def test_a_node_s_report_and_who_was_kept_from_it(
    get: Callable[[str], bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    decisions.show("node", "n2", "http://x", get, as_json=False)
    shown = capsys.readouterr().out
    assert "hard limits in force: psiMemoryFull" in shown
    assert "shop/web" in shown
    decisions.show("node", "n9", "http://x", get, as_json=False)
    assert "n9: report none" in capsys.readouterr().out
    decisions.show("node", "n2", "http://x", get, as_json=True)
    assert json.loads(capsys.readouterr().out)["hard"] == ["psiMemoryFull"]


@pytest.mark.parametrize(("what", "name"), [("file", "x"), ("pod", "web"), ("pod", "a/b/c")])
def test_other_words_are_bad_usage(what: str, name: str, get: Callable[[str], bytes]) -> None:
    with pytest.raises(typer.BadParameter):
        decisions.show(what, name, "http://x", get, as_json=False)


@pytest.mark.parametrize("what", ["pod", "node"])
@pytest.mark.parametrize("answer", [b"<html>", b"[]", b'{"status": "ok"}', b'{"pod": "a/b", "node": "a/b"}'])
def test_the_answer_of_another_program_is_told(what: str, answer: bytes) -> None:
    with pytest.raises(decisions.NoDecisions, match=r"^http://x: not an answer of .*--scheduler"):
        decisions.show(what, "shop/web", "http://x/", lambda url: answer, as_json=False)


def test_nobody_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["explain", "pod", "shop/web", "--scheduler", "http://127.0.0.1:1"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "cotenant scheduler" in error
