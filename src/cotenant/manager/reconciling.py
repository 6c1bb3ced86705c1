"""Objects are brought in step one key at a time: what differs is written, within a budget, and tried again until it
is so. Everything is decided from what informers know at that moment; nothing is queued but names.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Iterable

from cotenant.kube import errors
from cotenant.kube.backoff import Backoff
from cotenant.kube.budget import Budget
from cotenant.units.clock import Clock

_log = logging.getLogger(__name__)

TICK_SECONDS = 0.2
CONCURRENT_WRITES = 8
WRITE_SECONDS = 15.0
ECHO_SECONDS = 3.0
"""How long a key that was just written is left alone, unless its watch says something: informers lag behind writes."""
LOG_EVERY_SECONDS = 30.0

Write = Callable[[], Awaitable[object]]
Due = Callable[[str], Write | None]
"""Returns what is to be written for a key, or None where it is as it should be."""


@dataclasses.dataclass(slots=True)
class Counts:
    """What was written, and what could not be."""

    writes: int = 0
    failures: int = 0
    conflicts: int = 0
    last_error: str | None = None


@dataclasses.dataclass(slots=True)
class _Trouble:
    """A key whose write failed: when it is tried again."""

    backoff: Backoff = dataclasses.field(default_factory=Backoff)
    at: float = 0.0


class Reconciler:
    """Brings keys in step until cancelled."""

    def __init__(self, name: str, due: Due, clock: Clock, budget: Budget | None = None) -> None:
        self.name = name
        self._due = due
        self._clock = clock
        self._budget = budget or Budget(clock, 50.0, 50.0)
        self._waiting: dict[str, None] = {}
        self._quiet_until: dict[str, float] = {}
        self._trouble: dict[str, _Trouble] = {}
        self._hold_until = 0.0
        self._logged_at = -LOG_EVERY_SECONDS
        self._slots = asyncio.Semaphore(CONCURRENT_WRITES)
        self.counts = Counts()

    @property
    def waiting(self) -> int:
        """How many keys are looked at at the next opportunity."""
        return len(self._waiting)

    def touch(self, key: str) -> None:
        """Look at a key: something that it follows from has changed."""
        self._waiting[key] = None

    def touch_all(self, keys: Iterable[str]) -> None:
        """Look at many keys."""
        self._waiting.update(dict.fromkeys(keys))

    def seen(self, key: str) -> None:
        """Look at a key whose own object has changed: our last write, if there was one, has come back."""
        self._quiet_until.pop(key, None)
        self.touch(key)

    async def run(self) -> None:
        """Write what is due, tick by tick."""
        while True:
            await self.step()
            await asyncio.sleep(TICK_SECONDS)

    async def step(self) -> None:
        """Look at what waits and write what is due now, as far as the budget goes."""
        now = self._clock.monotonic()
        if now < self._hold_until:
            return
        writes: list[Awaitable[None]] = []
        room = self._budget.available()
        for key in list(self._waiting):
            if len(writes) >= room:
                break
            if now < self._quiet_until.get(key, 0.0) or (key in self._trouble and now < self._trouble[key].at):
                continue
            del self._waiting[key]
            write = self._due(key)
            if write is None:
                self._trouble.pop(key, None)
                self._quiet_until.pop(key, None)
            else:
                writes.append(self._write(key, write))
        self._budget.spend(len(writes))
        await asyncio.gather(*writes)

    async def _write(self, key: str, write: Write) -> None:
        async with self._slots:
            if self._clock.monotonic() < self._hold_until:
                self.touch(key)
                return
            try:
                async with asyncio.timeout(WRITE_SECONDS):
                    await write()
            except TimeoutError:
                self._failed(key, errors.Unreachable(f"no answer within {WRITE_SECONDS:.0f} s"))
            except errors.KubeError as error:
                self._failed(key, error)
            else:
                self.counts.writes += 1
                self._trouble.pop(key, None)
                self._quiet_until[key] = self._clock.monotonic() + ECHO_SECONDS
                self.touch(key)

    def _failed(self, key: str, error: errors.KubeError) -> None:
        """Try again later: this key after a back-off, all of them when the server is away or asks for time."""
        now = self._clock.monotonic()
        self.counts.last_error = f"{key}: {error}"
        if isinstance(error, errors.Conflict):
            self.counts.conflicts += 1
        else:
            self.counts.failures += 1
        if isinstance(error, errors.Throttled | errors.Unreachable):
            self._hold_until = max(self._hold_until, now + (getattr(error, "retry_after_seconds", None) or 1.0))
        trouble = self._trouble.setdefault(key, _Trouble())
        trouble.at = now + trouble.backoff.next_seconds(getattr(error, "retry_after_seconds", None))
        self.touch(key)
        if now - self._logged_at >= LOG_EVERY_SECONDS and not isinstance(error, errors.Conflict):
            self._logged_at = now
            _log.warning("%s %s: %s", self.name, key, error)
