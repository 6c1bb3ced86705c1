"""The web application of one host: page, API, metrics, live events."""

import asyncio
import contextlib
import importlib.util
import pathlib
from collections.abc import Awaitable, Callable

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from cotenant.model.incident import Incident
from cotenant.model.ledger import Ledger
from cotenant.units.malformed import MALFORMED
from cotenant.web import openapi
from cotenant.web.answer import answer, refusal
from cotenant.web.feed import Feed, Moment, Refused, Report, Unavailable
from cotenant.web.guard import AllowedHosts, Guard, Keys
from cotenant.web.metrics import Exposition
from cotenant.web.page import Page
from cotenant.web.stream import Broadcast, event_of

BODY_LIMIT_BYTES = 4096
FIRST_SAMPLE_TIMEOUT_SECONDS = 3.0
INCIDENTS_SHADED = 60
"""The newest ones, for the page's charts and list."""

STATIC = pathlib.Path(__file__).parent / "static"
STATIC_FILES = {
    "page.css": "text/css",
    "page.js": "text/javascript",
    "chart.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "fleet.css": "text/css",
    "fleet.js": "text/javascript",
}

Handler = Callable[[Request], Awaitable[Response]]


def dygraphs_script() -> pathlib.Path:
    """Return where the installed package keeps the chart script; importing it would load much more."""
    spec = importlib.util.find_spec("dygraphs")
    assert spec is not None
    assert spec.origin is not None
    return pathlib.Path(spec.origin).parent / "assets" / "dygraph-combined.js"


async def static_file(request: Request) -> Response:
    """Answer with one of the files that pages load."""
    name = request.path_params["name"]
    headers = {"Cache-Control": "no-cache"}
    if name == "dygraph.js":
        return FileResponse(dygraphs_script(), media_type="text/javascript", headers=headers)
    if name not in STATIC_FILES:
        return refusal(404, "no such file")
    return FileResponse(STATIC / name, media_type=STATIC_FILES[name], headers=headers)


