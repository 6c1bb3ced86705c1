"""One HTTP GET with a deadline for all of it and a bound on its size; redirects are not followed."""

import dataclasses
import http.client
import pathlib
import ssl
import time
import urllib.parse
from collections.abc import Mapping

from cotenant.latency.errors import BadSource, Unreadable
from cotenant.units import address

TIMEOUT_SECONDS = 4.0
BODY_LIMIT_BYTES = 8 << 20
_CHUNK_BYTES = 64 << 10


@dataclasses.dataclass(frozen=True, slots=True)
class Trust:
    """Whom to believe and how to be believed; files are read anew for each request, since tokens change."""

    ca_file: pathlib.Path | None = None
    """Who signed the server's certificate; None: the system's own authorities."""
    token_file: pathlib.Path | None = None
    """A bearer token. Sent over TLS, or to loopback; never in the clear to another machine."""


NO_TRUST = Trust()


def check_url(url: str) -> urllib.parse.SplitResult:
    """Return the parts of an address.

    :raises BadSource: if it is not one of http or https.
    """
    parsed = address.parts_of_url(url, "http", "https")
    if parsed is None:
        raise BadSource(f"{url[:200]!r}: write an address like http://127.0.0.1:9090")
    return parsed


def get(
    url: str, headers: Mapping[str, str] | None = None, trust: Trust = NO_TRUST, timeout_s: float = TIMEOUT_SECONDS
) -> tuple[bytes, str]:
    """Return the body and the content type.

    :raises Unreadable: if there is no answer 200 of a bounded size in time.
    """
    parsed = check_url(url)
    deadline = time.monotonic() + timeout_s
    try:
        connection = _connection(parsed, trust, timeout_s)
        try:
            path = (parsed.path or "/") + (f"?{parsed.query}" if parsed.query else "")
            connection.request("GET", path, headers={**(headers or {}), **_authorization(parsed, trust)})
            with connection.getresponse() as answer:
                body = _body(answer, deadline, url)
            if answer.status != http.client.OK:
                said = body[:200].decode(errors="replace").strip().replace("\n", " ")
                raise Unreadable(f"{_shown(url)}: {answer.status} {answer.reason} {said}".rstrip())
            return body, answer.headers.get("Content-Type", "")
        finally:
            connection.close()
    except (OSError, http.client.HTTPException) as error:
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise Unreadable(f"{_shown(url)}: {said}") from None


def _connection(parsed: urllib.parse.SplitResult, trust: Trust, timeout_s: float) -> http.client.HTTPConnection:
    host = parsed.hostname or ""
    if parsed.scheme == "http":
        return http.client.HTTPConnection(host, parsed.port, timeout=timeout_s)
    context = ssl.create_default_context(cafile=str(trust.ca_file) if trust.ca_file else None)
    return http.client.HTTPSConnection(host, parsed.port, timeout=timeout_s, context=context)


def _authorization(parsed: urllib.parse.SplitResult, trust: Trust) -> dict[str, str]:
    if trust.token_file is None:
        return {}
    if parsed.scheme == "http" and parsed.hostname not in ("127.0.0.1", "::1", "localhost"):
        raise Unreadable(f"{_shown(parsed.geturl())}: a token is not sent in the clear; use https")
    return {"Authorization": f"Bearer {trust.token_file.read_text().strip()}"}


def _body(answer: http.client.HTTPResponse, deadline: float, url: str) -> bytes:
    """Return the body, read in pieces: a server that sends a byte a second must not hold the caller."""
    parts: list[bytes] = []
    size = 0
    while chunk := answer.read1(_CHUNK_BYTES):
        parts.append(chunk)
        size += len(chunk)
        if size > BODY_LIMIT_BYTES:
            raise Unreadable(f"{_shown(url)}: more than {BODY_LIMIT_BYTES >> 20} MiB")
        if time.monotonic() > deadline:
            raise Unreadable(f"{_shown(url)}: did not end in time")
    return b"".join(parts)


def _shown(url: str) -> str:
    """Return an address without what may be a secret or is long."""
    parsed = urllib.parse.urlsplit(url)
    host = f"[{parsed.hostname}]" if ":" in (parsed.hostname or "") else parsed.hostname or ""
    return f"{parsed.scheme}://{host}{f':{parsed.port}' if parsed.port else ''}{parsed.path}"
