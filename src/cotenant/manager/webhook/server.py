"""The webhook over HTTPS, on every replica. What cannot be answered gets a 5xx: then ``failurePolicy`` decides."""

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from cotenant.api.errors import BadRequest
from cotenant.detect.templates import over_bundled
from cotenant.kube import mounted
from cotenant.manager.controller import Context
from cotenant.manager.webhook import registration, review
from cotenant.manager.webhook.answering import Answer, Answering
from cotenant.manager.webhook.credentials import Following, Store
from cotenant.manager.webhook.errors import Unprepared
from cotenant.manager.webhook.metrics import Metrics, StateCollector
from cotenant.manager.webhook.settings import look_seconds
from cotenant.manager.webhook.source import Source
from cotenant.web import serving
from cotenant.web.body import BodyReader, RefusedRequest

_log = logging.getLogger(__name__)

MAX_BODY_BYTES = 8 << 20
"""The API server takes objects of 3 MiB; an update carries two."""
MAX_INFLIGHT_BYTES = 64 << 20
KEEP_ALIVE_SECONDS = 120
"""Longer than the 90 s after which the API server drops an idle connection: it must be the one to close."""
CONCURRENCY_LIMIT = 1000
SHUTDOWN_SECONDS = 3
READY_SECONDS = 0.2
LOG_EVERY_SECONDS = 10.0

Handler = Callable[[review.Request], Awaitable[Answer]]


class Endpoints:
    """The paths that the API server asks."""

    def __init__(self, answering: Answering, metrics: Metrics) -> None:
        self._handlers: dict[str, Handler] = {
            registration.MUTATE_PODS: answering.mutate_pod,
            registration.MUTATE_NODE_STATUS: answering.mutate_node_status,
            registration.VALIDATE_PODS: answering.validate_pod,
            registration.VALIDATE_PROFILES: answering.validate_profile,
            registration.VALIDATE_CONFIGURATION: answering.validate_configuration,
        }
        self._metrics = metrics
        self._reader = BodyReader(MAX_BODY_BYTES, MAX_INFLIGHT_BYTES)
        self._last_log = -LOG_EVERY_SECONDS

    def application(self) -> Starlette:
        """Return the ASGI application."""
        routes = [Route(path, self._endpoint(path, one), methods=["POST"]) for path, one in self._handlers.items()]
        return Starlette(routes=[*routes, Route("/healthz", _healthz)])

    def _endpoint(self, path: str, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        duration = self._metrics.duration.labels(path)

        async def endpoint(request: Request) -> Response:
            try:
                body = await self._reader.read(request)
                started = time.perf_counter()
                answer = await handler(review.decode(body))
                content = answer.encode()
            except RefusedRequest as refusal:
                return self._failed(path, "malformed", refusal.status, refusal.text)
            except BadRequest as error:
                return self._failed(path, "malformed", 400, str(error))
            except Unprepared as error:
                return self._failed(path, "unprepared", 503, str(error))
            except ClientDisconnect:
                return self._failed(path, "gone", 400, "the client went away")
            except Exception:  # noqa: BLE001 - the outermost place: the API server must get an answer
                self._log_failure(path)
                return self._failed(path, "failed", 500, "internal error, logged")
            duration.observe(time.perf_counter() - started)
            self._count(path, answer)
            return Response(content, media_type="application/json")

        return endpoint

    def _count(self, path: str, answer: Answer) -> None:
        result = "refused" if answer.reasons else "changed" if answer.operations else "allowed"
        self._metrics.requests.labels(path, result).inc()
        for name in answer.applied:
            self._metrics.applied.labels(name).inc()

    def _failed(self, path: str, result: str, status: int, text: str) -> Response:
        self._metrics.requests.labels(path, result).inc()
        headers = {"connection": "close"} if result == "malformed" else None
        return Response(text, status, headers, "text/plain")

    def _log_failure(self, path: str) -> None:
        now = time.monotonic()
        if now - self._last_log >= LOG_EVERY_SECONDS:
            self._last_log = now
            _log.exception("answering %s failed", path)


async def _healthz(request: Request) -> Response:
    return Response("ok", media_type="text/plain")


class WebhookServer:
    """Serves while the process lives: once the certificates and the lists have arrived."""

    name = "webhook"

    async def run(self, context: Context) -> None:
        """Serve until cancelled.

        :raises BadAddress: if the address cannot be listened on.
        """
        settings = context.settings.webhook
        if not settings.listen:
            return
        context.readiness.wait_for(self.name, "starting")
        known = mounted.optional(settings.templates, over_bundled)
        source = Source(context.client)
        if known is not None:
            source.take_templates(known.value)
        store = Store(context.client, context.namespace, settings.secret)
        credentials = Following(store, look_seconds(settings))
        context.metrics.register(StateCollector(source, credentials))
        answering = Answering(source, settings.affinity, str(context.settings.slo_config))
        application = Endpoints(answering, Metrics(context.metrics)).application()
        with serving.bind(settings.listen, "--webhook-listen") as listener:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(source.run(), name="webhook-source")
                if known is not None:
                    tasks.create_task(known.follow(source.take_templates), name="webhook-templates")
                tasks.create_task(credentials.run(), name="webhook-credentials")
                await self._prepared(context, source, credentials)
                await _serve(application, listener, credentials.context)

    async def _prepared(self, context: Context, source: Source, credentials: Following) -> None:
        while source.waiting_for or not credentials.loaded.is_set():
            missing = [*source.waiting_for, *([] if credentials.loaded.is_set() else ["certificates"])]
            context.readiness.wait_for(self.name, f"waits for {', '.join(missing)}")
            await asyncio.sleep(READY_SECONDS)
        context.readiness.ready(self.name)


async def _serve(application: Starlette, listener: socket.socket, context: ssl.SSLContext) -> None:
    config = serving.configuration(
        application,
        concurrency=CONCURRENCY_LIMIT,
        keep_alive_seconds=KEEP_ALIVE_SECONDS,
        shutdown_seconds=SHUTDOWN_SECONDS,
    )
    config.load()
    config.ssl = context  # one that certificates can be loaded into while it serves
    server = serving.Server(config)
    try:
        await server.serve(sockets=[listener])
    except asyncio.CancelledError:
        await server.shutdown(sockets=[listener])  # what was asked is answered first
        raise
