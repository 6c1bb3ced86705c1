"""The history of each object of rules on a cluster: one ControllerRevision for each generation that was valid.

An object that is made again under the name of a deleted one begins at generation 1, while the deleted one's revisions
may still wait for the garbage collector: a revision belongs to an object by the uid of its owner, not by its name.
"""

import contextlib
import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cotenant.api import report, timestamp, unstructured
from cotenant.detect import rules
from cotenant.kube import errors
from cotenant.kube.client import REVISIONS, RULES, Client
from cotenant.units.errors import CotenantError
from cotenant.units.malformed import MALFORMED

MOST = 10
"""Revisions kept of each object."""
RULES_LABEL = "cotenant.io/rules"
TRIAL_UNTIL = "cotenant.io/trial-until"
LIMITED_BEFORE = "cotenant.io/limited-before"
PREVIOUS_GENERATION = "cotenant.io/previous-generation"
"""Annotations of a generation that was put on trial, so that another leader can go on with it."""


class NoRevision(CotenantError):
    """There is no such revision."""


@dataclasses.dataclass(frozen=True, slots=True)
class OnTrial:
    """A generation's trial: until when (seconds of the epoch), how many nodes were limited before it, and what was in
    force before (0: no object)."""

    until: float
    limited_before: int
    previous_generation: int


class _Owner(msgspec.Struct):
    uid: str = ""


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    creation_timestamp: str | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None


class Revision(msgspec.Struct, kw_only=True):
    """One generation of an object of rules: its number and its spec."""

    revision: int = 0
    data: dict[str, Any] = {}
    metadata: _Meta = msgspec.field(default_factory=_Meta)

    def belongs_to(self, value: Mapping[str, Any]) -> bool:
        """Return whether this is a generation of an object, and not of an earlier one of its name."""
        owners = self.metadata.owner_references or []
        return (owners[0].uid if owners else "") == unstructured.uid(value)

    @property
    def on_trial(self) -> OnTrial | None:
        """The trial that this generation was put on; None where it was on none, or that cannot be read."""
        noted = self.metadata.annotations or {}
        until = timestamp.parse(noted.get(TRIAL_UNTIL))
        limited, previous = noted.get(LIMITED_BEFORE, ""), noted.get(PREVIOUS_GENERATION, "")
        if until is None or not limited.isdecimal() or not previous.isdecimal():
            return None
        return OnTrial(until, int(limited), int(previous))


def label_of(name: str) -> str:
    """Return the label's value for an object's name, which may be longer than a label."""
    return name if len(name) <= 63 else hashlib.sha256(name.encode()).hexdigest()[:63]


def revision_name(name: str, generation: int) -> str:
    """Return the name of one generation's revision."""
    return f"rules-{name if len(name) <= 200 else label_of(name)}-{generation}"


async def record(client: Client, namespace: str, value: Mapping[str, Any], on_trial: OnTrial | None = None) -> None:
    """Keep the spec of an object as its generation's revision; drop its oldest ones and those of earlier objects.

    :raises KubeError: if it cannot be written; one that is there already is left.
    """
    name, generation = value["metadata"]["name"], unstructured.generation(value)
    kept = await _all(client, namespace, name)
    own = [one for one in kept if one.belongs_to(value)]
    if any(one.revision == generation for one in own):
        return
    await _drop(client, namespace, [one for one in kept if not one.belongs_to(value)])
    owner = {"apiVersion": report.API_VERSION, "kind": rules.KIND, "name": name, "uid": unstructured.uid(value)}
    body = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": revision_name(name, generation),
            "namespace": namespace,
            "labels": {RULES_LABEL: label_of(name)},
            "annotations": {} if on_trial is None else _annotations(on_trial),
            "ownerReferences": [owner] if owner["uid"] else [],
        },
        "revision": generation,
        "data": {"spec": value.get("spec") or {}},
    }
    await client.create(REVISIONS, body, dict, namespace=namespace)
    await _drop(client, namespace, own[: max(0, len(own) + 1 - MOST)])


async def _drop(client: Client, namespace: str, old: Sequence[Revision]) -> None:
    for one in old:
        with contextlib.suppress(errors.NotFound):  # the garbage collector was faster
            await client.delete(REVISIONS, one.metadata.name, namespace=namespace)


def _annotations(on_trial: OnTrial) -> dict[str, str]:
    return {
        TRIAL_UNTIL: timestamp.render(on_trial.until),
        LIMITED_BEFORE: str(on_trial.limited_before),
        PREVIOUS_GENERATION: str(on_trial.previous_generation),
    }


async def history(client: Client, namespace: str, value: Mapping[str, Any]) -> list[Revision]:
    """Return an object's revisions, oldest first.

    :raises KubeError: if they cannot be listed.
    """
    kept = await _all(client, namespace, value["metadata"]["name"])
    return [one for one in kept if one.belongs_to(value)]


async def history_by_name(client: Client, namespace: str, name: str) -> list[Revision]:
    """Return the revisions of the object of a name, oldest first; none where there is no such object.

    :raises KubeError: if they cannot be listed.
    """
    try:
        value = await client.get(RULES, name, dict[str, Any])
    except errors.NotFound:
        return []
    return await history(client, namespace, value)


async def _all(client: Client, namespace: str, name: str) -> list[Revision]:
    """Return the revisions of all objects that had a name, oldest generation first."""
    page = await client.page(REVISIONS, namespace=namespace, labelSelector=f"{RULES_LABEL}={label_of(name)}", limit=500)
    found = []
    for item in page.items:
        try:
            kept = msgspec.json.decode(item, type=Revision)
        except MALFORMED:
            continue  # somebody else's under our label
        if kept.metadata.name == revision_name(name, kept.revision):
            found.append(kept)
    return sorted(found, key=lambda revision: revision.revision)


async def roll_back(client: Client, namespace: str, name: str, number: int | None = None) -> Revision:
    """Write an earlier revision's spec into the object; without a number the newest one that differs from it.

    :raises NoRevision: if there is none.
    :raises KubeError: if it cannot be written.
    """
    value = await client.get(RULES, name, dict[str, Any])
    known = await history(client, namespace, value)
    spec = value.get("spec") or {}
    if number is None:
        chosen = next((one for one in reversed(known) if one.data.get("spec") != spec), None)
    else:
        chosen = next((one for one in known if one.revision == number), None)
    if chosen is None:
        listed = ", ".join(str(one.revision) for one in known) or "none"
        raise NoRevision(
            f"{name}: no {'earlier revision' if number is None else f'revision {number}'}; there are {listed}"
        )
    await client.replace(RULES, name, {**value, "spec": chosen.data.get("spec") or {}}, dict)
    return chosen
