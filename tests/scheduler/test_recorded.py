"""Requests recorded from real schedulers, where a folder of them is at hand: each is answered, and within its terms."""

import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from cotenant.scheduler.extender import Extender

FOLDER = os.environ.get("COTENANT_RECORDED_REQUESTS", "")
FILES = sorted(pathlib.Path(FOLDER).glob("*/*.json")) if FOLDER else []


@pytest.mark.skipif(not FILES, reason="COTENANT_RECORDED_REQUESTS names no folder with recorded requests")
@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_recorded_requests(
    path: pathlib.Path,
    make_extender: Callable[..., Extender],
    write_reports: Callable[[dict[str, dict[str, Any]]], Any],
) -> None:
    system = "kube" if path.parent.name == "kube-scheduler" else "volcano"
    verb = path.stem.split("-")[0]
    limited: dict[str, dict[str, Any]] = {"node-1": {"interferenceLevel": 0.9, "hard": ["psiIoSome"]}, "node-9": {}}
    extender = make_extender(write_reports(limited))
    body = path.read_bytes()
    asked, answer = json.loads(body), json.loads(getattr(extender, f"{system}_{verb}")(body))
    if system == "volcano":
        check_volcano(verb, asked, answer)
    elif verb == "preempt":
        sent = asked["NodeNameToMetaVictims"] or asked["NodeNameToVictims"]
        assert set(answer["NodeNameToMetaVictims"]) == set(sent) - {"node-1"}
    elif verb == "prioritize":
        assert len(answer) == len(asked["NodeNames"] or asked["Nodes"]["items"])
    elif asked["NodeNames"] is not None:
        assert answer["NodeNames"] == [name for name in asked["NodeNames"] if name != "node-1"]
        assert answer["Nodes"] is None
    else:
        sent = asked["Nodes"]["items"]
        assert answer["Nodes"]["items"] == [node for node in sent if node["metadata"]["name"] != "node-1"]
        assert answer["NodeNames"] is None


def check_volcano(verb: str, asked: dict[str, Any], answer: dict[str, Any]) -> None:
    if verb == "prioritize":
        assert set(answer["nodeScore"]) == {node["Name"] for node in asked["nodes"]}
        assert answer["errorMessage"] == ""
    else:
        assert answer["code"] == (3 if asked["node"]["Name"] == "node-1" else 0)
        assert bool(answer["status"]) == bool(answer["code"])
