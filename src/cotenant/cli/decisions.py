"""What ``cotenant explain pod`` and ``cotenant explain node`` print: the scheduler's answers, with their reasons."""

import urllib.parse
from collections.abc import Callable
from typing import Any

import msgspec
import typer

from cotenant.units import errors
from cotenant.units.malformed import MALFORMED

DEFAULT_URL = "http://127.0.0.1:8088"

KINDS = {"pod": "NAMESPACE/NAME", "node": "NAME"}
"""What can be asked about, and how it is named."""

Get = Callable[[str], bytes]


class NoDecisions(errors.CotenantError):
    """What answered is no scheduler of ours."""


def show(what: str, name: str, url: str, get: Get, as_json: bool) -> None:
    """Print why a pod went where it did (``pod``, ``NAMESPACE/NAME``), or what is held of a node (``node``).

    :raises NoDecisions: if another program answers.
    """
    from cotenant.cli import printing

    if what not in KINDS:
        raise typer.BadParameter(f"explain {what} {name}: say pod NAMESPACE/NAME or node NAME")
    if what == "pod" and name.count("/") != 1:
        raise typer.BadParameter(f"pod {name}: give NAMESPACE/NAME")
    url = url.rstrip("/")
    try:
        answer = msgspec.json.decode(get(f"{url}/explain?{urllib.parse.urlencode({what: name})}"), type=dict[str, Any])
    except MALFORMED as error:
        raise NoDecisions(f"{url}: not an answer of `cotenant scheduler`: {error}; give --scheduler URL") from error
    if answer.get(what) != name:
        raise NoDecisions(f"{url}: not an answer of `cotenant scheduler`: nothing about {name}; give --scheduler URL")
    if as_json:
        printing.print_json(answer)
    elif what == "pod":
        _print_pod(answer)
    else:
        _print_node(answer)


def _print_pod(answer: dict[str, Any]) -> None:
    from cotenant.cli import printing

    decisions = answer["decisions"]
    if not decisions:
        typer.echo(f"{answer['pod']}: not among the last decisions of this scheduler")
        return
    for number, decision in enumerate(decisions):
        if number:
            typer.echo()
        refused = f", {decision['refused']} refused" if decision["refused"] else ""
        why = f" ({decision['notJudged']})" if decision["notJudged"] else ""
        typer.echo(f"{decision['time']}  {decision['verb']}: {decision['candidates']} candidates{refused}{why}")
        rows = [
            (node["node"], _outcome(node), _report(node), node["reason"] or "")
            for node in sorted(decision["nodes"], key=lambda node: (-(node["score"] or 0), node["node"]))
        ]
        for name, reason in (decision["refusals"] or {}).items():
            rows.append((name, "refused", "", reason))
        left_out = f"its {decision['nodesDropped']} nodes are no longer held"
        printing.print_table(("node", "outcome", "report", "reason"), rows, left_out)


def _outcome(node: dict[str, Any]) -> str:
    if not node["kept"]:
        return "refused"
    return "kept" if node["score"] is None else f"score {node['score']:g}"


def _report(node: dict[str, Any]) -> str:
    if node["report"] == "missing":
        return "none"
    level = node["interferenceLevel"]
    known = "level unknown" if level is None else f"level {level:.2f}, coverage {node['coverage']:.2f}"
    age = "" if node["ageSeconds"] is None else f", {node['ageSeconds']:.0f} s old"
    return f"{known}{age}{', expired' if node['report'] == 'expired' else ''}"


def _print_node(answer: dict[str, Any]) -> None:
    from cotenant.cli import printing

    typer.echo(f"{answer['node']}: report {_report(answer)}")
    if answer["report"] != "missing":
        limits, triggered = ", ".join(answer["hard"]) or "none", ", ".join(answer["triggered"]) or "none"
        typer.echo(f"bucket {answer['bucket']}; hard limits in force: {limits}; triggered: {triggered}")
    rows = [(entry["time"], entry["pod"], entry["reason"]) for entry in answer["refused"]]
    printing.print_table(("time", "pod", "reason"), rows, "no pod was kept from it in the last decisions")