class Site:
    """All handlers, on one feed. ``period_s`` bounds how old a sample may be before it is called stale."""

    def __init__(self, feed: Feed, hosts: AllowedHosts, keys: Keys, period_s: float) -> None:
        self._feed = feed
        self._keys = keys
        self._stale_s = max(10.0, 5 * period_s)
        self._page = Page()
        self._sent: dict[str, str] = {}
        self._publishing: asyncio.Task[None] | None = None
        self.broadcast = Broadcast()
        self._exposition = Exposition(feed, self.broadcast)
        get = {
            "/": self.page,
            "/metrics": self.metrics,
            "/healthz": self.healthz,
            "/readyz": self.readyz,
            "/api/v1/sample": self.sample,
            "/api/v1/report": self.report,
            "/api/v1/cgroups": self.cgroups,
            "/api/v1/incidents": self.incidents,
            "/api/v1/history": self.history,
            "/api/v1/latency": self.latency,
            "/api/v1/ledger": self.ledger,
            "/api/v1/enforcement": self.enforcement,
            "/api/v1/openapi.json": self.openapi,
            "/static/{name}": static_file,
        }
        routes = [Route(path, handler, methods=["GET"]) for path, handler in get.items()]
        routes += [
            Route("/api/v1/stream", _Stream(self)),
            Route("/api/v1/session", self.open_session, methods=["POST"]),
            Route("/api/v1/rules/rollback", self.roll_back, methods=["POST"]),
            Route("/api/v1/restore", self.restore, methods=["POST"]),
        ]
        application = Starlette(routes=routes, exception_handlers=_HANDLERS)
        self.application: ASGIApp = Guard(application, hosts, keys)

    def publish(self, moment: Moment) -> None:
        """Send a tick to every page that follows, unless the one before is still on its way; call it in the loop."""
        if not self.broadcast.clients:
            self._sent.clear()
        elif self._publishing is None or self._publishing.done():
            self._publishing = asyncio.create_task(self._publish(moment))

    async def _publish(self, moment: Moment) -> None:
        self.broadcast.publish(await run_in_threadpool(self._event, moment, self._sent))

    def _event(self, moment: Moment, sent: dict[str, str]) -> bytes:
        """Return the event of a tick, with the parts of the page that differ from those in ``sent``."""
        tick = self._page.tick(moment, self._recent_incidents(moment))
        fresh = {name: html for name, html in tick.html.items() if sent.get(name) != html}
        sent.update(fresh)
        return event_of("tick", msgspec.json.encode(msgspec.structs.replace(tick, html=fresh)))

    async def first_event(self) -> bytes:
        """Return the whole state for a page that has just connected, or a comment before the first sample."""
        moment = self._feed.latest()
        return b": no sample yet\n\n" if moment is None else await run_in_threadpool(self._event, moment, {})

    def _recent_incidents(self, moment: Moment) -> list[Incident]:
        """Return the incidents that the page lists; the open one alone when the history cannot be read."""
        try:
            return self._feed.incidents(INCIDENTS_SHADED)
        except Unavailable:
            return [moment.incident] if moment.incident else []

    async def _moment(self, timeout_s: float = 0.0) -> Moment | None:
        """Return the newest tick, waiting a little for the very first."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._feed.latest() is None:
                    await asyncio.sleep(0.05)
        return self._feed.latest()

    async def page(self, request: Request) -> Response:
        moment = await self._moment(FIRST_SAMPLE_TIMEOUT_SECONDS)
        if moment is None:
            return HTMLResponse(self._page.waiting(), 503, {"Refresh": "1", "Cache-Control": "no-store"})
        incidents = await run_in_threadpool(self._recent_incidents, moment)
        return HTMLResponse(self._page.render(moment, incidents), headers={"Cache-Control": "no-store"})

    async def metrics(self, request: Request) -> Response:
        body, content_type = self._exposition.render(request.headers.get("accept", ""))
        return Response(body, headers={"Content-Type": content_type, "Cache-Control": "no-store"})

    async def healthz(self, request: Request) -> Response:
        return Response("ok\n", media_type="text/plain")

    async def readyz(self, request: Request) -> Response:
        age = self._feed.age_s()
        if age is None:
            return Response("no sample yet\n", 503, media_type="text/plain")
        if age > self._stale_s:
            return Response(f"the newest sample is {age:.0f} s old\n", 503, media_type="text/plain")
        return Response("ok\n", media_type="text/plain")

    async def sample(self, request: Request) -> Response:
        moment = await self._moment(FIRST_SAMPLE_TIMEOUT_SECONDS)
        return _no_sample() if moment is None else answer(moment.sample)

    async def report(self, request: Request) -> Response:
        moment = await self._moment(FIRST_SAMPLE_TIMEOUT_SECONDS)
        if moment is None:
            return _no_sample()
        return answer(
            Report(
                evaluation=moment.evaluation,
                incident=moment.incident,
                rules=moment.rules,
                history=moment.history,
                cost=moment.cost,
            )
        )

    async def cgroups(self, request: Request) -> Response:
        moment = await self._moment(FIRST_SAMPLE_TIMEOUT_SECONDS)
        if moment is None:
            return _no_sample()
        return answer(openapi.CgroupList(time=moment.sample.time, cgroups=moment.sample.cgroups))

    async def incidents(self, request: Request) -> Response:
        limit = _bounded(request, "/api/v1/incidents")
        if isinstance(limit, Response):
            return limit
        try:
            return answer(openapi.IncidentList(incidents=await run_in_threadpool(self._feed.incidents, limit)))
        except Unavailable as error:
            return refusal(503, str(error))

    async def history(self, request: Request) -> Response:
        span_s = _bounded(request, "/api/v1/history")
        if isinstance(span_s, Response):
            return span_s
        try:
            return await run_in_threadpool(lambda: answer(self._feed.history(span_s)))
        except Unavailable as error:
            return refusal(503, str(error))

    async def enforcement(self, request: Request) -> Response:
        moment = await self._moment(FIRST_SAMPLE_TIMEOUT_SECONDS)
        return _no_sample() if moment is None else answer(openapi.Enforcement(enforcement=moment.enforcement))

    async def latency(self, request: Request) -> Response:
        moment = await self._moment(FIRST_SAMPLE_TIMEOUT_SECONDS)
        return _no_sample() if moment is None else answer(openapi.LatencyList(services=list(moment.latencies)))

    async def ledger(self, request: Request) -> Response:
        moment = await self._moment(FIRST_SAMPLE_TIMEOUT_SECONDS)
        if moment is None:
            return _no_sample()
        found = Ledger() if moment.enforcement is None else moment.enforcement.ledger
        return answer(msgspec.structs.replace(found, session={}))

    async def restore(self, request: Request) -> Response:
        if await _body(request) is None:
            return refusal(413, f"at most {BODY_LIMIT_BYTES} bytes")
        try:
            return answer(await run_in_threadpool(self._feed.restore_all))
        except Refused as error:
            return refusal(409, str(error))

    async def openapi(self, request: Request) -> Response:
        return answer(openapi.document())

    async def open_session(self, request: Request) -> Response:
        if not self._keys.holds_token(request.headers):
            return refusal(401, "a session needs the token: Authorization: Bearer, with the content of the token file")
        return Response(status_code=204, headers={"Set-Cookie": self._keys.open_session(), "Cache-Control": "no-store"})

    async def roll_back(self, request: Request) -> Response:
        body = await _body(request)
        if body is None:
            return refusal(413, f"at most {BODY_LIMIT_BYTES} bytes")
        try:
            wanted = msgspec.json.decode(body or b"{}", type=openapi.Rollback)
        except MALFORMED as error:
            return refusal(400, f'{error}; expected {{"revision": N}} or {{}}')
        try:
            return answer(await run_in_threadpool(self._feed.roll_back_rules, wanted.revision))
        except Refused as error:
            return refusal(409, str(error))


class _Stream:
    """The endpoint of the live events: plain ASGI, since it writes as it goes."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._site.broadcast.serve(scope, receive, send, self._site.first_event)


def _no_sample() -> Response:
    return refusal(503, "no sample yet")


def _bounded(request: Request, path: str) -> int | Response:
    """Return the path's query parameter, or the answer that refuses it."""
    name, low, high, default = openapi.PARAMETERS[path]
    text = request.query_params.get(name, str(default))
    if not text.isdecimal() or len(text) > 9 or not low <= int(text) <= high:
        return refusal(400, f"{name}: a whole number from {low} to {high}, not {text[:20]!r}")
    return int(text)


async def _body(request: Request) -> bytes | None:
    """Return the body, or None when it is too long."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_LIMIT_BYTES:
            return None
    return body


async def _client_left(request: Request, error: Exception) -> Response:
    return refusal(400, "the request did not arrive whole")  # nobody is left to read it


async def _not_found(request: Request, error: Exception) -> Response:
    return refusal(404, "no such path; /api/v1/openapi.json lists them")


async def _not_allowed(request: Request, error: Exception) -> Response:
    return refusal(405, "not with this method")


_HANDLERS = {404: _not_found, 405: _not_allowed, ClientDisconnect: _client_left}
