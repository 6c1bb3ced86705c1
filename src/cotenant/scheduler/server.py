"""The extender over HTTP: five verbs, health, metrics and explanations, also as a page.

What comes in is bounded: a body's size, and the bytes of all bodies being read. What is wrong is answered with a 4xx
and one line of text; a scheduler told that we are ``ignorable`` then goes on as if we were not there.
"""

import logging
import time
from collections.abc import Callable

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from cotenant.api.errors import BadRequest
from cotenant.scheduler import page
from cotenant.scheduler.extender import Extender
from cotenant.web.answer import METRICS_TEXT
from cotenant.web.body import BodyReader, RefusedRequest
from cotenant.web.guard import AllowedHosts

_log = logging.getLogger(__name__)

MAX_BODY_BYTES = 32 << 20
"""Above a kube-scheduler request with 2,000 nodes in full, or a Volcano one for 100 nodes of 60 pods."""
MAX_INFLIGHT_BYTES = 128 << 20
LOG_EVERY_SECONDS = 10.0

Answer = Callable[[bytes], bytes]


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def _refusal(status: int, text: str) -> Response:
    return _json({"error": text}, status)


async def _not_found(request: Request, error: Exception) -> Response:
    return _refusal(404, f"no such path: {request.url.path}; schedulers ask /kube/… and /volcano/…")


async def _not_allowed(request: Request, error: Exception) -> Response:
    refusal = _refusal(405, f"not with {request.method}; schedulers send POST")
    refusal.headers.update(getattr(error, "headers", None) or {})  # what is allowed
    return refusal


class Endpoints:
    """The routes of one extender."""

    def __init__(self, extender: Extender, reader: BodyReader, hosts: AllowedHosts | None = None) -> None:
        self._extender = extender
        self._reader = reader
        self._page = page.DecisionPage(extender, hosts or AllowedHosts("127.0.0.1"))
        self._last_log = 0.0

    def application(self) -> Starlette:
        """Return the ASGI application."""
        extender = self._extender
        verbs: dict[str, Answer] = {
            "kube/filter": extender.kube_filter,
            "kube/prioritize": extender.kube_prioritize,
            "kube/preempt": extender.kube_preempt,
            "volcano/predicate": extender.volcano_predicate,
            "volcano/prioritize": extender.volcano_prioritize,
        }
        routes = [Route(f"/{verb}", self._verb(verb, answer), methods=["POST"]) for verb, answer in verbs.items()]
        routes += [
            Route("/healthz", self._healthz),
            Route("/readyz", self._readyz),
            Route("/metrics", self._metrics),
            Route("/explain", self._explain),
            Route("/", self._page.application, methods=["GET"]),
            Route("/static/{name}", self._page.application, methods=["GET"]),
        ]
        return Starlette(routes=routes, exception_handlers={404: _not_found, 405: _not_allowed})

    def _verb(self, verb: str, answer: Answer) -> Callable[[Request], object]:
        metrics = self._extender.metrics
        duration = metrics.duration.labels(verb)
        answered = metrics.requests.labels(verb, "200")

        async def endpoint(request: Request) -> Response:
            try:
                body = await self._reader.read(request)
                started = time.perf_counter()
                content = answer(body)
                duration.observe(time.perf_counter() - started)
            except RefusedRequest as refusal:
                metrics.requests.labels(verb, str(refusal.status)).inc()
                # What was not read yet would be taken for the next request.
                return Response(
                    msgspec.json.encode({"error": refusal.text}),
                    refusal.status,
                    {"connection": "close"},
                    "application/json",
                )
            except BadRequest as error:
                metrics.requests.labels(verb, "400").inc()
                return _refusal(400, str(error))
            except ClientDisconnect:
                metrics.requests.labels(verb, "499").inc()
                return _refusal(400, "the client went away")
            except Exception:  # noqa: BLE001 - the outermost place: the scheduler must get an answer and go on
                metrics.requests.labels(verb, "500").inc()
                metrics.failures.inc()
                self._log_failure(verb)
                return _refusal(500, "internal error, logged")
            answered.inc()
            return Response(content, media_type="application/json")

        return endpoint

    def _log_failure(self, verb: str) -> None:
        now = time.monotonic()
        if now - self._last_log >= LOG_EVERY_SECONDS:
            self._last_log = now
            _log.exception("answering %s failed", verb)

    async def _healthz(self, request: Request) -> Response:
        return Response("ok", media_type="text/plain")

    async def _readyz(self, request: Request) -> Response:
        return _json(self._extender.readiness())

    async def _metrics(self, request: Request) -> Response:
        return Response(self._extender.metrics.render(), media_type=METRICS_TEXT)

    async def _explain(self, request: Request) -> Response:
        pod, node = request.query_params.get("pod"), request.query_params.get("node")
        if pod is not None and pod.count("/") == 1:
            return _json(self._extender.explain_pod(pod))
        if node:
            return _json(self._extender.explain_node(node))
        return _refusal(400, "ask for ?pod=NAMESPACE/NAME or ?node=NAME")
