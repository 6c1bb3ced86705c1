"""Waiting until informers know what the API server knows."""

import asyncio
from typing import Any

from tests.kube.conftest import ApiServer
from tests.waiting import PATIENCE_SECONDS

from cotenant.kube.informer import Informer


async def caught_up(server: ApiServer, *informers: Informer[Any]) -> None:
    """Wait until informers have handed on every change of what they list."""

    def behind(informer: Informer[Any]) -> bool:
        path = informer._resource.path(namespace=informer._namespace)
        newest = max((version for version, listed_at, _ in server.changes if listed_at == path), default=0)
        return not informer.synced.is_set() or int(informer._version or 0) < newest

    async with asyncio.timeout(PATIENCE_SECONDS):
        while any(behind(informer) for informer in informers):
            await asyncio.sleep(0.001)
