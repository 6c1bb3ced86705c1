"""The node agent's loops: sample each second, follow pods and policy, send, enforce.

Losing the API server, the kubelet or the analyzer changes nothing on the node: it goes on with the last good pods and
policy. SIGTERM leaves every limit in force.
"""

import asyncio
import dataclasses
import logging
import pathlib
import threading
from collections.abc import Callable

import msgspec

from cotenant.act import (
    contesting,
    cpu_burst,
    cpu_normalization,
    cpu_suppress,
    curing,
    enduring,
    isolate,
    quota_budget,
    steadying,
    whole_cores,
)
from cotenant.act.draft import Draft, Plan
from cotenant.detect import engine, presets
from cotenant.kernel import disk, enforcing, fast_path, holdings, snapshot, topology
from cotenant.kernel.paths import Root
from cotenant.kernel.sampler import Sampler
from cotenant.kernel.ticking import SamplingThread
from cotenant.model import usage as usages
from cotenant.model.evaluation import Evaluation
from cotenant.model.loss import Loss
from cotenant.model.node import Usage
from cotenant.model.policy import NodeSlo
from cotenant.model.sample import Sample
from cotenant.model.snapshot import Snapshot
from cotenant.node import accounting, labels, presence
from cotenant.node.aliases import Aliases
from cotenant.node.cpus import Assignments
from cotenant.node.evicting import Evicting
from cotenant.node.hosting import Hosting
from cotenant.node.keeping import Keeping
from cotenant.node.kubelet import PodSource
from cotenant.node.newcomers import Newcomers
from cotenant.node.policy import Policy
from cotenant.node.releasing import Releasing
from cotenant.node.sending import Sender
from cotenant.node.shadow import Shadow
from cotenant.node.status import Status
from cotenant.units import clock as clocks

_log = logging.getLogger(__name__)

PODS_EVERY_SECONDS = 10.0
LOOK_EVERY_SECONDS = 1.0
"""How often groups are looked at for pods that the last list does not have: a new one is asked for at once."""
ENFORCE_EVERY_SECONDS = 1.0
FRESH_SECONDS = 2.0
"""A quota of online pods is changed only by a list of pods as new as this: what looks like our own enlargement may be a
resize in place."""
HUNG_SECONDS = 60.0
"""Without a sample for this long the agent is no longer of use; a restart takes everything up where it was."""


