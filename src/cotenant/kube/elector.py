"""Leader election by a Lease, with client-go's semantics, so that both can stand for the same one.

A candidate trusts its own clock only: it takes over when the record has not changed for the lease's duration *as it saw
it*. A leader that could not renew within the renew deadline stops leading before another may start.
"""

import asyncio
import contextlib
import dataclasses
import datetime
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from cotenant.kube import errors
from cotenant.kube.client import LEASES, Client
from cotenant.units.clock import Clock

_log = logging.getLogger(__name__)

PAUSE_SECONDS = 2.0
"""From the loss of leadership to the next campaign."""
RELEASE_SECONDS = 3.0
"""How long a leader that ends tries to give its lease up."""


@dataclasses.dataclass(frozen=True, slots=True)
class Terms:
    """Seconds: how long a lease holds, within which it must be renewed, and how often that is tried."""

    lease: float = 10.0
    renew: float = 7.0
    retry: float = 2.0

    def __post_init__(self) -> None:
        if not self.lease > self.renew > self.retry > 0:
            raise ValueError("lease > renew > retry > 0 must hold, or two could lead at once")


class LeaseSpec(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """Who leads, since when, and when it last said so."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(msgspec.Struct, kw_only=True):
    """A coordination Lease; its metadata is kept as it came."""

    metadata: dict[str, Any] = {}
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


def _micro_time(wall: float) -> str:
    moment = datetime.datetime.fromtimestamp(wall, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Elector:
    """One candidate for one lease."""

    def __init__(
        self,
        client: Client,
        name: str,
        identity: str,
        clock: Clock,
        *,
        namespace: str | None = None,
        terms: Terms | None = None,
    ) -> None:
        self._client = client
        self._name = name
        self._namespace = namespace or client.namespace
        self.identity = identity
        self._clock = clock
        self._terms = terms or Terms()
        self._seen: LeaseSpec | None = None
        self._seen_at = -float("inf")
        self._renewed_at = -float("inf")
        """When the last write that made or kept the lease ours was sent: others count from when it came in, or later.
        """
        self.leading = False
        self.last_error: str | None = None
        """Why the last look at the lease failed; None after one that did not."""

    @property
    def leader(self) -> str | None:
        """The identity that was last seen in the lease, or None."""
        return (self._seen.holder_identity or None) if self._seen is not None else None

    def held_within(self, seconds: float) -> bool:
        """Tell whether this candidate leads, or held the lease so long ago at most and saw nobody else in it since."""
        if self.leading:
            return True
        return self.leader == self.identity and self._age() <= seconds

    async def stand(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Campaign, and again whenever leadership was lost; returns only by cancellation, or an error of ``lead``."""
        while True:
            await self.campaign(lead)
            await asyncio.sleep(PAUSE_SECONDS)

    async def campaign(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lease, run ``lead`` while it is ours, and cancel it when it is lost.

        Returns when leadership is lost; call again to stand again. An error of ``lead`` itself is raised. On
        cancellation the lease is given up, so that the next one need not wait for it to run out.
        """
        await self._acquire()
        self.leading = True
        _log.info("%s leads by lease %s/%s", self.identity, self._namespace, self._name)
        leading = asyncio.ensure_future(lead())
        renewing = asyncio.create_task(self._keep_renewing())
        try:
            done, _ = await asyncio.wait({leading, renewing}, return_when=asyncio.FIRST_COMPLETED)
            if leading in done:
                await leading
        finally:
            for task in (leading, renewing):
                task.cancel()
            await asyncio.gather(leading, renewing, return_exceptions=True)
            held, self.leading = self.leading, False
            if held:
                await self._release()

    async def _acquire(self) -> None:
        while not await self._attempt():
            await asyncio.sleep(self._terms.retry * random.uniform(1.0, 1.2))

    async def _keep_renewing(self) -> None:
        pause = self._terms.retry
        while True:
            await asyncio.sleep(pause)
            left = self._terms.renew - self._age()
            try:
                async with asyncio.timeout(max(left, 0)):
                    renewed = await self._attempt()
            except TimeoutError:
                renewed = False
            pause = max(0.0, self._terms.retry - self._age()) if renewed else self._terms.retry
            if not renewed and (self.leader not in (None, self.identity) or self._age() >= self._terms.renew):
                self.leading = False
                _log.warning("%s lost lease %s/%s to %s", self.identity, self._namespace, self._name, self.leader)
                return

    def _age(self) -> float:
        """Return the seconds since the lease was last renewed."""
        return self._clock.monotonic() - self._renewed_at

    async def _attempt(self) -> bool:
        """Acquire or renew once; return whether the lease is ours now."""
        try:
            ours = await self._try_once()
            self.last_error = None
            return ours
        except errors.KubeError as error:
            self.last_error = str(error)
            _log.info("lease %s/%s: %s", self._namespace, self._name, error)
            return False

    async def _try_once(self) -> bool:
        now = self._clock.monotonic()
        try:
            lease = await self._client.get(LEASES, self._name, Lease, namespace=self._namespace)
        except errors.NotFound:
            await self._create()
            return True
        if self._seen != lease.spec:
            self._seen, self._seen_at = lease.spec, now
        holder = lease.spec.holder_identity
        duration = lease.spec.lease_duration_seconds or 0
        if holder and holder != self.identity and now < self._seen_at + duration:
            return False
        ours = holder == self.identity
        spec = self._spec(
            acquired=lease.spec.acquire_time if ours else None,
            transitions=(lease.spec.lease_transitions or 0) + (0 if ours else 1),
        )
        await self._write(lease, spec)
        return True

    def _spec(self, acquired: str | None, transitions: int) -> LeaseSpec:
        wall = _micro_time(self._clock.wall())
        return LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=max(1, round(self._terms.lease)),
            acquire_time=acquired or wall,
            renew_time=wall,
            lease_transitions=transitions,
        )

    async def _create(self) -> None:
        spec = self._spec(acquired=None, transitions=0)
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": spec,
        }
        sent_at = self._clock.monotonic()
        made = await self._client.create(LEASES, body, Lease, namespace=self._namespace)
        self._seen, self._seen_at, self._renewed_at = made.spec, self._clock.monotonic(), sent_at

    async def _write(self, lease: Lease, spec: LeaseSpec) -> None:
        body = {
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": lease.metadata, "spec": spec,
        }  # fmt: skip
        sent_at = self._clock.monotonic()
        written = await self._client.replace(LEASES, self._name, body, Lease, namespace=self._namespace)
        self._seen, self._seen_at, self._renewed_at = written.spec, self._clock.monotonic(), sent_at

    async def _release(self) -> None:
        """Name no holder, so that the next candidate takes over at its next try; best effort."""
        with contextlib.suppress(errors.KubeError, TimeoutError):
            async with asyncio.timeout(min(self._terms.renew, RELEASE_SECONDS)):
                lease = await self._client.get(LEASES, self._name, Lease, namespace=self._namespace)
                if lease.spec.holder_identity == self.identity:
                    released = msgspec.structs.replace(
                        self._spec(lease.spec.acquire_time, lease.spec.lease_transitions or 0),
                        holder_identity="",
                        lease_duration_seconds=1,
                    )
                    await self._write(lease, released)
