"""JSON answers, encoded by msgspec, and the type of metrics as text."""

from typing import Any

import msgspec
from starlette.responses import Response

METRICS_TEXT = "text/plain; version=0.0.4; charset=utf-8"
"""The type of ``/metrics`` where it is not OpenMetrics. The client library calls its own text version 1.0.0, of which
scrapers know nothing that are older than it."""

_encode = msgspec.json.Encoder().encode


def answer(value: Any, status: int = 200) -> Response:
    """Return a JSON response that no one caches."""
    return Response(
        _encode(value), status_code=status, media_type="application/json", headers={"Cache-Control": "no-store"}
    )


def refusal(status: int, text: str) -> Response:
    """Return ``{"error": text}`` with a status; 401 and 503 say what comes next."""
    response = answer({"error": text}, status)
    if status == 401:
        response.headers["WWW-Authenticate"] = 'Bearer realm="cotenant"'
    if status == 503:
        response.headers["Retry-After"] = "1"
    return response
