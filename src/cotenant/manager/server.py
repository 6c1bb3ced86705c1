"""What the manager answers over plain HTTP: ``/metrics``, ``/healthz`` and ``/readyz``."""

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cotenant.manager.controller import Readiness


def application(metrics_text: Callable[[], bytes], readiness: Readiness) -> Starlette:
    """Return the application."""

    async def metrics(request: Request) -> Response:
        return Response(metrics_text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def healthz(request: Request) -> Response:
        return Response("ok\n", media_type="text/plain")

    async def readyz(request: Request) -> Response:
        waiting = readiness.waiting
        if not waiting:
            return Response("ok\n", media_type="text/plain")
        lines = "".join(f"{name}: {reason}\n" for name, reason in sorted(waiting.items()))
        return Response(lines, 503, media_type="text/plain")

    return Starlette(routes=[Route("/metrics", metrics), Route("/healthz", healthz), Route("/readyz", readyz)])
