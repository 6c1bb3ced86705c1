"""Pods that a profile chooses and that are not as it would make them: made while the webhook was away, or before it.

Only profiles for all pods are looked at: whether one for a percentage met a pod cannot be told from the pod.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import msgspec
from prometheus_client import core, registry

from cotenant.api import unstructured
from cotenant.api.koordinator.profile import Profile
from cotenant.kube import errors
from cotenant.kube.client import NAMESPACES, PODS, PRIORITY_CLASSES, PROFILES, Client
from cotenant.manager.controller import Context
from cotenant.manager.webhook import mutation, profiles, registration, translation
from cotenant.manager.webhook.errors import Refused
from cotenant.manager.webhook.surroundings import Namespace, PriorityClass, Surroundings
from cotenant.model import pod as pods

_log = logging.getLogger(__name__)

PERIOD_SECONDS = 300.0
_FINISHED = ("Succeeded", "Failed")

Why = Literal["older", "missed"]


class Unmutated(msgspec.Struct, frozen=True, kw_only=True):
    """One such pod."""

    namespace: str
    name: str
    profile: str
    why: Why
    """``older`` than the profile, or ``missed`` by the webhook."""
    differs: tuple[str, ...]
    """What the profile would change."""


def judge(pod: mutation.Pod, chosen: Sequence[profiles.Ready], around: Surroundings) -> tuple[str, ...]:
    """Return what of class, priority, scheduler and resources these profiles would change; empty where nothing."""
    arrival = mutation.Arrival(pod=pod, identity=mutation.identity_of(pod, around.namespace, ""))
    try:
        after = mutation.mutate(arrival, chosen, dataclasses.replace(around, templates={})).pod
    except Refused as error:
        return (str(error),)
    before, now = _weighty(pod), _weighty(after)
    return tuple(place for place in now if now[place] != before[place])


async def find(client: Client, own_namespace: str) -> list[Unmutated]:
    """Return all of them, by namespace and name; about the manager's own namespace the webhook is not asked.

    :raises KubeError: if something cannot be listed; without the kind of profiles there are none.
    """
    try:
        given = [one async for one in client.every(PROFILES, Profile)]
    except errors.NotFound:
        return []
    created = {one.metadata.name: one.metadata.creation_timestamp or "" for one in given}
    chosen = _for_all_pods(given)
    namespaces = {one.metadata.name: one async for one in client.every(NAMESPACES, Namespace)}
    classes = {one.metadata.name: one async for one in client.every(PRIORITY_CLASSES, PriorityClass)}
    found: dict[tuple[str, str], Unmutated] = {}
    for profile in chosen:
        query = profile.selector.query() or None
        async for pod in client.every(PODS, dict[str, Any], labelSelector=query):
            metadata = unstructured.metadata(pod)
            key = (str(metadata.get("namespace", "")), str(metadata.get("name", "")))
            if key in found or key[0] not in namespaces or not _counts(pod, own_namespace):
                continue
            around = _around(namespaces[key[0]], classes)
            if profile.name in mutation.applied_to(pod) or not profile.namespace_selector.matches(
                around.namespace_labels
            ):
                continue
            differs = judge(pod, chosen, around)
            if differs:
                older = str(metadata.get("creationTimestamp", "")) < created[profile.name]
                found[key] = Unmutated(
                    namespace=key[0],
                    name=key[1],
                    profile=profile.name,
                    why="older" if older else "missed",
                    differs=differs,
                )
    return [found[key] for key in sorted(found)]


class UnmutatedFinder(registry.Collector):
    """Looks for them now and then, for the metric."""

    name = "unmutated"

    def __init__(self) -> None:
        self._found: Collection[Unmutated] | None = None

    async def run(self, context: Context) -> None:
        """Look until cancelled."""
        if not context.settings.webhook.listen:
            return
        context.metrics.register(self)
        while True:
            try:
                self._found = await find(context.client, context.namespace)
            except errors.KubeError as error:
                self._found = None
                _log.warning("unmutated pods: %s", error)
            await asyncio.sleep(PERIOD_SECONDS)

    def collect(self) -> list[core.Metric]:
        text = "Pods that a profile chooses and that are not as it would make them."
        family = core.GaugeMetricFamily("cotenant_webhook_unmutated_pods", text, labels=["profile", "why"])
        counts: dict[tuple[str, str], int] = {}
        for one in self._found or ():
            counts[one.profile, one.why] = counts.get((one.profile, one.why), 0) + 1
        for labels, count in sorted(counts.items()):
            family.add_metric(labels, count)
        return [] if self._found is None else [family]


def _for_all_pods(given: Sequence[Profile]) -> list[profiles.Ready]:
    chosen = []
    for one in given:
        try:
            ready = profiles.ready(one)
        except profiles.BadProfile:
            continue  # it chooses nothing
        if ready.percent == 100:
            chosen.append(ready)
    return sorted(chosen, key=lambda profile: profile.name)


def _counts(pod: mutation.Pod, own_namespace: str) -> bool:
    """Return whether a pod runs or will, and the webhook would have been asked about it."""
    metadata = unstructured.metadata(pod)
    return not (
        metadata.get("deletionTimestamp")
        or (pod.get("status") or {}).get("phase") in _FINISHED
        or metadata.get("namespace") in (*registration.EXEMPT, own_namespace)
        or mutation.MIRROR_ANNOTATION in (metadata.get("annotations") or {})
    )


def _around(namespace: Namespace, classes: Mapping[str, PriorityClass]) -> Surroundings:
    """Return the surroundings without quotas: those bound what is made now, not what runs."""
    return Surroundings(
        namespace=namespace.metadata.name,
        namespace_labels=namespace.metadata.labels or {},
        priority_classes=classes,
    )


def _weighty(pod: mutation.Pod) -> dict[str, Any]:
    labels, spec = unstructured.labels(pod), pod.get("spec") or {}
    found: dict[str, Any] = {
        f"metadata.labels[{name}]": labels.get(name) for name in (pods.QOS_LABEL, pods.SUB_PRIORITY_LABEL)
    }
    found |= {f"spec.{name}": spec.get(name) for name in ("priorityClassName", "schedulerName")}
    for place, container in translation.containers_of(pod):
        for side in ("requests", "limits"):
            found[f"{place}.resources.{side}"] = (container.get("resources") or {}).get(side) or {}
    return found
