"""Whether a part of Koordinator's lives, by its lease: a scheduler that reads NodeMetrics, a manager that writes."""

import asyncio
import logging

from cotenant.kube import errors
from cotenant.kube.client import LEASES, Client
from cotenant.kube.elector import Lease, LeaseSpec
from cotenant.units.clock import Clock

_log = logging.getLogger(__name__)

SCHEDULERS = ("koord-scheduler", "koord-descheduler")
MANAGER = ("koordinator-manager",)
LOOK_SECONDS = 15.0
RETRY_SECONDS = 2.0
ALIVE_SECONDS = 60.0
"""A lease whose record did not change for so long belongs to nobody."""


class Readers:
    """Looks at the leases; trusts our own clock only, as leader election does."""

    def __init__(self, client: Client, namespace: str, clock: Clock, names: tuple[str, ...] = SCHEDULERS) -> None:
        self._names = names
        self._client = client
        self._namespace = namespace
        self._clock = clock
        self._seen: dict[str, LeaseSpec] = {}
        self._changed_at: dict[str, float] = {}
        self.looked = asyncio.Event()
        """Set when every lease has been looked at."""

    @property
    def alive(self) -> bool:
        """Whether one of them lives."""
        now = self._clock.monotonic()
        return any(now - at < ALIVE_SECONDS for at in self._changed_at.values())

    async def run(self) -> None:
        """Look until cancelled; more often until each lease has been looked at."""
        while True:
            found = [await self._look(name) for name in self._names]
            if all(found):
                self.looked.set()
            await asyncio.sleep(LOOK_SECONDS if self.looked.is_set() else RETRY_SECONDS)

    async def _look(self, name: str) -> bool:
        """Look at one lease; return whether there is an answer."""
        try:
            lease = await self._client.get(LEASES, name, Lease, namespace=self._namespace)
        except errors.NotFound:
            self._changed_at.pop(name, None)
            return True
        except errors.KubeError as error:
            refused = isinstance(error, errors.Forbidden)  # and will be: nobody is known to live
            level = logging.WARNING if refused and not self.looked.is_set() else logging.INFO
            _log.log(level, "lease %s/%s: %s", self._namespace, name, error)
            return refused  # as it was
        if lease.spec.holder_identity and self._seen.get(name) != lease.spec:
            self._changed_at[name] = self._clock.monotonic()
        self._seen[name] = lease.spec
        return True
