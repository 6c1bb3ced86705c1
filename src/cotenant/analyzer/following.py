"""What the analyzer follows in the cluster: its rules and its nodes."""

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from cotenant.analyzer.fleet import Fleet
from cotenant.analyzer.rulebook import DEFAULT, Book
from cotenant.analyzer.trial import Trials
from cotenant.api import conditions, report, unstructured
from cotenant.api.objects import Node
from cotenant.kube import errors, event, revisions
from cotenant.kube.client import NODES, REPORTS, RULES, Client
from cotenant.kube.informer import Informer
from cotenant.units.clock import Clock
from cotenant.units.malformed import MALFORMED

_log = logging.getLogger(__name__)

FIELD_MANAGER = "cotenant-analyzer"
ROLLED_BACK = "RolledBack"
TEND_SECONDS = 1.0


class _Nodes:
    """Labels choose the rules; a node that leaves is forgotten later."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def replaced(self, objects: dict[str, Node]) -> None:
        for key in set(self._fleet.nodes) - set(objects):
            self._fleet.left(key)
        for key, value in objects.items():
            self.put(key, value)

    def put(self, key: str, value: Node) -> None:
        self._fleet.relabel(key, value.metadata.labels or {})

    def removed(self, key: str) -> None:
        self._fleet.left(key)


@dataclasses.dataclass(frozen=True, slots=True)
class _Told:
    """What is to be told of one generation of an object: in its status, as its revision, and as an Event."""

    value: Mapping[str, Any]
    generation: int
    book: Book
    rolled_back: str | None = None
    is_new: bool = False
    """Rolled back just now: an Event is due."""


class _Rules:
    """Rules take effect at once; what became of each version is told in its status."""

    def __init__(self, fleet: Fleet, trials: Trials, clock: Clock, untold: dict[str, _Told]) -> None:
        self._fleet = fleet
        self._trials = trials
        self._clock = clock
        self._untold = untold
        self.values: dict[str, Mapping[str, Any]] = {}
        self._listed = False

    def replaced(self, objects: dict[str, dict[str, Any]]) -> None:
        for name in set(self.values) - set(objects):
            self.removed(name)
        for key, value in objects.items():
            self.put(key, value)
        self._listed = True

    def put(self, key: str, value: dict[str, Any]) -> None:
        generation, seen = unstructured.generation(value), self.values.get(key)
        if seen is not None and unstructured.uid(seen) != unstructured.uid(value):
            self.removed(key)  # and made again between two lists: its generations count from 1 once more
            seen = None
        self.values[key] = value
        rolled_back = rolled_back_of(value)
        rulebook = self._fleet.rulebook
        if seen is not None and unstructured.generation(seen) == generation:
            book = rulebook.books.get(key)
            if rolled_back is not None and book is not None and book.generation == generation:
                self._trials.end(key)
                rulebook.roll_back(key, rolled_back)  # the leader did; so do we
            return  # else only the status changed: our own write
        before = self._fleet.share_of(key if key in rulebook.books else DEFAULT)
        if rolled_back is not None:
            book = rulebook.refuse(key, generation, rolled_back)
        else:
            book = rulebook.put(value)
            if book.refused:
                _log.warning("rules %s, generation %d: %s", key, generation, book.refused)
            elif self._listed:
                guard = book.engine.in_force.guard
                self._trials.start(key, generation, guard, before.limited, self._clock.monotonic())
        self._untold[key] = _Told(value, generation, book, rolled_back)

    def removed(self, key: str) -> None:
        self.values.pop(key, None)
        self._untold.pop(key, None)
        self._trials.end(key)
        self._fleet.rulebook.remove(key)


class Following:
    """Keeps rules and nodes up to date until cancelled. The leader tells what became of rules and guards changes."""

    def __init__(
        self, client: Client, fleet: Fleet, clock: Clock, leads: Callable[[], bool], namespace: str | None = None
    ) -> None:
        self._client = client
        self._fleet = fleet
        self._clock = clock
        self._leads = leads
        self._namespace = namespace or client.namespace
        self._trials = Trials()
        self._untold: dict[str, _Told] = {}
        self._rules = _Rules(fleet, self._trials, clock, self._untold)
        self.nodes = Informer(client, NODES, Node, _Nodes(fleet))
        self.rules = Informer(client, RULES, dict[str, Any], self._rules)
        self._taken_up = False
        """Whether the trials of an earlier leader were taken up."""

    async def run(self) -> None:
        """Follow."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.nodes.run())
            tasks.create_task(self.rules.run())
            tasks.create_task(self._tend())

    async def _tend(self) -> None:
        while True:
            await asyncio.sleep(TEND_SECONDS)
            await self.tend()

    async def tend(self) -> None:
        """Take back changes that did not pass their trial; tell what became of each change."""
        for name, told in list(self._untold.items()):
            if told.book.refused and told.book.generation == 0:
                await self._recover(name, told)
        if not self._leads():
            self._taken_up = False
            return
        if not self._taken_up:
            await self._take_up()
            if not self._taken_up:
                return
        for failure in self._trials.failures(self._fleet.share_of, self._clock.monotonic()):
            text = f"generation {failure.generation} rolled back: {failure.text}"
            _log.warning("rules %s: %s", failure.name, text)
            book = self._fleet.rulebook.roll_back(failure.name, text)
            value = self._rules.values.get(failure.name, {})
            self._untold[failure.name] = _Told(value, failure.generation, book, text, is_new=True)
        for name, told in list(self._untold.items()):
            try:
                await self._tell(name, told)
            except errors.KubeError as error:
                _log.warning("rules %s: %s", name, error)  # again at the next round
                continue
            if self._untold.get(name) is told:
                del self._untold[name]

    async def _recover(self, name: str, told: _Told) -> None:
        """Put the last good generation in force that an earlier leader had kept; there may be none."""
        active = (told.value.get("status") or {}).get("activeGeneration")
        if not active or active == told.generation:
            return
        try:
            kept = await revisions.history(self._client, self._namespace, told.value)
        except errors.KubeError as error:
            _log.warning("revisions of rules %s: %s", name, error)
            return
        spec = next((one.data.get("spec") for one in kept if one.revision == active), None)
        if spec is None:
            return
        metadata = {"name": name, "generation": active}
        self._fleet.rulebook.put({**told.value, "metadata": metadata, "spec": spec})
        book = self._fleet.rulebook.refuse(name, told.generation, told.book.refused or "")
        self._untold[name] = dataclasses.replace(told, book=book)

    async def _take_up(self) -> None:
        """Go on with the trials of an earlier leader, once its rules are listed; try again later where that fails."""
        if not self.rules.synced.is_set():
            return
        for name, value in self._rules.values.items():
            book, generation = self._fleet.rulebook.books.get(name), unstructured.generation(value)
            if book is None or book.refused or book.generation != generation:
                continue
            try:
                kept = await revisions.history(self._client, self._namespace, value)
            except errors.KubeError as error:
                _log.warning("revisions of rules %s: %s", name, error)
                return
            self._go_on(name, value, book, {one.revision: one for one in kept})
        self._taken_up = True

    def _go_on(self, name: str, value: Mapping[str, Any], book: Book, kept: Mapping[int, revisions.Revision]) -> None:
        """Put a generation on trial again whose trial is not over, or on its first where nobody led when it came.

        The whole time is given anew: a new leader has to fill its windows first.
        """
        generation = unstructured.generation(value)
        if generation in kept:
            trial = kept[generation].on_trial
            if trial is None or trial.until <= self._clock.wall():
                return
            previous, limited_before = trial.previous_generation, trial.limited_before
        else:
            previous = int((value.get("status") or {}).get("activeGeneration") or 0)
            limited_before = self._fleet.share_of(name).limited
            if previous not in kept:
                return  # the first generation of an object, or one of before there was a history
        if previous in kept or previous == 0:
            spec = (kept[previous].data.get("spec") or {}) if previous else None
            self._fleet.rulebook.remember_earlier(name, spec, previous)
        self._trials.start(name, generation, book.engine.in_force.guard, limited_before, self._clock.monotonic())

    async def _tell(self, name: str, told: _Told) -> None:
        if not told.book.refused:
            note = self._trials.note(name, told.generation, self._clock.monotonic())
            previous = told.book.earlier[1] if told.book.earlier else 0
            on_trial = None
            if note is not None:
                until = self._clock.wall() + note.seconds_left
                on_trial = revisions.OnTrial(until, note.limited_before, previous)
            await revisions.record(self._client, self._namespace, told.value, on_trial)
        held = conditions.read(told.value)
        body = rule_status(name, told.book, told.generation, held, self._clock.wall(), told.rolled_back)
        await self._client.apply(RULES, name, body, FIELD_MANAGER, force=True, subresource="status")
        if told.is_new:
            about = event.About.of(told.value, report.API_VERSION, "DetectionRuleConfig")
            await event.record(
                self._client, about, ROLLED_BACK, told.rolled_back or "", FIELD_MANAGER, self._clock.wall()
            )


