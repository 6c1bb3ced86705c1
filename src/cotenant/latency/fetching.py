"""One HTTP GET with a deadline for all of it and a bound on its size; redirects are not followed."""

import base64
import dataclasses
import http.client
import pathlib
import ssl
import time
import urllib.parse
from collections.abc import Mapping

import msgspec

from cotenant.latency.errors import BadSource, Refused, TooLarge, Unreadable
from cotenant.units import address
from cotenant.units.malformed import MALFORMED

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
    basic_auth_file: pathlib.Path | None = None
    """``USER:PASSWORD``, for a server with basic authentication; sent as a token is."""


NO_TRUST = Trust()


def check_url(url: str) -> urllib.parse.SplitResult:
    """Return the parts of an address.

    :raises BadSource: if it is not one of http or https.
    """
    parsed = address.parts_of_url(url, "http", "https")
    if parsed is None:
        raise BadSource(f"{url[:200]!r}: write an address like http://127.0.0.1:9090")
    if "@" in parsed.netloc:
        raise BadSource(f"{shown(url)}: an address names no user; give a file with USER:PASSWORD (basicAuthFile)")
    return parsed


def get(
    url: str, headers: Mapping[str, str] | None = None, trust: Trust = NO_TRUST, timeout_s: float = TIMEOUT_SECONDS
) -> tuple[bytes, str]:
    """Return the body and the content type.

    :raises Unreadable: if there is no answer 200 of a bounded size in time.
    """
    parsed = check_url(url)
    deadline = time.monotonic() + timeout_s
    sent = {**(headers or {}), **_authorization(parsed, trust)}
    try:
        connection = _connection(parsed, trust, timeout_s)
        try:
            path = (parsed.path or "/") + (f"?{parsed.query}" if parsed.query else "")
            connection.request("GET", path, headers=sent)
            with connection.getresponse() as answer:
                body = _body(answer, deadline, url)
            if answer.status != http.client.OK:
                raise _refusal(url, answer, body)
            return body, answer.headers.get("Content-Type", "")
        finally:
            connection.close()
    except ssl.SSLCertVerificationError as error:
        why = f"its certificate is not believed, {error.verify_message}; caFile names a file of who signed it"
        raise Unreadable(f"{shown(url)}: {why}") from None
    except (OSError, http.client.HTTPException) as error:
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise Unreadable(f"{shown(url)}: {said}") from None


def _refusal(url: str, answer: http.client.HTTPResponse, body: bytes) -> Refused:
    """Return the error for an answer other than 200, with what can be done about it."""
    said = [f"{shown(url)}: {answer.status} {answer.reason} {_told(body)}".rstrip()]
    place = answer.headers.get("Location", "")
    if place and answer.status in range(300, 400):
        said.append(f"redirects are not followed: write the address that it names, {_place(place)}")
    elif answer.status == http.client.UNAUTHORIZED:
        said.append("it asks who you are: tokenFile, or basicAuthFile")
    wait = answer.headers.get("Retry-After", "")
    return Refused("; ".join(said), answer.status, float(wait) if wait.isascii() and wait.isdecimal() else None)


def _place(location: str) -> str:
    return shown(location) if "://" in location else location.partition("?")[0][:200]


class _Error(msgspec.Struct):
    error: str


def _told(body: bytes) -> str:
    """Return what the body of a refusal says: its ``error``, where it is JSON, else the beginning of the text."""
    try:
        text = msgspec.json.decode(body, type=_Error).error
    except MALFORMED:
        text = body[:200].decode(errors="replace")
    return " ".join(text[:200].split())


def _connection(parsed: urllib.parse.SplitResult, trust: Trust, timeout_s: float) -> http.client.HTTPConnection:
    host = parsed.hostname or ""
    if parsed.scheme == "http":
        return http.client.HTTPConnection(host, parsed.port, timeout=timeout_s)
    try:
        context = ssl.create_default_context(cafile=str(trust.ca_file) if trust.ca_file else None)
    except OSError as error:  # ssl.SSLError is one: the file is no PEM
        raise Unreadable(f"{trust.ca_file}: {error.strerror or error}") from None
    return http.client.HTTPSConnection(host, parsed.port, timeout=timeout_s, context=context)


def _authorization(parsed: urllib.parse.SplitResult, trust: Trust) -> dict[str, str]:
    file = trust.token_file or trust.basic_auth_file
    if file is None:
        return {}
    if parsed.scheme == "http" and parsed.hostname not in ("127.0.0.1", "::1", "localhost"):
        raise Unreadable(f"{shown(parsed.geturl())}: a token or password is not sent in the clear; use https")
    try:
        secret = file.read_text().strip()
    except OSError as error:
        raise Unreadable(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        secret = ""
    if not secret or not secret.isprintable():
        raise Unreadable(f"{file}: not one line of text")
    if file is trust.token_file:
        if not secret.isascii():
            raise Unreadable(f"{file}: not a token")
        return {"Authorization": f"Bearer {secret}"}
    if ":" not in secret:
        raise Unreadable(f"{file}: not USER:PASSWORD")
    return {"Authorization": f"Basic {base64.b64encode(secret.encode()).decode()}"}


def _body(answer: http.client.HTTPResponse, deadline: float, url: str) -> bytes:
    """Return the body, read in pieces: a server that sends a byte a second must not hold the caller."""
    parts: list[bytes] = []
    size = 0
    while chunk := answer.read1(_CHUNK_BYTES):
        parts.append(chunk)
        size += len(chunk)
        if size > BODY_LIMIT_BYTES:
            raise TooLarge(f"{shown(url)}: more than {BODY_LIMIT_BYTES >> 20} MiB")
        if time.monotonic() > deadline:
            raise Unreadable(f"{shown(url)}: did not end in time")
    return b"".join(parts)


def shown(url: str) -> str:
    """Return an address without what may be a secret or is long."""
    parsed = urllib.parse.urlsplit(url)
    host = f"[{parsed.hostname}]" if ":" in (parsed.hostname or "") else parsed.hostname or ""
    return f"{parsed.scheme}://{host}{f':{parsed.port}' if parsed.port else ''}{parsed.path}"
