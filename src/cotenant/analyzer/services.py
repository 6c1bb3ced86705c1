"""Latency of online services on the fleet page, as the manager that leads tells it."""

import asyncio
import logging
from typing import Any

import msgspec

from cotenant.latency import fetching
from cotenant.latency.errors import Unreadable
from cotenant.units.clock import Clock
from cotenant.units.malformed import MALFORMED
from cotenant.web.openapi import LatencyList
from cotenant.web.page import service_of

_log = logging.getLogger(__name__)

PERIOD_SECONDS = 10.0
KEPT_SECONDS = 60.0
"""How long the last answer is shown: of several replicas behind one address, only the one that leads answers."""
SHOWN = 64


class Services:
    """Asks again and again; shows nothing where nothing is known."""

    def __init__(self, url: str, clock: Clock, trust: fetching.Trust = fetching.NO_TRUST) -> None:
        self._url = url
        self._clock = clock
        self._trust = trust
        self._found = LatencyList(services=[])
        self._found_s: float | None = None
        self.failures = 0

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            await self.ask()
            await asyncio.sleep(PERIOD_SECONDS)

    async def ask(self) -> None:
        """Ask once; where there is no answer, the last one stays for a minute."""
        try:
            body, _ = await asyncio.to_thread(fetching.get, self._url, None, self._trust)
            self._found = msgspec.json.decode(body, type=LatencyList)
        except (Unreadable, *MALFORMED) as error:
            self.failures += 1
            _log.info("latency: %s: %s", self._url, error)
        else:
            self._found_s = self._clock.monotonic()

    def rows(self) -> list[dict[str, Any]]:
        """Return the lines of the table; none while nothing is known."""
        if self._found_s is None or self._clock.monotonic() - self._found_s > KEPT_SECONDS:
            return []
        return [service_of(latency) for latency in self._found.services[:SHOWN]]
