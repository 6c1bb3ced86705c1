"""A small client: our own requests over lightkube's connection (kubeconfig, service account, TLS, tokens).

Objects are whatever msgspec decodes: the caller's own structs with only the fields it needs, or plain dictionaries.
"""

import dataclasses
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal, TypeVar, get_args

import httpx2
import msgspec
from lightkube.config import client_adapter
from lightkube.config.kubeconfig import SingleConfig
from lightkube.core import exceptions as lightkube_exceptions

from cotenant.kube import errors
from cotenant.units.malformed import MALFORMED

Object = TypeVar("Object")
Params = Mapping[str, str | int | bool | None]

TIMEOUT_SECONDS = 10.0
"""Of a program that asks again and again; a command that asks once is more patient."""
PAGE = 500
"""Objects of a list at a time."""
WATCH_SILENCE_SECONDS = 120.0
"""A watch that is silent for longer is opened again: bookmarks come every minute, a dead connection says nothing."""
PATCH_TYPES = {
    "apply": "application/apply-patch+yaml",
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Resource:
    """A kind as the API server's paths spell it."""

    group: str
    version: str
    plural: str
    namespaced: bool = False

    def path(self, name: str | None = None, namespace: str | None = None, subresource: str | None = None) -> str:
        """Return the path of one object, or of the list of them (in one namespace, or in all)."""
        parts = ["api", self.version] if not self.group else ["apis", self.group, self.version]
        if namespace is not None and self.namespaced:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        return "/".join([*parts, *(part for part in (name, subresource) if part is not None)])


NODES = Resource("", "v1", "nodes")
PODS = Resource("", "v1", "pods", namespaced=True)
SERVICES = Resource("", "v1", "services", namespaced=True)
CONFIG_MAPS = Resource("", "v1", "configmaps", namespaced=True)
NAMESPACES = Resource("", "v1", "namespaces")
SECRETS = Resource("", "v1", "secrets", namespaced=True)
DAEMON_SETS = Resource("apps", "v1", "daemonsets", namespaced=True)
QUOTAS = Resource("", "v1", "resourcequotas", namespaced=True)
LIMIT_RANGES = Resource("", "v1", "limitranges", namespaced=True)
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses")
MUTATING_WEBHOOKS = Resource("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations")
VALIDATING_WEBHOOKS = Resource("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations")
PROFILES = Resource("config.koordinator.sh", "v1alpha1", "clustercolocationprofiles")
EVENTS = Resource("", "v1", "events", namespaced=True)
LEASES = Resource("coordination.k8s.io", "v1", "leases", namespaced=True)
TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews")
REVISIONS = Resource("apps", "v1", "controllerrevisions", namespaced=True)
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses")
DEFINITIONS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
NODE_SLOS = Resource("slo.koordinator.sh", "v1alpha1", "nodeslos")
NODE_METRICS = Resource("slo.koordinator.sh", "v1alpha1", "nodemetrics")
TOPOLOGIES = Resource("topology.node.k8s.io", "v1alpha1", "noderesourcetopologies")
REPORTS = Resource("cotenant.io", "v1alpha1", "nodeinterferencereports")
RULES = Resource("cotenant.io", "v1alpha1", "detectionruleconfigs")
ROLLOUTS = Resource("cotenant.io", "v1alpha1", "colocationrollouts")


class _ListMeta(msgspec.Struct, rename={"resource_version": "resourceVersion", "next_page": "continue"}):
    resource_version: str = ""
    next_page: str = ""


class _RawList(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None


EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
EVENT_TYPES: tuple[EventType, ...] = get_args(EventType)


class _RawEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """One page of a list; ``next_page`` is empty on the last one."""

    items: list[msgspec.Raw]
    resource_version: str
    next_page: str


@dataclasses.dataclass(frozen=True, slots=True)
class WatchEvent:
    """One event of a watch, its object still encoded."""

    type: EventType
    object: msgspec.Raw


_list_decoder = msgspec.json.Decoder(_RawList)
_event_decoder = msgspec.json.Decoder(_RawEvent)
_status_decoder = msgspec.json.Decoder(errors.Status)


_NO_CREDENTIALS = (lightkube_exceptions.ConfigError, OSError, KeyError, ValueError)
"""What getting a token raises, from a file that is being replaced or from a plug-in that fails."""


class Client:
    """Requests to one API server. Use as an asynchronous context manager."""

    def __init__(
        self, config: SingleConfig, user_agent: str = "cotenant", *, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        self.namespace = config.namespace
        timeout = httpx2.Timeout(timeout_seconds, connect=TIMEOUT_SECONDS)
        self._http = client_adapter.AsyncClient(config, client_adapter.ConnectionParams(timeout=timeout))
        self._http.headers["User-Agent"] = user_agent

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._http.aclose()

    async def get(self, resource: Resource, name: str, kind: type[Object], *, namespace: str | None = None) -> Object:
        """Return one object.

        :raises NotFound: if there is none.
        :raises KubeError: if it cannot be had.
        """
        path = resource.path(name, namespace)
        return _decoded(await self._send("GET", path), msgspec.json.Decoder(kind), f"GET {path}")

    async def page(self, resource: Resource, *, namespace: str | None = None, **params: str | int | None) -> Page:
        """Return one page of a list (``limit``, ``continue_``, ``resourceVersion``, ``labelSelector`` …).

        :raises Expired: if the continuation or the version is gone.
        :raises TooLarge: if the server has not reached the version yet.
        :raises KubeError: if it cannot be had.
        """
        path = resource.path(namespace=namespace)
        asked = {name.rstrip("_"): value for name, value in params.items()}
        found = _decoded(await self._send("GET", path, asked), _list_decoder, f"GET {path}")
        return Page(found.items or [], found.metadata.resource_version, found.metadata.next_page)

    async def every(
        self, resource: Resource, kind: type[Object], *, namespace: str | None = None, **params: str | None
    ) -> AsyncIterator[Object]:
        """Yield all objects of a list, of which no more than a page is held.

        :raises KubeError: if they cannot be had, or one is not of this kind.
        """
        decoder = msgspec.json.Decoder(kind)
        continuation: str | None = None
        while continuation != "":
            page = await self.page(resource, namespace=namespace, limit=PAGE, continue_=continuation, **params)
            for item in page.items:
                yield _decoded(item, decoder, resource.plural)
            continuation = page.next_page

    async def watch(
        self, resource: Resource, resource_version: str, seconds: int, *, namespace: str | None = None, **params: str
    ) -> AsyncIterator[WatchEvent]:
        """Yield events after a resource version, for at most so many seconds.

        :raises Expired: if the version is gone.
        :raises KubeError: if the watch cannot be had or breaks.
        """
        path = resource.path(namespace=namespace)
        asked = _clean({
            "watch": True, "allowWatchBookmarks": True, "resourceVersion": resource_version, "timeoutSeconds": seconds,
            **params,
        })  # fmt: skip
        timeout = httpx2.Timeout(TIMEOUT_SECONDS, read=WATCH_SILENCE_SECONDS)
        try:
            async with self._http.stream("GET", path, params=asked, timeout=timeout) as answer:
                if answer.status_code >= 400:
                    await answer.aread()
                    raise _failure(answer, f"watch {path}")
                async for line in _lines(answer):
                    event = _decoded(line, _event_decoder, f"watch {path}")
                    if event.type == "ERROR":
                        status = _decoded(event.object, _status_decoder, f"watch {path}")
                        raise errors.error_of(status, f"watch {path}")
                    kind = next((known for known in EVENT_TYPES if known == event.type), None)
                    if kind is not None:
                        yield WatchEvent(kind, event.object)
        except httpx2.HTTPError as error:
            raise errors.Unreachable(f"watch {self._url(path)}: {_why(error)}") from None
        except _NO_CREDENTIALS as error:
            raise errors.Unreachable(f"watch {self._url(path)}: no credentials: {error}") from None

    async def create(
        self, resource: Resource, value: Any, kind: type[Object], *, namespace: str | None = None
    ) -> Object:
        """Make an object and return it.

        :raises Conflict: if there is one of that name.
        :raises KubeError: if it cannot be made.
        """
        path = resource.path(namespace=namespace)
        return _decoded(await self._send("POST", path, body=value), msgspec.json.Decoder(kind), f"POST {path}")

    async def replace(
        self,
        resource: Resource,
        name: str,
        value: Any,
        kind: type[Object],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        field_manager: str | None = None,
    ) -> Object:
        """Replace an object by one that carries the resourceVersion it was read at, and return it.

        :raises Conflict: if somebody else wrote in between.
        :raises KubeError: if it cannot be written.
        """
        path = resource.path(name, namespace, subresource)
        content = await self._send("PUT", path, {"fieldManager": field_manager}, value)
        return _decoded(content, msgspec.json.Decoder(kind), f"PUT {path}")

    async def patch(
        self,
        resource: Resource,
        name: str,
        value: Any,
        *,
        how: Literal["merge", "json", "strategic"] = "merge",
        namespace: str | None = None,
        subresource: str | None = None,
        field_manager: str | None = None,
    ) -> None:
        """Change parts of an object; with a resourceVersion in the patch, only if nobody else wrote in between.

        :raises Conflict: if somebody did.
        :raises KubeError: if it cannot be written.
        """
        path = resource.path(name, namespace, subresource)
        await self._send("PATCH", path, {"fieldManager": field_manager}, value, PATCH_TYPES[how])

    async def apply(
        self,
        resource: Resource,
        name: str,
        value: Any,
        field_manager: str,
        *,
        force: bool = False,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> None:
        """Make these fields ours and these values, by server-side apply; fields we no longer name are given up.

        :raises Conflict: if another manager owns one of them and ``force`` is not set.
        :raises KubeError: if it cannot be written.
        """
        params: Params = {"fieldManager": field_manager, "force": force}
        await self._send("PATCH", resource.path(name, namespace, subresource), params, value, PATCH_TYPES["apply"])

    async def evict(self, namespace: str, name: str, uid: str, grace_seconds: int | None = None) -> None:
        """Ask for the eviction of this very pod, within its own grace unless another is given.

        :raises NotFound: if it is gone.
        :raises Conflict: if another pod has its name now.
        :raises Throttled: if a disruption budget does not allow it now, or the server has too much to do.
        :raises KubeError: if it cannot be asked for.
        """
        options: dict[str, Any] = {"preconditions": {"uid": uid}}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        named = {"name": name, "namespace": namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": named, "deleteOptions": options}
        await self._send("POST", PODS.path(name, namespace, "eviction"), body=body)

    async def delete(self, resource: Resource, name: str, *, namespace: str | None = None) -> None:
        """Delete an object.

        :raises NotFound: if there is none.
        :raises KubeError: if it cannot be deleted.
        """
        await self._send("DELETE", resource.path(name, namespace))

    def _url(self, path: str) -> str:
        return f"{str(self._http.base_url).rstrip('/')}/{path}"

    async def _send(
        self,
        method: str,
        path: str,
        params: Params | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> bytes:
        content = None if body is None else msgspec.json.encode(body)
        try:
            answer = await self._http.request(
                method,
                path,
                params=_clean(params or {}),
                content=content,
                headers=None if body is None else {"Content-Type": content_type},
            )
        except httpx2.HTTPError as error:
            raise errors.Unreachable(f"{method} {self._url(path)}: {_why(error)}") from None
        except _NO_CREDENTIALS as error:
            raise errors.Unreachable(f"{method} {self._url(path)}: no credentials: {error}") from None
        if answer.status_code >= 400:
            raise _failure(answer, f"{method} {path}")
        return answer.content


def _decoded(content: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[Object], what: str) -> Object:
    try:
        return decoder.decode(content)
    except MALFORMED as error:
        raise errors.Unreadable(f"{what}: the answer is not what was asked for: {error}") from None


def _clean(params: Params) -> dict[str, str]:
    """Return the parameters as text, without those that are not given."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in params.items()
        if value is not None
    }


def _why(error: httpx2.HTTPError) -> str:
    """Say why there is no answer; that of a time-out has no text of its own."""
    if isinstance(error, httpx2.TimeoutException):
        return f"no answer in time ({type(error).__name__}); is the API server overloaded, or kept off by a firewall?"
    return f"{type(error).__name__}: {error}"


def _failure(answer: httpx2.Response, what: str) -> errors.ApiError:
    try:
        status = _status_decoder.decode(answer.content)
    except MALFORMED:  # a proxy's page, say
        status = errors.Status(message=answer.reason_phrase)
    if not status.code:
        status = msgspec.structs.replace(status, code=answer.status_code)
    wait = answer.headers.get("retry-after", "")
    return errors.error_of(status, what, float(wait) if wait.isdecimal() else None)


async def _lines(answer: httpx2.Response) -> AsyncIterator[bytes]:
    """Yield the lines of a body as they come, without the newline; one may be larger than any chunk."""
    rest: list[bytes] = []
    async for chunk in answer.aiter_bytes():
        first, *more = chunk.split(b"\n")
        rest.append(first)
        for part in more:
            line = b"".join(rest)
            rest = [part]
            if line:
                yield line
