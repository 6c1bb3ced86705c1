"""The loop around the state machine, on the replica that leads.

Each tick reads the rollouts anew, decides, writes the status for the version that was read, and only then acts: a
replica that has lost its lease without knowing fails at the status, before it touches a node.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Iterable
from typing import Any

import msgspec

from cotenant.api import report
from cotenant.api.rollout import TERMINAL, ColocationRollout, Meta, Status
from cotenant.kube import errors, event
from cotenant.kube.client import ROLLOUTS, Client
from cotenant.manager.controller import FIELD_MANAGER, Context
from cotenant.manager.rollout import entry, machine
from cotenant.manager.rollout.holding import Hold
from cotenant.manager.rollout.metrics import RolloutCollector
from cotenant.manager.rollout.seeing import Seeing, holds
from cotenant.manager.rollout.targets import Targets
from cotenant.manager.rollout.view import Observed
from cotenant.manager.rollout.writing import NodeWriter
from cotenant.model.latency import Latencies
from cotenant.units.clock import Clock
from cotenant.units.malformed import MALFORMED

_log = logging.getLogger(__name__)

TICK_SECONDS = 2.0
MAX_ELAPSED_SECONDS = 10.0
"""A longer pause between two ticks was not watched."""
STATUS_SECONDS = 15.0
"""How often times alone are written."""
ABSENT_SECONDS = 30.0
"""How often a cluster without the kind is asked for it."""
SWEEP_SECONDS = 600.0
SETTLE_SECONDS = 30.0
"""How long what was written may take to be seen; then what is seen counts."""


class _Listed(msgspec.Struct):
    metadata: Meta = Meta()


@dataclasses.dataclass(slots=True)
class _Memory:
    """What this term knows of a rollout, all of which may be lost."""

    watched_at: float | None = None
    written: Status | None = None
    latest: Status | None = None
    """What was decided last; times alone are not written each time."""
    written_at: float = float("-inf")
    expected: dict[str, tuple[str | None, float]] = dataclasses.field(default_factory=dict)
    """Nodes that were written: which rollout is to be seen on them (None: not this one), and since when."""


class Rollouts:
    """The controller. ``latencies``: who measures online services; the manager itself by default."""

    name = "rollout"

    def __init__(self, latencies: Latencies | None = None) -> None:
        self._latencies = latencies

    async def run(self, context: Context) -> None:
        """Work until cancelled."""
        term = Term(context.client, context.clock, context, self._latencies or context.latencies)
        context.metrics.register(RolloutCollector(term))
        async with asyncio.TaskGroup() as tasks:
            following: asyncio.Task[None] | None = None
            while True:
                try:
                    await term.tick()
                except Exception as error:  # noqa: BLE001 - the outermost loop: one odd object must not end the manager
                    term.failed_unexpectedly(error)
                if following is None and term.active:  # nothing is followed in a cluster without rollouts
                    following = tasks.create_task(term.seeing.run())
                await asyncio.sleep(TICK_SECONDS if term.defined else ABSENT_SECONDS)


class Term:
    """One term of leadership."""

    def __init__(self, client: Client, clock: Clock, context: Context, latencies: Latencies | None = None) -> None:
        self._client = client
        self._clock = clock
        self._latencies = latencies
        self.seeing = Seeing(client, clock)
        self._targets = Targets(client, context.namespace, context.settings)
        self.writer = NodeWriter(client, clock)
        self._memories: dict[str, _Memory] = {}
        self.rollouts: dict[str, ColocationRollout] = {}
        self._sweep_at = float("-inf")
        self.malformed = 0
        self.failures = 0
        self.broken = 0
        self.defined = True
        """Whether the cluster has the kind."""

    @property
    def active(self) -> bool:
        """Whether some rollout is under way."""
        return any(_is_active(rollout) for rollout in self.rollouts.values())

    async def tick(self) -> None:
        """Read, decide, write, act, once."""
        try:
            self.rollouts = await self._list()
        except errors.NotFound:
            self.rollouts, self.defined = {}, False
            return
        except errors.KubeError as error:
            self._failed(f"rollouts: {error}")
            for memory in self._memories.values():
                memory.watched_at = None
            return
        self.defined = True
        uids = {rollout.metadata.uid for rollout in self.rollouts.values()}
        self._memories = {uid: memory for uid, memory in self._memories.items() if uid in uids}
        if not self.seeing.ready:
            await self._sweep(uids)
            return
        for rollout in list(self.rollouts.values()):
            if not _is_active(rollout):
                continue
            try:
                await self._step(rollout)
            except errors.Conflict:
                continue  # somebody has changed it meanwhile: read anew at the next tick
            except errors.KubeError as error:
                self._failed(f"rollout {rollout.metadata.name}: {error}")
                self._memories[rollout.metadata.uid].watched_at = None
        await self._let_go(uids, self.seeing.held())

    def failed_unexpectedly(self, error: Exception) -> None:
        """Count a tick that broke, and log some of them; what was not watched does not count."""
        self.broken += 1
        for memory in self._memories.values():
            memory.watched_at = None
        if self.broken in (1, 10, 100) or self.broken % 1000 == 0:
            _log.error("tick broke (%d so far)", self.broken, exc_info=error)

    def _failed(self, text: str) -> None:
        self.failures += 1
        _log.warning("%s", text)

    async def _list(self) -> dict[str, ColocationRollout]:
        found: dict[str, ColocationRollout] = {}
        async for item in self._client.every(ROLLOUTS, msgspec.Raw):
            name = msgspec.json.decode(item, type=_Listed).metadata.name
            try:
                found[name] = msgspec.json.decode(item, type=ColocationRollout)
            except MALFORMED as error:
                self.malformed += 1
                _log.warning("rollout %s: %s", name, error)
        return found

    async def _step(self, rollout: ColocationRollout) -> None:
        memory = self._memories.setdefault(rollout.metadata.uid, _Memory())
        wrong = entry.problems(rollout)
        if wrong and not rollout.spec.abort and rollout.status.phase not in ("RollingBack", "Finishing"):
            await self._put_status(rollout, memory, _resting(rollout, wrong))
            return
        known = rollout
        if memory.latest is not None and rollout.status == memory.written:
            known = msgspec.structs.replace(rollout, status=memory.latest)
        views = self.seeing.views()
        self._settle(memory, {view.name: view.hold.uid if view.hold is not None else None for view in views})
        now = self._clock.monotonic()
        elapsed = 0.0 if memory.watched_at is None else min(now - memory.watched_at, MAX_ELAPSED_SECONDS)
        members = machine.under_way(known, views)
        observed = Observed(
            wall=self._clock.wall(),
            latencies=self._latencies.over(members) if self._latencies is not None and members else (),
            target=await self._targets.state(rollout),
            others=frozenset(
                other.metadata.uid
                for other in self.rollouts.values()
                if _is_active(other) and other.metadata.uid != rollout.metadata.uid
            ),
            settled=not memory.expected,
        )
        step = machine.step(known, views, observed, elapsed)
        await self._put_status(rollout, memory, step.status, now=bool(step.hold or step.release or step.finish))
        memory.watched_at = now
        for position, told in enumerate(step.events):
            await self._tell(rollout, told, self._clock.wall() + position * 1e-3)  # an Event is named by its time
        await self._act(rollout, step, memory)

    def _settle(self, memory: _Memory, seen: dict[str, str | None]) -> None:
        """Forget expectations that are met, whose node is gone, or that are too old."""
        now = self._clock.monotonic()
        memory.expected = {
            name: (uid, since)
            for name, (uid, since) in memory.expected.items()
            if name in seen and seen[name] != uid and now - since < SETTLE_SECONDS
        }

    async def _act(self, rollout: ColocationRollout, step: machine.Step, memory: _Memory) -> None:
        uid, now = rollout.metadata.uid, self._clock.monotonic()
        for name in await self.writer.hold(step.hold):
            memory.expected[name] = (uid, now)
        for name in [*await self.writer.release(step.release, uid), *await self.writer.finish(step.finish, uid)]:
            memory.expected[name] = (None, now)
        if step.target is not None:
            await self._targets.do(step.target, rollout)

    async def _put_status(self, rollout: ColocationRollout, memory: _Memory, status: Status, now: bool = False) -> None:
        """Write a status that differs, for the version that was read; ``now``: check the version in any case.

        :raises Conflict: if the rollout has another version by now.
        """
        memory.latest, at = status, self._clock.monotonic()
        late = at - memory.written_at >= STATUS_SECONDS
        if now or _but_times(status) != _but_times(rollout.status) or (late and status != rollout.status):
            body = {"metadata": {"resourceVersion": rollout.metadata.resource_version}, "status": _whole(status)}
            await self._client.patch(
                ROLLOUTS, rollout.metadata.name, body, subresource="status", field_manager=FIELD_MANAGER
            )
            memory.written, memory.written_at = status, at

    async def _tell(self, rollout: ColocationRollout, told: machine.Event, wall: float) -> None:
        about = event.About(
            api_version=report.API_VERSION,
            kind=rollout.kind,
            name=rollout.metadata.name,
            uid=rollout.metadata.uid,
        )
        try:
            await event.record(self._client, about, told.reason, told.message, FIELD_MANAGER, wall, told.type)
        except errors.KubeError as error:
            self._failed(f"event of rollout {rollout.metadata.name}: {error}")

    async def _let_go(self, uids: set[str], held: Iterable[tuple[str, Hold]]) -> None:
        """Take our annotation, and pins to a revision, off nodes whose rollout was deleted."""
        orphans: dict[str, list[str]] = {}
        for name, hold in held:
            if hold.uid not in uids:
                orphans.setdefault(hold.uid, []).append(name)
        for uid, names in orphans.items():
            await self.writer.finish(tuple(names), uid)

    async def _sweep(self, uids: set[str]) -> None:
        """While nothing is followed, look now and then for what deleted rollouts have left."""
        now = self._clock.monotonic()
        if now < self._sweep_at:
            return
        self._sweep_at = now + SWEEP_SECONDS
        try:
            await self._let_go(uids, await holds(self._client))
        except errors.KubeError as error:
            self._failed(f"nodes: {error}")


def _is_active(rollout: ColocationRollout) -> bool:
    return rollout.status.phase not in TERMINAL or rollout.spec.attempt > rollout.status.attempt


def _resting(rollout: ColocationRollout, wrong: list[str]) -> Status:
    """Return the status of a rollout that cannot go on as it is written."""
    return msgspec.structs.replace(
        rollout.status,
        observed_generation=rollout.metadata.generation,
        phase="Pending" if rollout.status.phase == "Pending" else "Paused",
        message="; ".join(wrong),
    )


def _but_times(status: Status) -> Status:
    """Return a status without what changes each second."""
    return msgspec.structs.replace(
        status,
        message="",
        stages=[msgspec.structs.replace(stage, soaked_seconds=0.0, stuck_seconds=0.0) for stage in status.stages],
        gates=[msgspec.structs.replace(gate, value=None, message="", for_seconds=0.0) for gate in status.gates],
    )


def _whole(status: Status) -> dict[str, Any]:
    """Return a status as a merge patch that leaves nothing of an earlier one: what is absent is null."""
    encoded: dict[str, Any] = msgspec.to_builtins(status)
    names = [field.encode_name for field in msgspec.structs.fields(Status)]
    return {name: encoded.get(name) for name in names}
