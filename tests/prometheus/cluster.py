"""An API server of the tests' own in a process of its own, for programs that need one; run as a module it serves."""

import asyncio
import json
import pathlib
import sys
import urllib.request
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tests.cli.conftest import KUBECONFIG
from tests.kube.conftest import ApiServer, served
from tests.prometheus import servers

NAMESPACE = "cotenant-system"


class _Server(ApiServer):
    """Knows every kind: a list that nobody has put anything into is empty."""

    async def handle(self, request: Request) -> Response:
        path = request.url.path.strip("/")
        plural = path.rpartition("/")[2]
        if request.method == "GET" and plural.isalpha() and plural.islower() and plural.endswith("s"):
            self.objects.setdefault(path, {})
        return await super().handle(request)


class Cluster:
    """A running API server."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._process = servers.Process([sys.executable, "-m", "tests.prometheus.cluster"], folder / "api-server.log")
        self._url = servers.url_printed(self._process)

    def kubeconfig(self) -> str:
        """Return the option that names this cluster."""
        path = self._folder / "kubeconfig"
        path.write_text(KUBECONFIG % int(self._url.rpartition(":")[2]))
        return f"--kubeconfig={path}"

    def add(self, listed_at: str, name: str, **fields: Any) -> None:
        """Put an object there."""
        metadata = {**fields.pop("metadata", {}), "name": name}
        if "/namespaces/" in listed_at:
            metadata["namespace"] = listed_at.split("/")[-2]
        body = json.dumps({**fields, "metadata": metadata}).encode()
        request = urllib.request.Request(f"{self._url}/{listed_at}", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60):
            pass

    def stop(self) -> None:
        self._process.stop()


async def serve() -> None:
    """Serve until ended."""
    route = Route("/{path:path}", _Server().handle, methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
    async with served(Starlette(routes=[route])) as url:
        print(url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve())
