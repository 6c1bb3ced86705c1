"""The page of decisions: the newest ones, why one pod went where it did, and what is held of a node."""

import secrets
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from cotenant.api import timestamp
from cotenant.scheduler.decisions import MAX_DECISIONS
from cotenant.scheduler.extender import Extender
from cotenant.web import page as host_page
from cotenant.web.application import static_file
from cotenant.web.guard import AllowedHosts, Guard, Keys

NEWEST = 50
NODES_SHOWN = 200
FACTS = {
    "report": "Report", "bucket": "Bucket", "interferenceLevel": "Level", "coverage": "Coverage", "hard": "Hard limits",
    "triggered": "Detections triggered", "ageSeconds": "Age in seconds",
}  # fmt: skip
VERBS = {
    "filter": "may it go there",
    "predicate": "may it go there",
    "prioritize": "how good",
    "preempt": "may it evict",
}


class DecisionPage:
    """Reads the extender when asked. Nothing can be changed here, and nothing is read for another site's page."""

    def __init__(self, extender: Extender, hosts: AllowedHosts) -> None:
        self._extender = extender
        self._template = host_page.template("decisions.html")
        routes = [Route("/", self.page, methods=["GET"]), Route("/static/{name}", static_file, methods=["GET"])]
        self.application: ASGIApp = Guard(
            Starlette(routes=routes), hosts, Keys(secrets.token_urlsafe(32), "cotenant-scheduler")
        )

    async def page(self, request: Request) -> Response:
        pod, node = request.query_params.get("pod", "").strip(), request.query_params.get("node", "").strip()
        view: dict[str, Any] = {"pod": pod, "node": node, "newest": [], "decisions": [], "held": None}
        if pod:
            view["decisions"] = [_shown(one) for one in self._extender.explain_pod(pod)["decisions"]]
        elif node:
            found = self._extender.explain_node(node)
            view["held"] = {"facts": _facts(found), "refused": found["refused"]}
        else:
            view["newest"] = [
                {
                    "time": timestamp.render(one.at),
                    "verb": _verb(one.verb),
                    "pod": one.pod,
                    "candidates": len(one.nodes) + one.dropped,
                    "refused": len(one.refused),
                }
                for one in self._extender.decisions.newest(NEWEST)
            ]
        readiness = self._extender.readiness()
        html = self._template.render(
            **view, neutral=readiness["neutral"], reports=readiness["reports"], most=MAX_DECISIONS
        )
        return HTMLResponse(html, headers={"Cache-Control": "no-store"})


def _verb(verb: str) -> str:
    scheduler, _, name = verb.partition("/")
    return f"{'Volcano' if scheduler == 'volcano' else 'kube-scheduler'}: {VERBS[name]}"


def _facts(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what is held of a node, with titles; nothing is shown as 0 that is unknown."""
    facts = []
    for key, title in FACTS.items():
        if key in found:
            value = found[key]
            text = (", ".join(value) or "none") if isinstance(value, list) else "unknown" if value is None else value
            facts.append((title, str(text)))
    return facts


def _shown(decision: dict[str, Any]) -> dict[str, Any]:
    """Return a decision with its best nodes first and its refused ones last, no more than fit a page."""
    nodes = sorted(decision["nodes"], key=lambda one: (not one["kept"], -(one["score"] or 0.0), one["node"]))
    return {**decision, "verb": _verb(decision["verb"]), "nodes": nodes[:NODES_SHOWN], "more": len(nodes[NODES_SHOWN:])}
