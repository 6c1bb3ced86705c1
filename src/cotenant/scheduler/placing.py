"""Follows which pods are placed where, from now on; pods that are there already are not listed."""

import asyncio
import collections
import logging

import msgspec

from cotenant.api.objects import Pod
from cotenant.kube import errors
from cotenant.kube.backoff import Backoff
from cotenant.kube.client import PODS, Client
from cotenant.scheduler import herd
from cotenant.scheduler.table import Table
from cotenant.units.clock import Clock
from cotenant.units.malformed import MALFORMED

_log = logging.getLogger(__name__)

WATCH_SECONDS = 300
REMEMBERED = 20_000
"""Pods whose placement was counted: a pod changes many times after it."""

_pod_decoder = msgspec.json.Decoder(Pod)


class Placements:
    """Counts pods as they are placed."""

    def __init__(self, client: Client, table: Table, counted: herd.Herd, clock: Clock) -> None:
        self._client = client
        self._table = table
        self._herd = counted
        self._clock = clock
        self._waiting: collections.OrderedDict[str, None] = collections.OrderedDict()
        self.placed = 0
        self.failures = 0
        self.last_error: str | None = None

    async def run(self) -> None:
        """Follow until cancelled; while that fails, nothing is counted and nodes are scored without."""
        backoff = Backoff()
        while True:
            try:
                page = await self._client.page(PODS, limit=1)
                version = page.resource_version
                while True:
                    async for event in self._client.watch(PODS, version, WATCH_SECONDS):
                        backoff.reset()
                        self.last_error = None
                        version = self.hear(event.type, event.object) or version
            except (errors.KubeError, *MALFORMED) as error:
                self.failures += 1
                self.last_error = str(error)
                await asyncio.sleep(backoff.next_seconds())

    def hear(self, kind: str, encoded: bytes | msgspec.Raw) -> str:
        """Take one event, and return its resource version.

        Only pods that were seen waiting for a node and then have one were placed just now.
        """
        pod = _pod_decoder.decode(encoded)
        uid, node = pod.metadata.uid, pod.spec.node_name
        if kind in ("ADDED", "MODIFIED") and not node:
            self._waiting[uid] = None
            if len(self._waiting) > REMEMBERED:
                self._waiting.popitem(last=False)
        elif uid in self._waiting:
            del self._waiting[uid]
            self._herd.forget(uid)  # gone, or counted where it is
            if node and kind != "DELETED":
                self.placed += 1
                load = herd.load_of(pod, self._table.nodes.get(node))
                self._herd.placed(node, load, self._clock.monotonic())
        return pod.metadata.resource_version
