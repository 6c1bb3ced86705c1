"""Events: what a program tells of an object, for ``kubectl describe`` and ``kubectl get events``."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from cotenant.api import timestamp, unstructured
from cotenant.kube.client import EVENTS, Client

MESSAGE_CHARACTERS = 1024
"""The API server takes no more."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """The object that is told of. Events of cluster-scoped objects are in the namespace ``default``."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""

    @classmethod
    def of(cls, value: Mapping[str, Any], api_version: str, kind: str) -> "About":
        """Return the reference to an object as it was read."""
        metadata = unstructured.metadata(value)
        return cls(
            api_version=api_version,
            kind=kind,
            name=str(metadata.get("name", "")),
            namespace=str(metadata.get("namespace", "")),
            uid=unstructured.uid(value),
        )


def body(
    about: About, reason: str, message: str, component: str, now: float, kind: Literal["Normal", "Warning"] = "Warning"
) -> dict[str, Any]:
    """Return the Event that says this, at the wall time ``now``."""
    namespace, time = about.namespace or "default", timestamp.render(now)
    involved = {
        "apiVersion": about.api_version, "kind": about.kind, "name": about.name, "namespace": about.namespace,
        "uid": about.uid,
    }  # fmt: skip
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{about.name[:200]}.{int(now * 1e6):x}", "namespace": namespace},
        "involvedObject": {key: value for key, value in involved.items() if value},
        "type": kind,
        "reason": reason,
        "message": message[:MESSAGE_CHARACTERS],
        "source": {"component": component},
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }


async def record(
    client: Client,
    about: About,
    reason: str,
    message: str,
    component: str,
    now: float,
    kind: Literal["Normal", "Warning"] = "Warning",
) -> None:
    """Tell it.

    :raises KubeError: if it cannot be written.
    """
    value = body(about, reason, message, component, now, kind)
    await client.create(EVENTS, value, dict, namespace=value["metadata"]["namespace"])
