"""Who may ask: Host and Origin of every request, the token of every request that changes something.

A web page of another site can make a browser send requests to a loopback address: by its own name bound to 127.0.0.1
(DNS rebinding, stopped by the Host check) or across origins (stopped by the Origin check and by the token).
"""

import dataclasses
import hmac
import ipaddress
import secrets
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cotenant.units import address as addresses
from cotenant.web.answer import refusal

SECURITY_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)

READING_METHODS = frozenset({"GET", "HEAD"})


def host_name(host: str) -> str | None:
    """Return the name of a Host header in lower case without its port, or None when it is malformed."""
    if host.startswith("["):
        name, bracket, port = host[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            return None
        port = port[1:]
    elif host.count(":") > 1:
        return None
    else:
        name, _, port = host.partition(":")
    if not name or (port and not port.isdecimal()):
        return None
    return name.lower().rstrip(".")


def is_loopback(name: str) -> bool:
    """Return whether a host name or address can only be this machine."""
    return name.endswith(".localhost") or addresses.is_loopback(name)


@dataclasses.dataclass(frozen=True, slots=True)
class AllowedHosts:
    """Which Host headers are ours: loopback names, the address listened on, and names given for it.

    When listening on every address, any literal address passes: rebinding needs a name.
    """

    listen: str
    names: frozenset[str] = frozenset()

    def allows(self, host: str) -> bool:
        """Return whether a Host header is ours."""
        name = host_name(host)
        if name is None:
            return False
        if is_loopback(name) or name == self.listen.lower() or name in self.names:
            return True
        try:
            address = ipaddress.ip_address(name)
            return ipaddress.ip_address(self.listen).is_unspecified and not address.is_unspecified
        except ValueError:
            return False


class Keys:
    """The token, and the browser sessions that it opened. Sessions last as long as the process."""

    SESSIONS_LIMIT = 16

    def __init__(self, token: str, cookie: str) -> None:
        self._token = token
        self.cookie = cookie
        self._sessions: list[str] = []

    def holds_token(self, headers: Mapping[str, str]) -> bool:
        """Return whether the request carries the token (``Authorization: Bearer …``)."""
        scheme, _, value = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and _same(value.strip(), self._token)

    def holds_session(self, headers: Mapping[str, str]) -> bool:
        """Return whether the request carries the cookie of an open session."""
        try:
            morsel = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return False
        return morsel is not None and any(_same(morsel.value, session) for session in self._sessions)

    def open_session(self) -> str:
        """Return the Set-Cookie value of a new session; the oldest one ends when there are too many."""
        session = secrets.token_urlsafe(32)
        self._sessions = [*self._sessions[-self.SESSIONS_LIMIT + 1 :], session]
        return f"{self.cookie}={session}; Path=/; HttpOnly; SameSite=Strict"


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())


class Guard:
    """ASGI middleware that refuses before anything else runs, and adds the security headers to every answer."""

    def __init__(self, app: ASGIApp, hosts: AllowedHosts, keys: Keys) -> None:
        self._app = app
        self._hosts = hosts
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *SECURITY_HEADERS]
            await send(message)

        why = self._refusal_of(scope["method"], Headers(scope=scope))
        if why is not None:
            status, text = why
            await refusal(status, text)(scope, receive, send_guarded)
            return
        await self._app(scope, receive, send_guarded)

    def _refusal_of(self, method: str, headers: Headers) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if len(headers.getlist("host")) != 1 or not self._hosts.allows(host):
            return 403, "this Host is not ours: use the address that cotenant up printed"
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"http://{host.lower()}":
            return 403, "requests from another origin are refused"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and method not in READING_METHODS:
            return 403, "requests from another site are refused"
        if method in READING_METHODS or self._keys.holds_token(headers):
            return None
        if origin is not None and self._keys.holds_session(headers):
            return None
        return 401, "a change needs the token: Authorization: Bearer, with the content of the token file"
