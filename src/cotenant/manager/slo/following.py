"""Koordinator's ConfigMap, followed: what is good becomes a revision, what is not is told, and the last good stays."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from prometheus_client import core, registry

from cotenant.api import conditions, unstructured
from cotenant.api.koordinator import slo_config
from cotenant.api.koordinator.slo_config import KEYS, Key, SloConfig
from cotenant.api.report import Condition
from cotenant.kube import errors, event
from cotenant.kube.backoff import Backoff
from cotenant.kube.client import CONFIG_MAPS
from cotenant.kube.informer import Informer, One
from cotenant.manager.controller import FIELD_MANAGER, Context, Place
from cotenant.manager.slo import history, staging
from cotenant.manager.slo.state import SloState

_log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
REFUSED = "SLOConfigRefused"


class _Held:
    """An object as it last came, None where there is none, and whether it has changed since it was looked at."""

    def __init__(self) -> None:
        self.value: Mapping[str, Any] | None = None
        self.changed = False

    def take(self, value: Mapping[str, Any] | None) -> None:
        self.value, self.changed = value, True


class SloConfigFollower:
    """Follows the ConfigMap while this replica leads."""

    name = "slo-config"

    def __init__(self) -> None:
        self._config, self._state = _Held(), _Held()
        self._known: list[staging.Revision] = []
        self._highest = 0
        self._unknown: dict[Key, tuple[str, ...]] = {}
        self._told: tuple[str, list[Condition]] | None = None
        self._read: tuple[Mapping[str, Any] | None, list[Condition]] | None = None

    async def run(self, context: Context) -> None:
        """Follow until cancelled."""
        place = context.settings.slo_config
        context.metrics.register(_Collector(context.slo))
        informers = {
            "config": _informer(context, place, self._config),
            "state": _informer(context, Place(context.namespace, history.STATE), self._state),
        }
        context.observed.follow(self.name, **informers)
        async with asyncio.TaskGroup() as tasks:
            for informer in informers.values():
                tasks.create_task(informer.run())
            for informer in informers.values():
                await informer.synced.wait()
            tasks.create_task(self._look(context))

    async def _look(self, context: Context) -> None:
        backoff, loaded = Backoff(), False
        while True:
            try:
                if not loaded:
                    self._known, self._highest = await history.load(context.client, context.namespace)
                    loaded = True
                await self.look(context)
            except errors.KubeError as error:
                loaded = loaded and not isinstance(error, errors.Conflict)  # another leader's revision: read them anew
                _log.warning("slo config: %s", error)
                await asyncio.sleep(backoff.next_seconds(getattr(error, "retry_after_seconds", None)))
                continue
            backoff.reset()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self, context: Context) -> None:
        """Put in force what has changed, and tell what became of it.

        :raises KubeError: if something cannot be written; it is tried again.
        """
        if self._config.changed or self._state.changed or context.slo.revisions is None:
            self._config.changed = self._state.changed = False
            try:
                await self._take(context)
            except errors.KubeError:
                self._config.changed = True
                raise
        await self._tell(context)

    async def _take(self, context: Context) -> None:
        value = self._config.value or {}
        staged = unstructured.annotations(value).get(staging.CHANGES_ANNOTATION) == staging.STAGED
        newest = self._known[-1] if self._known else staging.Revision(0, SloConfig())
        config, wrong = slo_config.read(_texts(value), newest.config)
        if config.texts != newest.config.texts or not self._known:
            revision = staging.Revision(self._highest + 1, config)
            await history.record(context.client, context.namespace, revision)
            self._known.append(revision)
            self._highest = revision.number
        found = staging.revisions(self._known, history.active_of(self._state.value), staged)
        self._known = await history.forget(context.client, context.namespace, self._known, found.active.name)
        self._unknown = {key: section.unknown for key, section in config.sections.items() if section.unknown}
        context.slo.wrong = wrong
        before = context.slo.revisions
        if before is None or (before.active, before.newest) != (found.active, found.newest):
            context.slo.publish(found)

    def _held_conditions(self) -> list[Condition]:
        """Return the conditions that are written, read anew only when they have changed: YAML takes its time."""
        if self._read is None or self._read[0] is not self._state.value:
            self._read = (self._state.value, history.conditions_of(self._state.value))
        return self._read[1]

    async def _tell(self, context: Context) -> None:
        """Write conditions when they have changed, and an Event for each key that is newly refused."""
        if context.slo.revisions is None:
            return
        active = context.slo.revisions.active.name
        held = self._held_conditions()
        told = conditions_for(context.slo, self._unknown, held, context.clock.wall())
        if (active, told) in ((history.active_of(self._state.value), held), self._told):
            return
        known = {(one.type, one.status, one.message) for one in held}
        place = context.settings.slo_config
        about = event.About.of(
            self._config.value or {"metadata": {"name": place.name, "namespace": place.namespace}}, "v1", "ConfigMap"
        )
        for one in told:
            if one.status == "False" and (one.type, one.status, one.message) not in known:
                _log.error("%s: %s", place, one.message)
                await event.record(
                    context.client, about, REFUSED, one.message or "", FIELD_MANAGER, context.clock.wall()
                )
        await history.write_state(context.client, context.namespace, active, told)
        self._told = (active, told)


def _informer(context: Context, where: Place, held: _Held) -> Informer[dict[str, Any]]:
    return Informer(
        context.client,
        CONFIG_MAPS,
        dict[str, Any],
        One(str(where), held.take),
        namespace=where.namespace,
        fields=f"metadata.name={where.name}",
    )


def _texts(value: Mapping[str, Any]) -> dict[str, str]:
    return {key: text for key, text in (value.get("data") or {}).items() if isinstance(text, str)}


def conditions_for(
    state: SloState, unknown: Mapping[Key, tuple[str, ...]], held: list[Condition], now: float
) -> list[Condition]:
    """Return one condition for each key: whether what is written there is in force; ``held`` are those there are."""
    assert state.revisions is not None
    newest = state.revisions.newest
    found = []
    for key in KEYS:
        notes = [f"{place} is not known and means nothing" for place in unknown.get(key, ())]
        if key in state.overlaps:
            notes.append(state.overlaps[key])
        if key in state.notes:
            notes.append(state.notes[key])
        if key in state.wrong:
            reason, kept = "Refused", "the last good state" if key in newest.config.texts else "the default"
            message = f"{state.wrong[key]}; {kept} stays in force"
        elif key in newest.config.texts:
            reason, message = "InForce", "; ".join(["in force", *notes])
        else:
            reason, message = "Default", "nothing is written; the default is in force"
        condition = Condition(
            type=key,
            status="False" if reason == "Refused" else "True",
            reason="Overlapping" if reason == "InForce" and key in state.overlaps else reason,
            message=message[: event.MESSAGE_CHARACTERS],
        )
        found.append(condition)
    return conditions.dated(found, held, now)


class _Collector(registry.Collector):
    """Whether each key is in force, and which revisions are."""

    def __init__(self, state: SloState) -> None:
        self._state = state

    def collect(self) -> list[core.Metric]:
        valid = core.GaugeMetricFamily(
            "cotenant_manager_slo_config_valid", "1 while what is under a key is in force.", labels=["key"]
        )
        numbers = core.GaugeMetricFamily(
            "cotenant_manager_slo_revision", "Revision of the strategies that is newest, and active.", labels=["which"]
        )
        revisions = self._state.revisions
        if revisions is not None:
            for key in KEYS:
                valid.add_metric([key], float(key not in self._state.wrong))
            numbers.add_metric(["newest"], revisions.newest.number)
            numbers.add_metric(["active"], revisions.active.number)
        return [valid, numbers]
