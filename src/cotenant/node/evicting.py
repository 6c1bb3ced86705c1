"""Evictions through the API server: asked for once, by uid, within what disruption budgets allow.

A pod that was asked to go counts as going until it is gone, so that no second one is chosen for the same need. One that
a budget holds back is spared for a while, so that another may be chosen. Nothing here waits: the loop that decides
hands over and goes on.
"""

import asyncio
import collections
import dataclasses
import logging
import threading
from collections.abc import Sequence
from http import HTTPStatus
from typing import Literal

from cotenant.kernel.outcome import Outcome
from cotenant.kube import errors, event
from cotenant.kube.client import Client
from cotenant.model.pod import Pod
from cotenant.node import killing
from cotenant.units.clock import Clock
from cotenant.units.plan import PlanItem

_log = logging.getLogger(__name__)

COMPONENT = "cotenant-node"
REASON = "EvictedByCotenant"
COOL_SECONDS = {"cpu_evict": 20.0, "memory_evict": 4.0, "isolate": 20.0}
"""Between two rounds of evictions for one reason: what the last one gave back has to show first."""
BATCH_SECONDS = 0.5
"""Evictions within this time belong to one round."""
MEMORY_GRACE_SECONDS = 5
"""Memory that runs out does not wait for a pod's own grace."""
SPARED_SECONDS = 60.0
RETRY_SECONDS = 5.0
WAIT_SECONDS = 15.0
"""An eviction that could not be asked for in this time is given up: who still needs it decides so anew."""
STUCK_SECONDS = 600.0
"""A pod that was asked to go and is still there after this does not count as going any more."""
LOOK_SECONDS = 0.1
CONFIG_SOURCE = "kubernetes.io/config.source"

RESULTS = ("accepted", "refused", "failed", "killed")
State = Literal["waiting", "going", "spared"]


@dataclasses.dataclass(slots=True)
class Victim:
    """One pod that is to go. ``until``: when the state ends, or when to ask again (monotonic seconds)."""

    pod: Pod
    item: PlanItem
    taken_at: float
    state: State = "waiting"
    until: float = 0.0


