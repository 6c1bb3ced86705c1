import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from tests.kube.conftest import ApiServer, api, client
from tests.waiting import turns

from cotenant.kube.client import Client
from cotenant.manager.controller import Context, Controller
from cotenant.units.clock import ManualClock

__all__ = ["api", "client"]

CONFIG = "api/v1/namespaces/koordinator-system/configmaps"
STATE = "api/v1/namespaces/cotenant-system/configmaps"
REVISIONS = "apis/apps/v1/namespaces/cotenant-system/controllerrevisions"
EVENTS = "api/v1/namespaces/koordinator-system/events"
NODES = "api/v1/nodes"
NODE_SLOS = "apis/slo.koordinator.sh/v1alpha1/nodeslos"
NODE_METRICS = "apis/slo.koordinator.sh/v1alpha1/nodemetrics"
TOPOLOGIES = "apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies"
LISTS = (CONFIG, STATE, REVISIONS, EVENTS, NODES, NODE_SLOS, NODE_METRICS, TOPOLOGIES)


class Cluster:
    """An API server with the lists that the manager reads, and controllers that run on it."""

    def __init__(self, api: ApiServer, client: Client) -> None:
        self.api = api
        self.clock = ManualClock()
        self.context = Context(client=client, clock=self.clock, namespace="cotenant-system")
        for listed_at in LISTS:
            api.objects.setdefault(listed_at, {})

    def write_config(self, annotations: Mapping[str, str] | None = None, **sections: str) -> None:
        """Write the ConfigMap; keys come with underscores and without ``-config``."""
        data = {f"{name.replace('_', '-')}-config": text for name, text in sections.items()}
        metadata = {"namespace": "koordinator-system", "annotations": dict(annotations or {})}
        self.api.put(CONFIG, "slo-controller-config", metadata=metadata, data=data)

    def add_node(self, name: str, **labels: str) -> None:
        self.api.put(NODES, name, metadata={"uid": f"uid-{name}", "labels": labels})

    def objects(self, listed_at: str) -> dict[str, dict[str, Any]]:
        return self.api.objects[listed_at]

    def writes(self, part: str) -> int:
        """Return how often an object whose path contains this was written."""
        return sum(method != "GET" and part in path for method, path, _ in self.api.requests)

    @contextlib.asynccontextmanager
    async def running(self, *controllers: Controller) -> AsyncIterator[None]:
        """Run controllers, with a clock that moves as time goes by."""

        async def move() -> None:
            while True:
                await asyncio.sleep(0.01)
                await turns()
                self.clock.advance(0.2)

        work = [asyncio.create_task(one.run(self.context)) for one in controllers]
        moving = asyncio.create_task(move())
        try:
            yield
        finally:
            moving.cancel()
            for task in work:
                task.cancel()
            for result in await asyncio.gather(moving, *work, return_exceptions=True):
                if isinstance(result, Exception):
                    raise result


@pytest.fixture
def cluster(api: ApiServer, client: Client, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    from cotenant.manager import reconciling
    from cotenant.manager.slo import following

    monkeypatch.setattr(reconciling, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(following, "LOOK_SECONDS", 0.01)
    return Cluster(api, client)
