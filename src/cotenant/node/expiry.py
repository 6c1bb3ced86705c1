"""The verdict on this node ends with its truth, even when nobody is left who would take it off.

The scheduler takes verdicts off when the report expires or the analyzer falls silent. Should it be gone, too, the
node's agent does it for its own Node, within a minute. Nothing is asked of the API server while the node carries no
verdict; the analyzer's lease is not read while the stream to it stands.
"""

import asyncio
import logging
import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from cotenant.api import marks, timestamp
from cotenant.api.objects import Node
from cotenant.kube import errors
from cotenant.kube.client import LEASES, NODES, REPORTS, Client
from cotenant.kube.elector import Lease
from cotenant.units.clock import Clock

_log = logging.getLogger(__name__)

FIELD_MANAGER = "cotenant-node"
ANALYZER_LEASE = "cotenant-analyzer"
LEASE_FRESH_SECONDS = 60.0
LOOK_SECONDS = 5.0
LEASE_POLL_SECONDS = (8.0, 12.0)
GRACE_SECONDS = (10.0, 25.0)
"""After the end of a report, in which the scheduler's own hand comes first."""
FIGHT_SECONDS = (60.0, 3600.0)
"""First and longest pause after a verdict that was taken off has come back: somebody sees what we do not."""


class _Times(msgspec.Struct, rename="camel"):
    expires_at: str | None = None


class _Report(msgspec.Struct):
    status: _Times = msgspec.field(default_factory=_Times)


class Expiry:
    """Watches over the verdict on one node."""

    def __init__(
        self,
        client: Client,
        name: str,
        node: Callable[[], Mapping[str, Any] | None],
        connected: Callable[[], bool],
        clock: Clock,
        lease_namespace: str | None = None,
    ) -> None:
        self._client = client
        self._name = name
        self._node = node
        self._connected = connected
        self._clock = clock
        self._namespace = lease_namespace or client.namespace
        self._expires_at: float | None = None
        self._renewed: str | None = None
        self._renewed_at = math.inf
        self._poll_at = -math.inf
        self._remove_at = math.inf
        self._not_before = -math.inf
        self._pause = FIGHT_SECONDS[0]
        self.removals = 0
        self.last_error: str | None = None

    async def run(self) -> None:
        """Look every few seconds until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Look once; take the verdict off when it has outlived its truth and nobody else did."""
        try:
            await self._look()
        except errors.KubeError as error:
            # Nothing can be known now. The analyzer may have been cut off as well: it gets its time anew.
            self._renewed_at = math.inf
            self._remove_at = math.inf
            self.last_error = str(error)
            _log.info("verdict on %s: %s", self._name, error)

    async def _look(self) -> None:
        node = self._node()
        if node is None or not carries(node):
            self._remove_at = self._renewed_at = math.inf
            return
        now = self._clock.monotonic()
        why = await self._outlived(now)
        if why is None:
            self._remove_at = math.inf
            return
        if self._remove_at == math.inf:
            self._remove_at = now + random.uniform(*GRACE_SECONDS)
        if now >= max(self._remove_at, self._not_before):
            await self._remove(why, now)

    async def _outlived(self, now: float) -> str | None:
        """Return why the verdict holds no longer, or None where it holds."""
        if self._expires_at is None or self._clock.wall() >= self._expires_at:
            try:
                report = await self._client.get(REPORTS, self._name, _Report)
            except errors.NotFound:
                return "there is no report"
            self._expires_at = timestamp.parse(report.status.expires_at) or 0.0
            if self._clock.wall() >= self._expires_at:
                return f"the report expired at {report.status.expires_at}"
        return await self._silence(now)

    async def _silence(self, now: float) -> str | None:
        """Return how the analyzer's lease shows that it is gone; our clock counts, and only while we can see."""
        if self._connected():
            self._renewed_at = math.inf
            return None
        if now >= self._poll_at:
            self._poll_at = now + random.uniform(*LEASE_POLL_SECONDS)
            try:
                lease = await self._client.get(LEASES, ANALYZER_LEASE, Lease, namespace=self._namespace)
                renewed = lease.spec.renew_time
            except errors.NotFound:
                renewed = None
            self.last_error = None
            if renewed != self._renewed or self._renewed_at == math.inf:
                self._renewed, self._renewed_at = renewed, now
        if now - self._renewed_at < LEASE_FRESH_SECONDS:
            return None
        return f"the analyzer's lease has not moved for {LEASE_FRESH_SECONDS:.0f} s"

    async def _remove(self, why: str, now: float) -> None:
        raw = await self._client.get(NODES, self._name, dict[str, Any])
        self._remove_at = math.inf
        if not carries(raw):
            return
        patch = marks.removal(marks.VERDICT_LABELS)
        taints = marks.taint_patch(raw, None)
        if taints is not None:  # in one write: with the resourceVersion it was read at
            patch["metadata"].update(taints["metadata"])
            patch["spec"] = taints["spec"]
        await self._client.patch(NODES, self._name, patch, field_manager=FIELD_MANAGER)
        self.removals += 1
        self._not_before = now + self._pause
        self._pause = min(self._pause * 2, FIGHT_SECONDS[1])
        _log.warning("took the verdict off node %s: %s", self._name, why)


def carries(node: Mapping[str, Any]) -> bool:
    """Tell whether a Node object carries a verdict of ours.

    :raises ValidationError: if it is no Node.
    """
    found = marks.marks_of(msgspec.convert(node, Node))
    return found.taint is not None or found.hard is not None or any(key in found.labels for key in marks.VERDICT_LABELS)