def rolled_back_of(value: Mapping[str, Any]) -> str | None:
    """Return why this generation of an object was rolled back, or None where it was not."""
    for one in conditions.read(value):
        if (one.type, one.status, one.observed_generation) == (ROLLED_BACK, "True", unstructured.generation(value)):
            return one.message or "rolled back"
    return None


def rule_status(
    name: str,
    book: Book,
    generation: int,
    held: Sequence[report.Condition] = (),
    now: float = 0.0,
    rolled_back: str | None = None,
) -> dict[str, Any]:
    """Return the object that tells what became of one generation of rules; ``held`` are the conditions there are."""
    in_force = f"generation {book.generation}" if book.generation else "the preset"
    refused = book.refused if rolled_back is None else None
    new = [
        report.Condition(
            type="Valid",
            status="False" if refused else "True",
            reason="Refused" if refused else "RolledBack" if rolled_back else "InForce",
            message=refused or f"{in_force} is in force",
            observed_generation=generation,
        )
    ]
    if rolled_back is not None:
        new.append(
            report.Condition(
                type=ROLLED_BACK,
                status="True",
                reason="TooManyExcluded",
                message=rolled_back,
                observed_generation=generation,
            )
        )
    status: dict[str, Any] = {"conditions": conditions.dated(new, held, now)}
    if book.generation:
        status["activeGeneration"] = book.generation
    return {
        "apiVersion": report.API_VERSION,
        "kind": "DetectionRuleConfig",
        "metadata": {"name": name},
        "status": status,
    }


class _PublishedMeta(msgspec.Struct):
    name: str


class _Published(msgspec.Struct):
    metadata: _PublishedMeta
    status: report.ReportStatus = msgspec.field(default_factory=report.ReportStatus)


async def published(client: Client) -> dict[str, report.ReportStatus]:
    """Return the statuses of all reports there are, by node; one that cannot be read is left out.

    :raises KubeError: if they cannot be listed.
    """
    found: dict[str, report.ReportStatus] = {}
    async for item in client.every(REPORTS, msgspec.Raw):
        try:
            read = msgspec.json.decode(item, type=_Published)
        except MALFORMED as error:
            _log.warning("a report of an earlier leader: %s", error)
            continue
        if read.metadata.name != report.CLUSTER:
            found[read.metadata.name] = read.status
    return found
