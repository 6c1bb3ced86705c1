"""An API server of our own in the test's process: pages, watches, versions, and failures on demand."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import uvicorn
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import Cluster, User
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from tests.kube import patching

from cotenant.kube.client import Client
from cotenant.web.serving import bind, url_of


def status(code: int, reason: str, message: str = "", cause: str | None = None) -> dict[str, Any]:
    details = {"causes": [{"reason": cause}]} if cause else None
    return {"kind": "Status", "code": code, "reason": reason, "message": message or reason, "details": details}


class ApiServer:
    """Objects by path of their list, then by name. ``requests`` is what was asked, in order."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, dict[str, Any]]] = {}
        self.version = 100
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.bodies: list[Any] = []
        self.failures: list[tuple[str, Response]] = []
        self.changes: list[tuple[int, str, dict[str, Any]]] = []
        """What has changed: at which version, in which list, and the event of it."""
        self.watchers: list[asyncio.Queue[dict[str, Any] | None]] = []
        self.users: dict[str, dict[str, Any]] = {}
        """Users by their token; any other token is not valid."""
        self.watching: dict[int, str] = {}
        self.watched = asyncio.Event()
        self.applied: dict[tuple[str, str], dict[str, Any]] = {}
        """What each field manager last applied to each object."""
        self.away = False
        """While set, every request is answered with 503."""
        self.first_events: list[list[dict[str, Any]]] = []
        """Events that the next watches begin with, instead of waiting for changes."""

    def fail(self, what: str, answer: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        """Answer the next request whose ``METHOD path?query`` contains ``what`` like this."""
        self.failures.append((what, JSONResponse(answer, answer["code"], headers)))

    def put(self, listed_at: str, name: str, **fields: Any) -> dict[str, Any]:
        self.version += 1
        objects = self.objects.setdefault(listed_at, {})
        kind = "MODIFIED" if name in objects else "ADDED"
        metadata = {**fields.pop("metadata", {}), "name": name, "resourceVersion": str(self.version)}
        objects[name] = {**fields, "metadata": metadata}
        self._changed({"type": kind, "object": objects[name]}, listed_at)
        return objects[name]

    def remove(self, listed_at: str, name: str) -> None:
        self.version += 1
        gone = self.objects[listed_at].pop(name)
        gone["metadata"]["resourceVersion"] = str(self.version)
        self._changed({"type": "DELETED", "object": gone}, listed_at)

    def _changed(self, event: dict[str, Any], listed_at: str) -> None:
        self.changes.append((self.version, listed_at, event))
        self.tell(event, listed_at)

    def tell(self, event: dict[str, Any] | None, listed_at: str | None = None) -> None:
        """Send an event to every watch (of one list, where given); None ends them."""
        for queue in self.watchers:
            if listed_at in (None, self.watching[id(queue)]):
                queue.put_nowait(event)

    async def handle(self, request: Request) -> Response:
        path, query = request.url.path.strip("/"), dict(request.query_params)
        self.requests.append((request.method, path, query))
        body = json.loads(await request.body() or b"null")
        self.bodies.append(body)
        if self.away:
            return JSONResponse(status(503, "ServiceUnavailable"), 503)
        asked = f"{request.method} {path}?{request.url.query}"
        for position, (what, answer) in enumerate(self.failures):
            if what in asked:
                del self.failures[position]
                return answer
        if query.get("watch") == "true":
            since = int(query.get("resourceVersion") or self.version)
            return StreamingResponse(self.stream(path, since), media_type="application/json")
        if path.endswith("/tokenreviews"):
            user = self.users.get(body["spec"]["token"])
            return JSONResponse({"status": {"authenticated": user is not None, "user": user or {}}}, 201)
        if request.method == "POST" and path.endswith("/eviction"):
            return self.evict(path.removesuffix("/eviction"), body)
        if request.method == "POST":
            if body["metadata"]["name"] in self.objects.get(path, {}):
                return JSONResponse(status(409, "AlreadyExists"), 409)
            return JSONResponse(self.put(path, body["metadata"]["name"], **body), 201)
        listed_at, _, name = path.rpartition("/")
        if request.method == "PUT" and name == "status":
            return self.replace_status(listed_at, body)
        if request.method == "GET" and path in self.objects:
            return JSONResponse(self.page(path, query))
        if request.method == "PATCH":
            return self.patch(listed_at, name, query, body, request.headers.get("content-type", ""))
        found = self.objects.get(listed_at, {}).get(name)
        if found is None:
            return JSONResponse(status(404, "NotFound"), 404)
        if request.method == "PUT":
            if body["metadata"].get("resourceVersion") != found["metadata"]["resourceVersion"]:
                return JSONResponse(status(409, "Conflict"), 409)
            return JSONResponse(self.put(listed_at, name, **body))
        if request.method == "DELETE":
            self.remove(listed_at, name)
        return JSONResponse(found)

    def replace_status(self, path: str, body: Any) -> Response:
        listed_at, _, name = path.rpartition("/")
        found = self.objects.get(listed_at, {}).get(name)
        if found is None:
            return JSONResponse(status(404, "NotFound"), 404)
        metadata = body["metadata"]
        if any(metadata.get(key) != found["metadata"].get(key) for key in ("resourceVersion", "uid")):
            return JSONResponse(status(409, "Conflict"), 409)
        return JSONResponse(self.put(listed_at, name, **{**found, "status": body["status"]}))

    def evict(self, path: str, body: Any) -> Response:
        listed_at, _, name = path.rpartition("/")
        found = self.objects.get(listed_at, {}).get(name)
        if found is None:
            return JSONResponse(status(404, "NotFound"), 404)
        wanted = body["deleteOptions"]["preconditions"]["uid"]
        if wanted != found["metadata"]["uid"]:
            return JSONResponse(status(409, "Conflict"), 409)
        metadata = {**found["metadata"], "deletionTimestamp": "2026-11-30T00:00:00Z"}
        self.put(listed_at, name, **{**found, "metadata": metadata})
        return JSONResponse({"kind": "Status", "status": "Success"}, 201)

    def patch(self, listed_at: str, name: str, query: dict[str, str], body: Any, how: str) -> Response:
        if name == "status":
            listed_at, _, name = listed_at.rpartition("/")
        found = self.objects.get(listed_at, {}).get(name)
        version = (body.get("metadata") or {}).get("resourceVersion")
        if found is not None and version is not None and version != found["metadata"]["resourceVersion"]:
            return JSONResponse(status(409, "Conflict"), 409)
        if found is None:
            if "apply" not in how or "uid" in (body.get("metadata") or {}):
                return JSONResponse(status(404 if "apply" not in how else 409, "NotFound"), 404)
            return JSONResponse(self.put(listed_at, name, **body))
        new = json.loads(json.dumps(found))
        if "apply" in how:
            owned = self.applied.setdefault((listed_at, name), {})
            patching.apply(new, body, owned.get(query["fieldManager"], {}))
            owned[query["fieldManager"]] = body
        else:
            patching.merge(new, body, strategic="strategic" in how)
        if new == found:
            return JSONResponse(found)  # as the real one: nothing changed, no new version
        return JSONResponse(self.put(listed_at, name, **new))

    def page(self, path: str, query: dict[str, str]) -> dict[str, Any]:
        items = [self.objects[path][name] for name in sorted(self.objects[path])]
        start = int(query.get("continue", "0"))
        end = start + int(query.get("limit", "500"))
        more = str(end) if end < len(items) else ""
        metadata = {"resourceVersion": str(self.version), "continue": more}
        return {"kind": "List", "metadata": metadata, "items": items[start:end]}

    async def stream(self, path: str, since: int) -> AsyncIterator[bytes]:
        """Yield what changes in a list after a version: what has changed by now first, as the real one does."""
        queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        for version, listed_at, event in self.changes:
            if version > since and listed_at == path:
                queue.put_nowait(event)
        self.watching[id(queue)] = path
        self.watchers.append(queue)
        self.watched.set()
        try:
            for event in self.first_events.pop(0) if self.first_events else []:
                yield json.dumps(event).encode() + b"\n"
            while (event := await queue.get()) is not None:
                yield json.dumps(event).encode() + b"\n"
        finally:
            self.watchers.remove(queue)


class _Server(uvicorn.Server):
    """A server that ends when told, not at its next look at the clock, and leaves the test's signals alone."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.told_to_end = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.told_to_end.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def served(application: Any) -> AsyncIterator[str]:
    """Serve an ASGI application on loopback; yields its URL."""
    listener = bind("127.0.0.1:0")
    server = _Server(uvicorn.Config(application, log_config=None, lifespan="off", timeout_graceful_shutdown=1))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield url_of(listener)
    finally:
        server.told_to_end.set()
        await serving
        listener.close()


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    server = ApiServer()
    route = Route("/{path:path}", server.handle, methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
    async with served(Starlette(routes=[route])) as url:
        server.url = url  # type: ignore[attr-defined]
        yield server
        server.tell(None)


@pytest.fixture
async def client(api: ApiServer) -> AsyncIterator[Client]:
    cluster = Cluster(server=api.url, insecure=True)  # type: ignore[attr-defined]
    config = KubeConfig.from_one(cluster=cluster, user=User(), namespace="tests").get()
    assert config is not None
    async with Client(config) as opened:
        yield opened