class Evicting:
    """The executor's callback for ``evict`` items; the asking is done in the event loop, by :meth:`run`."""

    def __init__(self, node: str, clock: Clock, last_resort: killing.Killing | None = None) -> None:
        self._node = node
        self._clock = clock
        self._last_resort = last_resort
        self._available_ratio: float | None = None
        self._lock = threading.Lock()
        self._pods: dict[str, Pod] = {}
        self._victims: dict[str, Victim] = {}
        self._queue: collections.deque[str] = collections.deque()
        self._batches: dict[str, float] = {}
        self._settled: list[Outcome] = []
        self.counts: collections.Counter[str] = collections.Counter()
        """By :data:`RESULTS`; refused is by a disruption budget, killed by the container runtime."""

    # --- called by the enforcing thread -----------------------------------------------------------------------------

    def follow(self, pods: Sequence[Pod], available_ratio: float | None = None) -> None:
        """Take the newest list of pods (who is not in it is gone) and the available share of memory, if known."""
        now = self._clock.monotonic()
        with self._lock:
            self._available_ratio = available_ratio
            self._pods = {pod.key: pod for pod in pods}
            present = {pod.uid for pod in pods}
            self._victims = {
                uid: v for uid, v in self._victims.items() if uid in present and (v.state == "waiting" or now < v.until)
            }

    @property
    def going(self) -> frozenset[str]:
        """Pods that were asked to go and are still there, those about to be asked included."""
        with self._lock:
            return frozenset(v.pod.key for v in self._victims.values() if v.state != "spared")

    @property
    def spared(self) -> frozenset[str]:
        """Pods that a budget does not let go now."""
        with self._lock:
            return frozenset(v.pod.key for v in self._victims.values() if v.state == "spared")

    def settled(self) -> tuple[Outcome, ...]:
        """Return the evictions that the API server took on since the last call: what was ``busy`` then."""
        with self._lock:
            told, self._settled = tuple(self._settled), []
        return told

    def __call__(self, item: PlanItem) -> Outcome:
        """Take an eviction on, and say what is known of it."""
        now = self._clock.monotonic()
        with self._lock:
            pod = self._pods.get(item.new or "")
            if pod is None:
                return Outcome(item, "gone", "the pod is not listed any more")
            if pod.annotations.get(CONFIG_SOURCE, "api") != "api":
                return Outcome(item, "left_out", "a static pod would be started again at once")
            victim = self._victims.get(pod.uid)
            if pod.terminating or (victim is not None and victim.state != "spared"):
                return Outcome(item, "same", "was asked to go")
            if victim is not None:
                return Outcome(item, "held", "a disruption budget did not let it go")
            if self._cools(item.strategy, now):
                return Outcome(item, "held", "the last evictions for this reason have not shown yet")
            self._victims[pod.uid] = Victim(pod, item, now)
            self._queue.append(pod.uid)
        return Outcome(item, "busy", "asked for; the API server answers later")

    def _cools(self, strategy: str, now: float) -> bool:
        begun = self._batches.get(strategy)
        if begun is None or now - begun >= COOL_SECONDS.get(strategy, 0.0):
            self._batches[strategy] = now
            return False
        return now - begun > BATCH_SECONDS

    # --- the event loop ---------------------------------------------------------------------------------------------

    async def run(self, client: Client) -> None:
        """Ask until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.ask(client)
            await self.kill_overdue(client)

    async def ask(self, client: Client) -> None:
        """Ask for everything that waits and is due."""
        for _ in range(len(self._queue)):
            uid = self._queue.popleft()
            with self._lock:
                victim = self._victims.get(uid)
            if victim is None or victim.state != "waiting":
                continue
            now = self._clock.monotonic()
            if now - victim.taken_at > WAIT_SECONDS:
                with self._lock:
                    self._victims.pop(uid, None)
            elif now < victim.until:
                self._queue.append(uid)
            else:
                await self._evict(client, victim)

    async def _evict(self, client: Client, victim: Victim) -> None:
        pod = victim.pod
        grace = MEMORY_GRACE_SECONDS if victim.item.strategy == "memory_evict" else None
        try:
            await client.evict(pod.namespace, pod.name, pod.uid, grace)
        except (errors.NotFound, errors.Conflict):
            self._settle(victim, "going", 0.0)
        except errors.Throttled as error:
            wait = error.retry_after_seconds or 0.0
            if "disruption budget" in str(error):
                self.counts["refused"] += 1
                self._settle(victim, "spared", max(wait, SPARED_SECONDS))
                _log.warning("pod %s is to go (%s) and may not: %s", pod.key, victim.item.reason, error)
                if victim.item.strategy == killing.STRATEGY:
                    await self._kill(client, victim, "a disruption budget refuses its eviction")
            else:
                self._again(victim, max(wait, RETRY_SECONDS))
        except errors.KubeError as error:
            self.counts["failed"] += 1
            _log.warning("eviction of %s: %s", pod.key, error)
            if isinstance(error, errors.ApiError) and error.code < HTTPStatus.INTERNAL_SERVER_ERROR:
                self._settle(victim, "spared", SPARED_SECONDS)
            else:
                self._again(victim, RETRY_SECONDS)
        else:
            self.counts["accepted"] += 1
            self._settle(victim, "going", STUCK_SECONDS)
            with self._lock:
                self._settled.append(Outcome(victim.item, "written"))
            _log.warning("evicted %s: %s", pod.key, victim.item.reason)
            await self._tell(client, victim, victim.item.reason)

    async def kill_overdue(self, client: Client) -> None:
        """Kill what was to go for memory and is still there, or at once where memory is about to run out."""
        if self._last_resort is None:
            return
        now = self._clock.monotonic()
        with self._lock:
            victims = [one for one in self._victims.values() if one.state != "spared"]
        for victim in victims:
            why = self._last_resort.why_now(
                victim.pod, victim.item.strategy, now - victim.taken_at, self._available_ratio
            )
            if why:
                await self._kill(client, victim, why)

    async def _kill(self, client: Client, victim: Victim, why: str) -> None:
        if self._last_resort is not None and await self._last_resort.kill(victim.pod, why):
            self.counts["killed"] += 1
            await self._tell(client, victim, f"{victim.item.reason}; killed: {why}")

    def _settle(self, victim: Victim, state: State, seconds: float) -> None:
        with self._lock:
            victim.state, victim.until = state, self._clock.monotonic() + seconds

    def _again(self, victim: Victim, seconds: float) -> None:
        self._settle(victim, "waiting", seconds)
        self._queue.append(victim.pod.uid)

    async def _tell(self, client: Client, victim: Victim, text: str) -> None:
        """Write an Event on the pod; that it cannot be written changes nothing."""
        pod = victim.pod
        about = event.About(api_version="v1", kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid)
        message = f"node {self._node}: {text}"
        try:
            await event.record(client, about, REASON, message, COMPONENT, self._clock.wall())
        except errors.KubeError as error:
            _log.info("event of %s: %s", pod.key, error)
