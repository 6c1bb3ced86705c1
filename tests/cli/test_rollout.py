"""``cotenant rollout`` against an API server of our own."""

import asyncio
import json
import pathlib
from typing import Any

import pytest
import yaml
from tests.kube import conftest as kube
from tests.kube.conftest import ApiServer

from cotenant.cli import app

api = kube.api  # the fixture
ROLLOUTS = "apis/cotenant.io/v1alpha1/colocationrollouts"
STATUS: dict[str, Any] = {
    "phase": "Paused",
    "stage": "canary",
    "summary": "1/20",
    "message": "agentHealth failing",
    "stages": [
        {"name": "canary", "nodes": 1, "changed": 1, "confirmed": 1, "soakedSeconds": 12.5},
        {"name": "rest", "nodes": 19, "refused": 2},
    ],
    "gates": [{"name": "agentHealth", "state": "failing", "message": "0 of 1 agents are well", "forSeconds": 30}],
    "leftOut": [{"name": "n7", "reason": "its check finds koordlet"}],
    "stopped": {"reason": "GateFailed", "message": "agentHealth failing for 30 s", "at": "2026-11-30T00:00:00Z"},
}
SPEC = {
    "change": {"mode": "enforce"},
    "stages": [{"name": "canary", "share": 0.05, "soakSeconds": 60}, {"name": "rest"}],
}


@pytest.fixture
def kubeconfig(api: ApiServer, tmp_path: pathlib.Path) -> str:
    api.put(ROLLOUTS, "r", spec=SPEC, status=STATUS)
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": api.url}}],  # type: ignore[attr-defined]
        "users": [{"name": "u", "user": {}}],
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    return str(path)


async def run(*arguments: str) -> int:
    """Run a command in a thread, while the server answers in this one."""
    return await asyncio.to_thread(app.run, list(arguments))


async def test_status_shows_stages_gates_and_who_was_left_out(
    kubeconfig: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert await run("rollout", "status", "r", "--kubeconfig", kubeconfig) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "r: Paused, 1/20 nodes changed. agentHealth failing" in shown
    assert "canary under way 1 1 1 none 12 of 60 s" in shown
    assert "rest later 19 0 0 2 refused 0 of 600 s" in shown
    assert "agentHealth failing for 30 s 0 of 1 agents are well" in shown
    assert "n7 its check finds koordlet" in shown
    assert await run("rollout", "status", "--kubeconfig", kubeconfig) == 0
    assert "r Paused canary 1/20" in " ".join(capsys.readouterr().out.split())
    assert await run("rollout", "status", "r", "--json", "--kubeconfig", kubeconfig) == 0
    assert json.loads(capsys.readouterr().out)["status"]["stopped"]["reason"] == "GateFailed"


async def test_orders_change_the_spec(
    kubeconfig: str,
    api: ApiServer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def spec() -> dict[str, Any]:
        return dict(api.objects[ROLLOUTS]["r"]["spec"])

    assert await run("rollout", "pause", "r", "--kubeconfig", kubeconfig) == 0
    assert spec()["paused"] is True
    assert await run("rollout", "resume", "r", "--kubeconfig", kubeconfig) == 0
    assert (spec()["paused"], spec()["attempt"]) == (False, 1)
    assert await run("rollout", "abort", "r", "--json", "--kubeconfig", kubeconfig) == 0
    assert spec()["abort"] is True
    assert '"abort": true' in capsys.readouterr().out


async def test_what_has_ended_takes_no_order(
    kubeconfig: str,
    api: ApiServer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    api.put(ROLLOUTS, "r", spec=SPEC, status={"phase": "Completed"})
    assert await run("rollout", "abort", "r", "--kubeconfig", kubeconfig) == 1
    assert "has come to its end" in capsys.readouterr().err
    assert await run("rollout", "status", "other", "--kubeconfig", kubeconfig) == 2


async def test_plan_says_who_would_be_changed_and_applies_nothing(
    kubeconfig: str, api: ApiServer, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    for number in range(4):
        facts = {"mode": "observe", "priorityInterface": "mainline-idle", "check": {"irreversible": False}}
        facts["counts"] = {"startedAt": "s"}
        status = {"expiresAt": "2999-01-01T00:00:00Z", "bucket": "none", "interferenceLevel": 0, "nodeFacts": facts}
        api.put("api/v1/nodes", f"n{number}")
        api.put("apis/cotenant.io/v1alpha1/nodeinterferencereports", f"n{number}", status=status)
    api.put("api/v1/nodes", "silent")
    file = tmp_path / "rollout.yaml"
    file.write_text(yaml.safe_dump({"metadata": {"name": "new"}, "spec": SPEC}))
    assert await run("rollout", "plan", str(file), "--kubeconfig", kubeconfig) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "canary 1 1 mainline-idle" in shown
    assert "silent no report that holds" in shown
    api.remove("api/v1/nodes", "silent")
    assert await run("rollout", "plan", str(file), "--json", "--kubeconfig", kubeconfig) == 0
    planned = json.loads(capsys.readouterr().out)
    assert [len(stage["nodes"]) for stage in planned["stages"]] == [1, 3]
    assert all(method == "GET" for method, _, _ in api.requests)
    file.write_text("spec: {change: {mode: enforec}, stages: []}")
    assert await run("rollout", "plan", str(file), "--kubeconfig", kubeconfig) == 2
    assert "enforec" in capsys.readouterr().err
