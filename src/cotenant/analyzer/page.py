"""The fleet page: is anyone hurt now, the nodes worst first with their last hour, and what is known of one node."""

import asyncio
import logging
import secrets
import socket
from collections.abc import Callable
from typing import Any

import msgspec
import prometheus_client
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from cotenant.analyzer.fleet import Fleet
from cotenant.analyzer.heat import NOTHING, Heat
from cotenant.analyzer.publication import NodePublication
from cotenant.analyzer.services import Services
from cotenant.api import timestamp
from cotenant.model import summary, wording
from cotenant.model.evaluation import Detection, DetectionName, Evaluation, severity_of
from cotenant.units.clock import Clock
from cotenant.web import ledger, serving
from cotenant.web import page as host_page
from cotenant.web.answer import METRICS_TEXT, answer, refusal
from cotenant.web.application import static_file
from cotenant.web.guard import AllowedHosts, Guard, Keys

_log = logging.getLogger(__name__)

NOTE_SECONDS = 5.0
KEPT_SECONDS = 2.0
"""How long one answer serves everybody who asks."""
WORST_SHOWN = 100
WORDS = (
    ("0", "none"), ("1", "low"), ("2", "medium"), ("3", "high"), ("4", "severe"), ("5", "hard limit"),
    ("u", "unknown"), ("x", "no sample"),
)  # fmt: skip

DONE: dict[str | None, str] = {
    "enforce": "Its agent holds offline work back.",
    "dry-run": "Its agent only says what it would do: nothing is written.",
    "observe": "Its agent only watches: nothing is held back.",
    None: "Whether its agent holds anything back is not known.",
}
"""What is done on a node, by the mode of its agent."""


class FleetSite:
    """The page and its data, from the analyzer's memory."""

    def __init__(
        self,
        fleet: Fleet,
        clock: Clock,
        hosts: AllowedHosts,
        metrics: prometheus_client.CollectorRegistry,
        leads: Callable[[], bool] = lambda: True,
        leader: Callable[[], str] = lambda: "",
        services: Services | None = None,
    ) -> None:
        self._fleet = fleet
        self._clock = clock
        self._metrics = metrics
        self._leads = leads
        self._leader = leader
        self.services = services
        self.heat = Heat()
        self._kept: tuple[float, dict[str, Any]] | None = None
        self._page = host_page.template("fleet.html")
        self._node = host_page.template("fleet_node.html")
        self._ledger = host_page.template("ledger.html")
        self._latencies = host_page.template("services.html")
        routes = {
            "/": self.page,
            "/node/{name}": self.node,
            "/api/v1/fleet": self.data,
            "/api/v1/ledger": self.ledger,
            "/metrics": self.exposition,
            "/healthz": self.healthz,
            "/static/{name}": static_file,
        }
        application = Starlette(routes=[Route(path, handler, methods=["GET"]) for path, handler in routes.items()])
        # Nothing can be changed here: the token is nobody's.
        self.application: ASGIApp = Guard(application, hosts, Keys(secrets.token_urlsafe(32), "cotenant-fleet"))

    async def keep(self) -> None:
        """Note how each node fares until cancelled."""
        while True:
            self.note()
            await asyncio.sleep(NOTE_SECONDS)

    def note(self) -> None:
        """Note how each node that is heard of fares now."""
        now = self._clock.monotonic()
        self.heat.keep(set(self._fleet.nodes))
        for name, node in self._fleet.nodes.items():
            if now - node.heard_at <= 2 * NOTE_SECONDS:
                material = node.material()
                self.heat.note(name, material.bucket, bool(material.hard), now)

    def view(self) -> dict[str, Any]:
        """Return everything the page shows, nodes worst first."""
        now = self._clock.monotonic()
        if self._kept is not None and now - self._kept[0] < KEPT_SECONDS:
            return self._kept[1]
        entries = sorted((_entry(name, node) for name, node in self._fleet.nodes.items()), key=_worse)
        for entry in entries:
            entry["heat"] = self.heat.row(entry["name"], now)
        hurt = [entry for entry in entries if entry["hard"] or entry["triggered"]]
        known = [entry for entry in entries if entry["level"] is not None]
        tense = [entry for entry in known if severity_of(entry["bucket"]) >= severity_of("medium")]
        # Where most are unknown, that the others are calm is no good news.
        seen = len(known) * 2 >= len(entries) > 0
        state = "hurt" if hurt else "tense" if tense else "calm" if seen else "unknown"
        view = {
            "time": timestamp.render(self._clock.wall()),
            "state": state,
            "headline": self._headline(hurt, tense, known, len(entries)),
            "detail": self._detail(entries, hurt, known),
            "nodes": entries,
            "parts": self._parts(),
        }
        self._kept = (now, view)
        return view

    def _headline(self, hurt: list[Any], tense: list[Any], known: list[Any], nodes: int) -> str:
        if hurt:
            worst = hurt[0]["name"]
            more = len(hurt) - 1
            return f"{worst} is hurt" if not more else f"{worst} and {more} more node{'s' * (more > 1)} are hurt"
        if tense:
            return "Nobody is hurt, but pressure is rising"
        if not known:
            return "Not known yet"
        return (
            "Nobody is hurt"
            if len(known) == nodes
            else f"Nobody is hurt, as far as is known: {len(known)} of {nodes} nodes"
        )

    def _detail(self, entries: list[Any], hurt: list[Any], known: list[Any]) -> str:
        if not self._leads():
            return f"This replica does not lead; the samples are at {self._leader() or 'another one'}."
        hard = sum(bool(entry["hard"]) for entry in entries)
        parts = [f"{len(entries)} nodes", f"{len(hurt)} hurt", f"{hard} past a hard limit"]
        unknown = len(entries) - len(known)
        return ", ".join(parts) + (f", {unknown} unknown." if unknown else ".")

    async def page(self, request: Request) -> Response:
        view = self.view()
        shown = {**view, "nodes": len(view["nodes"]), "worst": view["nodes"][:WORST_SHOWN], "words": WORDS}
        shown["titles"] = {**wording.DETECTION_TITLES, **wording.HARD_TITLES}
        return HTMLResponse(self._page.render(view=shown), headers={"Cache-Control": "no-store"})

    async def data(self, request: Request) -> Response:
        return answer(self.view())

    def _parts(self) -> dict[str, str]:
        """Return the parts of the page that are replaced as they are."""
        parts = {"ledger": self._ledger.render(ledger=self._ledger_rows())}
        if self.services is not None:
            parts["services"] = self._latencies.render(services=self.services.rows())
        return parts

    def _ledger_rows(self) -> list[dict[str, Any]]:
        return ledger.rows_of(self._fleet.ledgers.total().accounts, self._clock.wall())

    async def ledger(self, request: Request) -> Response:
        if not self._leads():  # nodes tell the leader alone: an empty answer would say that nothing was lost
            return refusal(503, f"this replica does not lead; ask {self._leader() or 'the one that does'}")
        return answer(msgspec.structs.replace(self._fleet.ledgers.total(), session={}))

    async def node(self, request: Request) -> Response:
        name = request.path_params["name"]
        node = self._fleet.nodes.get(name)
        if node is None:
            return refusal(404, f"no node {name} is known")
        return HTMLResponse(self._node.render(**self._node_view(name, node)), headers={"Cache-Control": "no-store"})

    def _node_view(self, name: str, node: NodePublication) -> dict[str, Any]:
        now = self._clock.monotonic()
        found, material, facts = node.evaluation, node.material(), node.facts
        silent = "Nothing was heard of it for a minute."
        told = [("Mode", facts and facts.mode), ("Priority interface", facts and facts.priority_interface)]
        refused = [str(getattr(one, "field", one)) for one in facts.refused_fields] if facts else []
        return {
            "name": name,
            "age": host_page.duration_text(max(0.0, now - node.heard_at)),
            "state": "unknown" if found is None else summary.state_of(found),
            "headline": "Not known" if found is None else summary.headline_of(found, name),
            "detail": silent if found is None else summary.detail_of(found, found.missing),
            "hard": [wording.HARD_TITLES.get(limit, limit) for limit in material.hard],
            "heat": self.heat.row(name, now) or NOTHING,
            "done": DONE.get(facts.mode if facts else None, DONE[None]),
            "detections": [] if found is None else [_detection(key, one) for key, one in _worst_first(found)],
            "facts": [(title, text or "unknown") for title, text in told]
            + ([("Fields of the policy not applied", ", ".join(refused))] if refused else [])
            + ([("Problems", "; ".join(facts.problems))] if facts and facts.problems else []),
        }

    async def exposition(self, request: Request) -> Response:
        return Response(prometheus_client.generate_latest(self._metrics), media_type=METRICS_TEXT)

    async def healthz(self, request: Request) -> Response:
        return Response("ok\n", media_type="text/plain")


