"""What the manager answers over plain HTTP: ``/metrics``, ``/healthz``, ``/readyz``, and online services' latency."""

from collections.abc import Callable, Sequence

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cotenant.manager.controller import Readiness
from cotenant.model.latency import ServiceLatency
from cotenant.web.answer import METRICS_TEXT, answer, refusal
from cotenant.web.openapi import LatencyList


def application(
    metrics_text: Callable[[], bytes],
    readiness: Readiness,
    latencies: Callable[[], Sequence[ServiceLatency] | None] = lambda: None,
) -> Starlette:
    """Return the application."""

    async def metrics(request: Request) -> Response:
        return Response(metrics_text(), media_type=METRICS_TEXT)

    async def healthz(request: Request) -> Response:
        return Response("ok\n", media_type="text/plain")

    async def readyz(request: Request) -> Response:
        waiting = readiness.waiting
        if not waiting:
            return Response("ok\n", media_type="text/plain")
        lines = "".join(f"{name}: {reason}\n" for name, reason in sorted(waiting.items()))
        return Response(lines, 503, media_type="text/plain")

    async def latency(request: Request) -> Response:
        found = latencies()
        if found is None:
            return refusal(503, "this replica does not lead")
        return answer(LatencyList(services=list(found)))

    routes = {"/metrics": metrics, "/healthz": healthz, "/readyz": readyz, "/api/v1/latency": latency}
    return Starlette(routes=[Route(path, handler) for path, handler in routes.items()])
