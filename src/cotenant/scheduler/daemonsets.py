"""Which DaemonSets a hard taint would keep out.

Their controller looks at the tolerations of the template, before any webhook sees a pod. Pure but for the listing.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from cotenant.api import marks, unstructured
from cotenant.kube.client import DAEMON_SETS, Client


def tolerates(tolerations: Iterable[Mapping[str, Any]]) -> bool:
    """Tell whether one of the tolerations covers our taint with the effect NoSchedule."""
    for one in tolerations:
        if one.get("effect") not in (None, "", "NoSchedule"):
            continue
        key, operator = one.get("key") or "", one.get("operator") or "Equal"
        if operator == "Exists" and key in ("", marks.TAINT_KEY):
            return True
        if operator == "Equal" and key == marks.TAINT_KEY and one.get("value", "") == marks.TAINT_VALUE:
            return True
    return False


def kept_out(items: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the DaemonSets, as ``namespace/name``, whose pods would not come to a node with our hard taint."""
    found = []
    for item in items:
        metadata = unstructured.metadata(item)
        spec = (((item.get("spec") or {}).get("template") or {}).get("spec")) or {}
        if not tolerates(spec.get("tolerations") or ()):
            found.append(f"{metadata.get('namespace', 'default')}/{metadata.get('name', '')}")
    return sorted(found)


async def list_kept_out(client: Client) -> list[str]:
    """Return those of a cluster.

    :raises KubeError: if they cannot be listed.
    """
    return kept_out([item async for item in client.every(DAEMON_SETS, dict[str, Any])])
