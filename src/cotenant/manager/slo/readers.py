"""Whether somebody reads NodeMetrics: a scheduler of Koordinator's that lives, by its lease."""

import asyncio
import logging

from cotenant.kube import errors
from cotenant.kube.client import LEASES, Client
from cotenant.kube.elector import Lease, LeaseSpec
from cotenant.units.clock import Clock

_log = logging.getLogger(__name__)

LEASE_NAMES = ("koord-scheduler", "koord-descheduler")
LOOK_SECONDS = 15.0
ALIVE_SECONDS = 60.0
"""A lease whose record did not change for so long belongs to nobody."""


class Readers:
    """Looks at the leases; trusts our own clock only, as leader election does."""

    def __init__(self, client: Client, namespace: str, clock: Clock) -> None:
        self._client = client
        self._namespace = namespace
        self._clock = clock
        self._seen: dict[str, LeaseSpec] = {}
        self._changed_at: dict[str, float] = {}

    @property
    def alive(self) -> bool:
        """Whether one of them lives."""
        now = self._clock.monotonic()
        return any(now - at < ALIVE_SECONDS for at in self._changed_at.values())

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            for name in LEASE_NAMES:
                await self._look(name)
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self, name: str) -> None:
        try:
            lease = await self._client.get(LEASES, name, Lease, namespace=self._namespace)
        except errors.NotFound:
            self._changed_at.pop(name, None)
            return
        except errors.KubeError as error:
            _log.info("lease %s/%s: %s", self._namespace, name, error)
            return  # as it was
        if lease.spec.holder_identity and self._seen.get(name) != lease.spec:
            self._changed_at[name] = self._clock.monotonic()
        self._seen[name] = lease.spec