class Agent:
    """One node under care. ``sender`` None: nobody to send to. With a ``shadow`` nothing is ever written."""

    def __init__(
        self,
        root: Root,
        sampler: Sampler,
        source: PodSource,
        kept: Policy,
        enforcer: enforcing.Enforcer,
        sender: Sender | None,
        clock: clocks.Clock | None = None,
        shadow: Shadow | None = None,
        state: pathlib.Path | None = None,
        cpus: Assignments | None = None,
        evicting: Evicting | None = None,
    ) -> None:
        self._root = root
        self.shadow = shadow
        self.cpus = cpus
        self.evicting = evicting
        self._sampler = sampler
        self._source = source
        self._policy = kept
        self._enforcer = enforcer
        self._sender = sender
        self._clock = clock or clocks.SystemClock()
        self._engine = engine.Engine(presets.get("default"))
        self.hosting = Hosting()
        """What business is here, by which the node is judged here."""
        self._steadying = steadying.Steadying()
        self._fast_path = fast_path.FastPath(root, enforcer, self._clock)
        self._enduring = enduring.Enduring()
        self._budgets = quota_budget.Budgets()
        self._contesting = contesting.Contesting()
        self.curing = curing.Curing(isolate.Parameters(evict=evicting is not None))
        """Who is held back now for whom; judged here, by the default rules, since a cure cannot wait for a network."""
        self.curing.adopt(holdings.read(root), self._clock.monotonic())
        self.releasing = Releasing(root, enforcer, self._clock)
        self.accounting = accounting.Accounting(self._clock, state)
        """What offline work asked for, got and lost."""
        self.aliases: Aliases | None = None
        """Set where the metrics are wanted under koordlet's names too."""
        self._keeping = Keeping(root, self._clock)
        self._keeping_pods = Keeping(root, self._clock)
        """Of looks that tell whose the groups are; those of rounds are another thread's."""
        self._refreshing = threading.Lock()
        self._seen: Snapshot | None = None
        self._seen_at_s = 0.0
        self.bpf_losses: tuple[Loss, ...] = ()
        self.evaluation: Evaluation | None = None
        self.present = presence.Presence()
        """Who is on the node, as of the last list of pods."""
        self.seen: Snapshot | None = None
        """The node at that moment, with everybody's CPUs."""
        self._arrivals = snapshot.Arrivals(root)
        self._newcomers = Newcomers()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listener: Callable[[Sample], None] = lambda _: None
        self.newest: Sample | None = None
        self._sampled_at = self._clock.monotonic()
        self.status = Status()

    @property
    def enforcer(self) -> enforcing.Enforcer:
        """What writes on this node."""
        return self._enforcer

    @property
    def tightenings(self) -> int:
        """How many quotas were tightened between two rounds."""
        return self._fast_path.total

    @property
    def sampling(self) -> bool:
        """Whether samples come: there was one within the last minute, or the agent has just started."""
        return self._clock.monotonic() - self._sampled_at < HUNG_SECONDS

    def listen(self, listener: Callable[[Sample], None]) -> None:
        """Have each sample handed to ``listener``, in the event loop."""
        self._listener = listener

    async def run(self) -> None:
        """Work until cancelled."""
        self._loop = asyncio.get_running_loop()
        self._sampler.prime()
        self._fast_path.start()
        thread = SamplingThread(self._tick, self._late, self._sampler.period_s, self._clock)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._follow_pods())
                tasks.create_task(self._enforce())
                if self._sender is not None:
                    tasks.create_task(self._sender.run())
                thread.start()
        finally:
            thread.stop()
            self._fast_path.stop()
            self.accounting.save()

    def _tick(self) -> None:
        """Take one sample; in the sampling thread."""
        taken = self._sampler.sample()
        if (rules := self.hosting.due()) is not None:
            self._engine.replace(rules)
        self.evaluation = self._engine.evaluate(taken)
        self.newest = taken
        self.bpf_losses = self._sampler.bpf_losses
        self._sampled_at = self._clock.monotonic()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._offer, taken)

    def _late(self, ticks: int) -> None:
        self.status.late_ticks += ticks

    def _offer(self, taken: Sample) -> None:
        self._listener(taken)
        if self._sender is not None:
            books = self.accounting.due()
            if books is not None:
                self._sender.enclose(books)
            self._sender.offer(taken)

    async def _follow_pods(self) -> None:
        while True:
            await asyncio.to_thread(self.refresh_pods)
            due = self._clock.monotonic() + PODS_EVERY_SECONDS
            while self._clock.monotonic() < due:
                await asyncio.sleep(LOOK_EVERY_SECONDS)
                if await asyncio.to_thread(self.sees_new_pods):
                    break

    def sees_new_pods(self) -> bool:
        """Return whether pods should be asked for: a pod's or a container's group is new, and not listed."""
        seen = self._seen
        stale = self._clock.monotonic() - self._seen_at_s >= LOOK_EVERY_SECONDS
        if seen is None or (stale and self._arrivals.since(seen)):
            seen = self._saw(self._enforcer.look(self._source.pods))
        return self._newcomers.due(seen, self._clock.monotonic())

    def _saw(self, seen: Snapshot) -> Snapshot:
        """Remember a look at the groups: a round that decides spares the next look for new ones."""
        self._seen, self._seen_at_s = seen, self._clock.monotonic()
        return seen

    def refresh_pods(self) -> None:
        """Ask for the pods and tell the sampler which group is whose."""
        with self._refreshing:
            self._refresh_pods()

    def _refresh_pods(self) -> None:
        failures = self._source.failures
        if not self._source.refresh() and self._source.failures > failures:
            _log.warning("pods: %s; the last list stays", self._source.last_error)
        self.hosting.look(self._source.pods)
        _, earlier = self._keeping_pods.current()
        seen = self._enforcer.look(self._source.pods, earlier=earlier)
        # What rounds read of it is theirs, and is no file that the next look here keeps open.
        seen = self._saw(msgspec.structs.replace(seen, files=snapshot.KernelFiles(self._root)))
        applications = self._policy.slo.host_applications if self._policy.slo is not None else ()
        self.present = presence.of_snapshot(seen, applications)
        self.seen = self._with_cpus(seen)
        self._sampler.label(
            labels.of_groups(seen.groups) | labels.of_applications(self.present.applications, applications)
        )

    def _with_cpus(self, seen: Snapshot) -> Snapshot:
        """Return the snapshot with what the Node object, the kubelet and we ourselves say about CPUs."""
        seen = msgspec.structs.replace(seen, node=self._policy.node(seen.node))
        if self.cpus is None:
            return seen
        self.cpus.refresh()
        seen = msgspec.structs.replace(seen, topology=self.cpus.topology(seen.topology))
        return whole_cores.applied(seen, self.cpus.placement.given)

    async def _enforce(self) -> None:
        while True:
            await asyncio.sleep(ENFORCE_EVERY_SECONDS)
            try:
                await asyncio.to_thread(self._round)
            except Exception as error:  # noqa: BLE001 - the outermost loop: one failed round must not end the next
                self.status.round_failures += 1
                self.status.failing_rounds += 1
                if self.status.round_failures in (1, 10, 100) or self.status.round_failures % 1000 == 0:
                    _log.exception("round failed (%d so far): %s", self.status.round_failures, error)

    def _round(self) -> None:
        """Do what is to be done once in a round: in one thread, since each hand-over wakes two."""
        if self._policy.mode_known and self.shadow is None:
            self.releasing.follow(self._policy.mode)
        if self._source.age_seconds is None:
            return
        if self._policy.mode == "observe" and self.shadow is None:
            self.observe_once()
            return
        self.enforce_once()
        self.status.failing_rounds = 0

    def _usage(self, capacity_memory_bytes: int | None) -> Usage | None:
        """Return what everybody uses by the newest sample, or None before the first."""
        if self.newest is None:
            return None
        pods = {path: pod.key for path, pod in self.present.pods.items()}
        return usages.of_sample(self.newest, pods, capacity_memory_bytes, self.present.applications)

    def observe_once(self) -> None:
        """Count a round in which nothing is decided: what offline work gets, by the groups as they were last seen."""
        self.status.planned, self.status.conflict = None, self._enforcer.conflict
        if self._seen is not None:
            self._tell(self._seen, self._usage(None), accounting.NOTHING_ENFORCED)
        if self.cpus is not None:
            self.cpus.rest()

    def _tell(
        self,
        seen: Snapshot,
        used: Usage | None,
        slo: NodeSlo,
        plan: Plan | None = None,
        done: enforcing.Round | None = None,
    ) -> None:
        """Hand a round to whoever counts: the policy in force, and what was planned and done where something was."""
        self.accounting.take(seen, used, slo, done)
        if self.aliases is not None:
            self.aliases.take(seen, used, slo, plan, done)

    def enforce_once(self) -> None:
        """Look, decide, and (in mode enforce) write."""
        given = self._policy.slo or NodeSlo()
        here = self._policy.node(topology.node(self._root, self._enforcer.topology))
        newest, evaluation = self.newest, self.evaluation
        now_used = self._usage(here.capacity_memory_bytes)
        used = None if now_used is None else self._steadying.usage(now_used)
        planner, earlier = self._keeping.current()
        cpus = self.seen.topology if self.seen is not None else None
        seen = self._saw(self._enforcer.look(self._source.pods, node=here, usage=used, cpus=cpus, earlier=earlier))
        if self.cpus is not None and self.shadow is None:
            seen = self.cpus.assign(seen)
        if self.evicting is not None:
            self.evicting.follow(self._source.pods, newest.memory.available_ratio if newest is not None else None)
            seen = msgspec.structs.replace(seen, evicting=self.evicting.going, spared=self.evicting.spared)
        seen, slo = self._contesting.applied(seen, given, self._clock.monotonic())
        seen = self._budgets.applied(seen, slo, self._clock.monotonic())
        enforcing_now = self._policy.mode == "enforce" and self.shadow is None
        first = self._isolating(seen, slo, newest, evaluation) if enforcing_now else ()
        plan = planner.plan(seen, slo, first=first)
        if self.shadow is None and _changes_online_quotas(plan) and self._asked_again():
            return
        self._note(plan)
        if self.shadow is not None:
            self.shadow.take(seen, plan)
        if not enforcing_now:
            self.status.conflict = self._enforcer.conflict
            self._fast_path.aim((), ())
            self._tell(seen, now_used, accounting.NOTHING_ENFORCED)
            return
        cpu_count = seen.cpu_count
        ago = self._fast_path.ago_seconds
        items = self._enduring.lasting(plan.items, slo.threshold, self._clock.monotonic())
        done = self._enforcer.carry_out(seen, lambda _: steadying.calm(items, cpu_count, ago()))
        if self.evicting is not None:
            done = dataclasses.replace(done, outcomes=(*done.outcomes, *self.evicting.settled()))
        self._count(done)
        self._follow_contests(seen, plan, given)
        if done.conflict:
            self._tell(seen, now_used, accounting.NOTHING_ENFORCED)
        else:
            self._tell(seen, now_used, slo, plan, done)
        online = [group.path for group in seen.groups if group.pod is not None and not group.pod.best_effort]
        ready = cpu_suppress.tightened(seen, slo) if cpu_suppress.uses_quota(slo.threshold) else ()
        self._fast_path.aim(online, ready)

    def _asked_again(self) -> bool:
        """Ask for the pods if the list is not of this moment; return whether there is a new one."""
        age_seconds = self._source.age_seconds
        if age_seconds is None or age_seconds <= FRESH_SECONDS:
            return False
        self.refresh_pods()
        return self._source.age_seconds != age_seconds and (self._source.age_seconds or 0) <= FRESH_SECONDS

    def _isolating(
        self, seen: Snapshot, slo: NodeSlo, newest: Sample | None, evaluation: Evaluation | None
    ) -> tuple[Draft, ...]:
        """Return what isolation wants; where the policy holds offline work to no threshold, it gives back."""
        if newest is None or evaluation is None:
            return ()
        if not slo.threshold.enable:
            return (self.curing.release(seen, evaluation.time),)
        disks = disk.numbers(self._root, newest.block.devices)
        return (self.curing.draft(seen, evaluation, newest, disks, self._clock.monotonic()),)

    def _note(self, plan: Plan) -> None:
        status = self.status
        status.rounds += 1
        status.planned = len(plan.items)
        for notice in plan.notices:
            if notice not in status.notices:
                _log.info("%s", notice)
        status.notices, status.skipped = plan.notices, plan.skipped

    def _follow_contests(self, seen: Snapshot, plan: Plan, given: NodeSlo) -> None:
        """Move protection away from where somebody else keeps writing, and tell of it once."""
        now = self._clock.monotonic()
        contests, new = self._contesting.follow(self._enforcer.contested(), plan.targets, seen, given, now)
        for contest in new:
            _log.warning("somebody keeps writing %s to %s: %s", contest.found, contest.path, contest.answer)
        self.status.contests = tuple(contests)
        self.status.left_to_others = self._contesting.left(given, now)

    def _count(self, done: enforcing.Round) -> None:
        if done.conflict and done.conflict != self.status.conflict:
            _log.warning(
                "%s runs here too: observing only, until it is gone or --beside-others is given", done.conflict
            )
        self.status.conflict = done.conflict
        self.status.writes += done.written
        for outcome in done.outcomes:
            self.status.outcomes[outcome.state] += 1


def _changes_online_quotas(plan: Plan) -> bool:
    return any(item.strategy in (cpu_burst.NAME, cpu_normalization.NAME) and item.op == "write" for item in plan.items)
