"""Who a node says it is: its ServiceAccount's token, checked by the API server, bound to the node it may speak for."""

import collections
import dataclasses
import hashlib
import logging
from collections.abc import Collection

import msgspec

from cotenant.kube import errors
from cotenant.kube.client import TOKEN_REVIEWS, Client
from cotenant.units.clock import Clock

_log = logging.getLogger(__name__)

NODE_NAME_EXTRA = "authentication.kubernetes.io/node-name"
"""Kubernetes 1.30 and later put the node of the pod that a token is bound to into its user's extra fields."""
ACCEPTED_SECONDS = 60.0
REFUSED_SECONDS = 10.0
STALE_SECONDS = 600.0
"""How long an accepted token still counts while the API server cannot be asked."""
MAX_CACHED = 20_000
MAX_TOKEN_BYTES = 16 * 1024


class Refused(Exception):
    """A caller that is turned away; the text says why. ``temporary``: it may come again as it is."""

    def __init__(self, text: str, temporary: bool = False) -> None:
        super().__init__(text)
        self.temporary = temporary


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
    """An accepted account. ``node`` None: its token is bound to no node."""

    account: str
    node: str | None = None

    def check(self, node: str) -> None:
        """Return if this identity may speak for a node.

        :raises Refused: if it is bound to another.
        """
        if self.node is not None and self.node != node:
            raise Refused(f"{self.account} on {self.node} may not speak for {node}")


class _User(msgspec.Struct):
    username: str = ""
    extra: dict[str, list[str]] | None = None


class _ReviewStatus(msgspec.Struct):
    authenticated: bool = False
    error: str = ""
    user: _User = msgspec.field(default_factory=_User)


class _Review(msgspec.Struct):
    status: _ReviewStatus = msgspec.field(default_factory=_ReviewStatus)


@dataclasses.dataclass(frozen=True, slots=True)
class _Known:
    at: float
    identity: Identity | None
    why: str = ""


class Reviewer:
    """Asks the API server whose a token is; keeps answers for a while, by the token's digest, in a bounded number."""

    def __init__(
        self,
        client: Client,
        accounts: Collection[str],
        clock: Clock,
        audience: str | None = None,
        size: int = MAX_CACHED,
    ) -> None:
        self._client = client
        self._accounts = frozenset(accounts)
        self._clock = clock
        self._audience = audience
        self._size = size
        self._known: collections.OrderedDict[bytes, _Known] = collections.OrderedDict()
        self.reviews = 0

    def __len__(self) -> int:
        return len(self._known)

    async def identify(self, authorization: str | None) -> Identity:
        """Return whose the token in an ``authorization`` header is.

        :raises Refused: if there is none, it is not valid, or its account is not one of those allowed.
        """
        kind, _, token = (authorization or "").partition(" ")
        if kind.lower() != "bearer" or not token or len(token) > MAX_TOKEN_BYTES:
            raise Refused("a bearer token is needed: give the node --token-file")
        key = hashlib.sha256(token.encode()).digest()
        now = self._clock.monotonic()
        known = self._known.get(key)
        if known is None or now - known.at >= (ACCEPTED_SECONDS if known.identity else REFUSED_SECONDS):
            known = await self._review(key, token, known, now)
        if known.identity is None:
            raise Refused(known.why)
        return known.identity

    async def _review(self, key: bytes, token: str, before: _Known | None, now: float) -> _Known:
        spec: dict[str, object] = {"token": token}
        if self._audience is not None:
            spec["audiences"] = [self._audience]
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {}, "spec": spec}
        self.reviews += 1
        try:
            answer = await self._client.create(TOKEN_REVIEWS, body, _Review)
        except errors.KubeError as error:
            if before is not None and before.identity is not None and now - before.at < STALE_SECONDS:
                return before
            _log.warning("token review: %s", error)
            raise Refused("the token cannot be checked now", temporary=True) from None
        known = self._judge(answer.status, now)
        self._known[key] = known
        self._known.move_to_end(key)
        while len(self._known) > self._size:
            self._known.popitem(last=False)
        return known

    def _judge(self, status: _ReviewStatus, now: float) -> _Known:
        if not status.authenticated:
            return _Known(now, None, f"the token is not valid{': ' + status.error if status.error else ''}")
        account = status.user.username
        if account not in self._accounts:
            return _Known(now, None, f"{account} may not; see --node-account and --reader-account")
        nodes = (status.user.extra or {}).get(NODE_NAME_EXTRA) or []
        return _Known(now, Identity(account, nodes[0] if nodes else None))