def _entry(name: str, node: NodePublication) -> dict[str, Any]:
    material = node.material()
    found = node.evaluation
    level = found.interference_level if found is not None else None
    suspects = summary.suspects_of(found) if found is not None and material.triggered else []
    victims = summary.victims_of(found) if found is not None and material.triggered else []
    return {
        "name": name,
        "level": None if level is None else round(level, 3),
        "bucket": material.bucket,
        "hard": list(material.hard),
        "triggered": sorted(material.triggered),
        "suspect": suspects[0].name if suspects else None,
        "victim": victims[0].name if victims else None,
    }


def _worse(entry: dict[str, Any]) -> tuple[Any, ...]:
    level = -1.0 if entry["level"] is None else entry["level"]
    return not entry["hard"], not entry["triggered"], -severity_of(entry["bucket"]), -level, entry["name"]


def _worst_first(found: Evaluation) -> list[tuple[DetectionName, Detection]]:
    return sorted(found.detections.items(), key=lambda one: (not one[1].triggered, -(one[1].index or 0.0)))


def _detection(name: DetectionName, found: Detection) -> dict[str, Any]:
    mood = summary.detection_state_of(found)
    return {
        "title": wording.DETECTION_TITLES[name],
        "mood": mood,
        "word": host_page.WORDS[mood],
        "victims": found.victims,
        "suspects": found.suspects,
        "signals": [
            {
                "title": host_page.sentence(wording.title_of(signal)),
                "value": wording.value_text(signal, state.value),
                "threshold": wording.value_text(signal, state.threshold),
                # Known, and without an index: it counts only beside another one, which is not known here.
                "index": "does not count" if state.index is None else f"{state.index:.2f}",
            }
            for signal, state in found.signals.items()
            if state.value is not None
        ],
    }


async def serve(site: FleetSite, listening: socket.socket) -> None:
    """Serve the site until cancelled."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(site.keep())
        if site.services is not None:
            tasks.create_task(site.services.run())
        tasks.create_task(serving.serve(site.application, listening))
