"""What controllers that keep one object for each node have in common: the nodes, and those objects as they are."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from cotenant.api import unstructured
from cotenant.api.objects import Node
from cotenant.kube import errors
from cotenant.kube.client import NODES, Client, Resource
from cotenant.kube.informer import Informer
from cotenant.manager.controller import Context
from cotenant.manager.reconciling import Reconciler

SHOWN = 3
"""Names of nodes in a message; the others are counted."""


class Held:
    """A receiver that keeps all objects of a kind and says which has changed."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        self.objects: dict[str, Any] = {}
        self._changed = changed

    def replaced(self, objects: dict[str, Any]) -> None:
        keys = set(self.objects) | set(objects)
        self.objects = objects
        for key in keys:
            self._changed(key)

    def put(self, key: str, value: Any) -> None:
        self.objects[key] = value
        self._changed(key)

    def removed(self, key: str) -> None:
        self.objects.pop(key, None)
        self._changed(key)


async def keep(
    context: Context,
    reconciler: Reconciler,
    informers: Mapping[str, Informer[Any]],
    beside: Sequence[Callable[[], Coroutine[Any, Any, None]]],
    needed: Sequence[str],
) -> None:
    """Follow what the informers, by kind, are for; write once those that are needed are in step; until cancelled."""
    context.observed.write(reconciler)
    context.observed.follow(reconciler.name, **informers)
    async with asyncio.TaskGroup() as tasks:
        for informer in informers.values():
            tasks.create_task(informer.run())
        for kind in needed:
            await informers[kind].synced.wait()
        for work in (reconciler.run, *beside):
            tasks.create_task(work())


async def delete_orphan(client: Client, resource: Resource, name: str) -> None:
    """Delete the object of a node that is gone, after asking the API server itself: informers lag behind.

    :raises KubeError: if that cannot be told, or done.
    """
    with contextlib.suppress(errors.NotFound):
        await client.get(NODES, name, dict)
        return
    with contextlib.suppress(errors.NotFound):
        await client.delete(resource, name)


def some(names: Sequence[str]) -> str:
    """Return the first names of many, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"


def owner_of(node: Node) -> dict[str, str]:
    """Return the reference by which an object goes with its node."""
    return {"apiVersion": "v1", "kind": "Node", "name": node.metadata.name, "uid": node.metadata.uid}


def with_owner(value: Mapping[str, Any], node: Node) -> list[dict[str, Any]]:
    """Return the owners of an object, the node among them; others' stay."""
    owners = unstructured.metadata(value).get("ownerReferences") or []
    return [*(one for one in owners if one.get("kind") != "Node"), owner_of(node)]
