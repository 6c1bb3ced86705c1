"""The revisions of the strategies on the cluster: one ControllerRevision each, so that they outlive the manager, and
beside them a ConfigMap that says which one is active and what is wrong with the newest text.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import yaml

from cotenant.api import manifest
from cotenant.api.koordinator import slo_config
from cotenant.api.report import Condition
from cotenant.kube import errors
from cotenant.kube.client import CONFIG_MAPS, REVISIONS, Client
from cotenant.manager.controller import FIELD_MANAGER
from cotenant.manager.slo.staging import Revision
from cotenant.units.malformed import BAD_VALUES, MALFORMED

MOST = 20
"""Revisions kept, besides the active one."""
STATE = "cotenant-slo-config"
"""The ConfigMap in our namespace: ``active`` and ``conditions``."""
_LABEL = "cotenant.io/slo-config"


class _Kept(msgspec.Struct, kw_only=True):
    revision: int = 0
    data: dict[str, dict[str, str]] = {}


def object_name(number: int) -> str:
    """Return the name of a revision's ControllerRevision."""
    return f"slo-config-{number}"


async def load(client: Client, namespace: str) -> tuple[list[Revision], int]:
    """Return the revisions there are, oldest first, and the highest number; one that is not understood is left out.

    :raises KubeError: if they cannot be listed.
    """
    page = await client.page(REVISIONS, namespace=namespace, labelSelector=_LABEL, limit=500)
    found, highest = [], 0
    for item in page.items:
        try:
            kept = msgspec.json.decode(item, type=_Kept)
        except MALFORMED:
            continue  # somebody else's: a label that names it counts as none
        highest = max(highest, kept.revision)
        config, wrong = slo_config.read(kept.data.get("texts") or {}, slo_config.SloConfig())
        if not wrong:
            found.append(Revision(kept.revision, config))
    return sorted(found, key=lambda one: one.number), highest


async def record(client: Client, namespace: str, revision: Revision) -> None:
    """Keep a revision.

    :raises Conflict: if there is one of that number already.
    :raises KubeError: if it cannot be written.
    """
    body = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {"name": object_name(revision.number), "namespace": namespace, "labels": {_LABEL: "true"}},
        "revision": revision.number,
        "data": {"texts": dict(revision.config.texts)},
    }
    await client.create(REVISIONS, body, dict, namespace=namespace)


async def forget(client: Client, namespace: str, known: Sequence[Revision], active: str) -> list[Revision]:
    """Delete the oldest revisions beyond the bound, never the active one; returns those that are left.

    :raises KubeError: if one cannot be deleted.
    """
    kept = list(known)
    for old in known[:-MOST]:
        if old.name != active:
            await client.delete(REVISIONS, object_name(old.number), namespace=namespace)
            kept.remove(old)
    return kept


def active_of(state: Mapping[str, Any] | None) -> str | None:
    """Return which revision the ConfigMap calls active, or None where it does not say."""
    data = (state or {}).get("data") or {}
    return data.get("active") if isinstance(data, Mapping) else None


def conditions_of(state: Mapping[str, Any] | None) -> list[Condition]:
    """Return the conditions in the ConfigMap; none where there are none that can be read."""
    data = (state or {}).get("data") or {}
    try:
        return msgspec.convert(next(manifest.documents(data.get("conditions") or "[]"), None), list[Condition])
    except (yaml.YAMLError, *BAD_VALUES, *MALFORMED):
        return []


async def write_state(client: Client, namespace: str, active: str, conditions: Sequence[Condition]) -> None:
    """Say which revision is active and how each key is.

    :raises KubeError: if it cannot be written.
    """
    text = yaml.safe_dump(msgspec.to_builtins(list(conditions)), sort_keys=False, width=110, allow_unicode=True)
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": STATE, "namespace": namespace},
        "data": {"active": active, "conditions": text},
    }
    await client.apply(CONFIG_MAPS, STATE, body, FIELD_MANAGER, force=True, namespace=namespace)


async def promote(client: Client, namespace: str, name: str) -> None:
    """Make a revision the one that nodes get which name none.

    :raises NotFound: if there is no such revision.
    :raises KubeError: if it cannot be written.
    """
    if not name.isdecimal():
        raise errors.NotFound(f"slo revision {name!r}: revisions are numbers", 404, "NotFound")
    await client.get(REVISIONS, object_name(int(name)), dict, namespace=namespace)
    patch = {"data": {"active": name}}
    await client.patch(CONFIG_MAPS, STATE, patch, namespace=namespace, field_manager=FIELD_MANAGER)
