"""What a change needs beside the nodes.

A mode needs nothing. A revision of the SLO configuration must be there, and changes must be staged; it is promoted in
the end. Rules go to the nodes of a rollout as a DetectionRuleConfig of their own, which is written into the object that
they are a revision of in the end, and removed.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from cotenant.api import conditions, unstructured
from cotenant.api.report import API_VERSION
from cotenant.api.rollout import RULES_LABEL, ColocationRollout, RulesChange
from cotenant.detect.rules import KIND
from cotenant.kube import errors, revisions
from cotenant.kube.client import CONFIG_MAPS, REVISIONS, RULES, Client, Resource
from cotenant.manager.controller import FIELD_MANAGER, Settings
from cotenant.manager.rollout.machine import Target
from cotenant.manager.rollout.view import TargetState
from cotenant.manager.slo import history, staging


class Targets:
    """Looks at what a change needs, and does what a step asks for."""

    def __init__(self, client: Client, namespace: str, settings: Settings) -> None:
        self._client = client
        self._namespace = namespace
        self._settings = settings

    async def state(self, rollout: ColocationRollout) -> TargetState:
        """Return how what the change needs is.

        :raises KubeError: if that cannot be told.
        """
        change, found = rollout.spec.change, TargetState()
        if change.node_slo is not None:
            found = _both(found, await self._slo_state(change.node_slo))
        if change.rules is not None:
            found = _both(found, await self._rules_state(rollout, change.rules))
        return found

    async def do(self, target: Target, rollout: ColocationRollout) -> None:
        """Do what a step asks for.

        :raises KubeError: if it cannot be done now.
        """
        change = rollout.spec.change
        if target == "promote" and change.node_slo is not None:
            await history.promote(self._client, self._namespace, change.node_slo)
        if change.rules is None:
            return
        if target == "prepare":
            await self._prepare(rollout, change.rules)
        elif target == "promote":
            await self._promote(change.rules)
        elif target == "discard":
            try:
                await self._client.delete(RULES, rules_name(rollout))
            except errors.NotFound:
                return

    async def _found(self, resource: Resource, name: str, namespace: str | None = None) -> dict[str, Any] | None:
        try:
            return await self._client.get(resource, name, dict[str, Any], namespace=namespace)
        except errors.NotFound:
            return None

    async def _slo_state(self, name: str) -> TargetState:
        place = self._settings.slo_config
        kept = name.isdecimal() and await self._found(REVISIONS, history.object_name(int(name)), self._namespace)
        if not kept:
            where = f"kubectl -n {self._namespace} get controllerrevisions -l cotenant.io/slo-config"
            return TargetState(problem=f"there is no SLO revision {name}: {where}")
        config = await self._found(CONFIG_MAPS, place.name, place.namespace) or {}
        annotations = unstructured.annotations(config)
        if annotations.get(staging.CHANGES_ANNOTATION) != staging.STAGED:
            text = f"ConfigMap {place} needs the annotation {staging.CHANGES_ANNOTATION}: {staging.STAGED}"
            return TargetState(problem=f"{text}, or every node has its newest state already")
        active = history.active_of(await self._found(CONFIG_MAPS, history.STATE, self._namespace))
        return TargetState(promoted=active == name, message=f"SLO revision {name} becomes active")

    async def _rules_state(self, rollout: ColocationRollout, change: RulesChange) -> TargetState:
        theirs = await self._found(RULES, change.config)
        spec = await self._spec(change, theirs)
        if spec is None:
            text = f"there is no revision {change.revision} of rules {change.config}"
            return TargetState(problem=f"{text}: cotenant config history --cluster --name {change.config}")
        own = await self._found(RULES, rules_name(rollout))
        problem = refusal(own)
        return TargetState(
            ready=own is not None and is_active(own),
            promoted=theirs is not None and (theirs.get("spec") or {}) == spec and is_active(theirs),
            discarded=own is None,
            message=f"rules {change.config}, revision {change.revision}: the analyzer takes them",
            problem=f"rules {rules_name(rollout)}: {problem}" if problem else "",
        )

    async def _spec(self, change: RulesChange, config: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Return the spec of a change's revision; None where it is not kept, or is an earlier object's of that name."""
        name = revisions.revision_name(change.config, change.revision)
        found = await self._found(REVISIONS, name, self._namespace)
        if found is None:
            return None
        kept = msgspec.convert(found, revisions.Revision)
        if config is not None and not kept.belongs_to(config):
            return None
        return kept.data.get("spec") or {}

    async def _prepare(self, rollout: ColocationRollout, change: RulesChange) -> None:
        spec = await self._spec(change, await self._found(RULES, change.config))
        if spec is None:
            return
        name, metadata = rules_name(rollout), rollout.metadata
        owner = {"apiVersion": API_VERSION, "kind": rollout.kind, "name": metadata.name, "uid": metadata.uid}
        body = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": name, "ownerReferences": [owner]},
            "spec": {**spec, "nodeSelector": {**(spec.get("nodeSelector") or {}), RULES_LABEL: metadata.name}},
        }
        await self._client.apply(RULES, name, body, FIELD_MANAGER, force=True)

    async def _promote(self, change: RulesChange) -> None:
        found = await self._found(RULES, change.config)
        spec = await self._spec(change, found)
        if spec is None or (found is not None and (found.get("spec") or {}) == spec):
            return
        if found is None:
            body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": change.config}, "spec": spec}
            await self._client.create(RULES, body, dict)
        else:
            await self._client.replace(RULES, change.config, {**found, "spec": spec}, dict)


def rules_name(rollout: ColocationRollout) -> str:
    """Return the name of the DetectionRuleConfig for the nodes of a rollout."""
    return f"rollout-{rollout.metadata.name}"


def is_active(config: Mapping[str, Any]) -> bool:
    """Return whether the analyzer has the newest generation of rules in force."""
    generation = unstructured.generation(config)
    return generation > 0 and (config.get("status") or {}).get("activeGeneration") == generation


def refusal(config: Mapping[str, Any] | None) -> str:
    """Return why the analyzer does not have the newest generation of rules in force, or "" where it does not say."""
    for one in conditions.read(config or {}):
        bad = (one.type, one.status) in (("Valid", "False"), ("RolledBack", "True"))
        if bad and one.observed_generation == unstructured.generation(config):
            return one.message or one.reason or "refused"
    return ""


def _both(one: TargetState, other: TargetState) -> TargetState:
    return TargetState(
        ready=one.ready and other.ready,
        promoted=one.promoted and other.promoted,
        discarded=one.discarded and other.discarded,
        message=other.message if not other.ready or one.ready else one.message,
        problem=one.problem or other.problem,
    )
