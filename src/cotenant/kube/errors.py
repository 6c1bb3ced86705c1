"""What the API server, or the way to it, refuses.

::

    units.errors.CotenantError
    └── KubeError
        ├── BadConfiguration     no usable kubeconfig, or no safe connection
        ├── Unreachable          no answer: connection, TLS, time-out, no credentials to ask with
        ├── Unreadable           an answer that is not what was asked for: a proxy's page, say
        └── ApiError             an answer that says no; has ``code`` and ``reason``
            ├── NotFound         404
            ├── Conflict         409: somebody else wrote first, or owns the field
            ├── Expired          410: that resource version is gone
            ├── TooLarge         the server has not reached that resource version yet
            ├── Forbidden        401, 403
            └── Throttled        429; has ``retry_after_seconds``
"""

import msgspec

from cotenant.units.errors import CotenantError


class KubeError(CotenantError):
    """Something between us and the API server."""


class BadConfiguration(KubeError):
    """There is no usable kubeconfig, or a connection would not be safe; the text says what to give."""


class Unreachable(KubeError):
    """The API server gave no answer."""


class Unreadable(KubeError):
    """The API server's answer, or the page of a proxy instead of it, is not what was asked for."""


class ApiError(KubeError):
    """The API server said no."""

    def __init__(self, text: str, code: int, reason: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds


class NotFound(ApiError):
    """There is no such object, or no such kind."""


class Conflict(ApiError):
    """Somebody else wrote first (by resourceVersion), or owns the field (by server-side apply), or made it already."""


class Expired(ApiError):
    """That resource version is gone: list again."""


class TooLarge(ApiError):
    """The server has not reached that resource version yet (its cache lags, or etcd was restored): back off, list."""


class Forbidden(ApiError):
    """We may not do that, or are not who we say."""


class Throttled(ApiError):
    """Too many requests; the server says when to come again."""


class _Cause(msgspec.Struct, frozen=True):
    reason: str = ""


class _Details(msgspec.Struct, frozen=True, rename="camel"):
    causes: list[_Cause] | None = None
    retry_after_seconds: float | None = None


class Status(msgspec.Struct, frozen=True):
    """The API server's answer about a failure."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_BY_CODE: dict[int, type[ApiError]] = {
    401: Forbidden, 403: Forbidden, 404: NotFound, 409: Conflict, 410: Expired, 429: Throttled,
}  # fmt: skip
_TOO_LARGE = "ResourceVersionTooLarge"


def error_of(status: Status, what: str, retry_after_seconds: float | None = None) -> ApiError:
    """Return the error that a status stands for; ``what`` says what was asked."""
    details = status.details or _Details()
    too_large = any(cause.reason == _TOO_LARGE for cause in details.causes or ())
    if too_large or "Too large resource version" in status.message:
        kind: type[ApiError] = TooLarge
    elif status.reason in ("Expired", "Gone"):
        kind = Expired
    else:
        kind = _BY_CODE.get(status.code, ApiError)
    wait = retry_after_seconds if retry_after_seconds is not None else details.retry_after_seconds
    message = " ".join(status.message.split()) or status.reason or "no message"
    return kind(f"{what}: {status.code} {message}", status.code, status.reason, wait)
