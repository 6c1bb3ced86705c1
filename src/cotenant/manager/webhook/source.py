"""What the webhook knows of the cluster: profiles, namespaces, priority classes, quotas and limits, all by watches."""

import asyncio
import collections
import logging
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from cotenant.api.koordinator.profile import Profile
from cotenant.detect import templates
from cotenant.kube import errors
from cotenant.kube.client import LIMIT_RANGES, NAMESPACES, PRIORITY_CLASSES, PROFILES, QUOTAS, Client
from cotenant.kube.informer import Informer
from cotenant.manager.webhook import profiles
from cotenant.manager.webhook.errors import Unprepared
from cotenant.manager.webhook.surroundings import LimitRange, Namespace, PriorityClass, Quota, Surroundings

_log = logging.getLogger(__name__)

Object = TypeVar("Object")

NO_KIND_SECONDS = 10.0
"""How often is looked whether the kind of profiles is there by now."""


class _Objects(Generic[Object]):
    """Keeps objects by key, and tells that something has changed."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self.by_key: dict[str, Object] = {}
        self._changed = changed

    def replaced(self, objects: dict[str, Object]) -> None:
        self.by_key = objects
        self._changed()

    def put(self, key: str, value: Object) -> None:
        self.by_key[key] = value
        self._changed()

    def removed(self, key: str) -> None:
        self.by_key.pop(key, None)
        self._changed()


class _ByNamespace(Generic[Object]):
    """Keeps namespaced objects by their namespace."""

    def __init__(self) -> None:
        self.by_namespace: dict[str, dict[str, Object]] = collections.defaultdict(dict)

    def replaced(self, objects: dict[str, Object]) -> None:
        self.by_namespace.clear()
        for key, value in objects.items():
            self.put(key, value)

    def put(self, key: str, value: Object) -> None:
        self.by_namespace[key.partition("/")[0]][key] = value

    def removed(self, key: str) -> None:
        self.by_namespace.get(key.partition("/")[0], {}).pop(key, None)

    def of(self, namespace: str) -> tuple[Object, ...]:
        """Return the objects of one namespace."""
        return tuple(self.by_namespace.get(namespace, {}).values())


class Source:
    """The cluster as the webhook knows it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._profiles = _Objects[Profile](self._compile)
        self._namespaces = _Objects[Namespace]()
        self._classes = _Objects[PriorityClass]()
        self._quotas = _ByNamespace[Quota]()
        self._limits = _ByNamespace[LimitRange]()
        self._kind_missing = False
        self.templates = templates.bundled()
        """What pods get by their type of business."""
        self.ready: tuple[profiles.Ready, ...] = ()
        """The profiles that can be applied."""
        self.refused: dict[str, str] = {}
        """Why others cannot, by name."""
        self.informers: Mapping[str, Informer[Any]] = {
            "profiles": Informer(client, PROFILES, Profile, self._profiles),
            "namespaces": Informer(client, NAMESPACES, Namespace, self._namespaces),
            "priorityclasses": Informer(client, PRIORITY_CLASSES, PriorityClass, self._classes),
            "resourcequotas": Informer(client, QUOTAS, Quota, self._quotas),
            "limitranges": Informer(client, LIMIT_RANGES, LimitRange, self._limits),
        }

    def take_templates(self, known: templates.Templates) -> None:
        """Take other templates."""
        self.templates = known

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for kind, informer in self.informers.items():
                tasks.create_task(self._follow_profiles() if kind == "profiles" else informer.run(), name=kind)

    @property
    def waiting_for(self) -> list[str]:
        """What has not been listed yet."""
        return [
            kind
            for kind, informer in self.informers.items()
            if not informer.synced.is_set() and not (kind == "profiles" and self._kind_missing)
        ]

    async def around(self, namespace: str) -> Surroundings:
        """Return what is known around a pod of a namespace.

        :raises Unprepared: if the lists have not arrived, or the namespace is not known and cannot be had.
        """
        if self.waiting_for:
            raise Unprepared(f"{', '.join(self.waiting_for)}: not listed yet")
        found = self._namespaces.by_key.get(namespace)
        if found is None:  # made a moment ago
            try:
                found = await self._client.get(NAMESPACES, namespace, Namespace)
            except errors.KubeError as error:
                raise Unprepared(f"namespace {namespace}: {error}") from None
        return Surroundings(
            namespace=namespace,
            namespace_labels=found.metadata.labels or {},
            priority_classes=self._classes.by_key,
            quotas=self._quotas.of(namespace),
            limit_ranges=self._limits.of(namespace),
            templates=self.templates,
        )

    def has_priority_class(self, name: str) -> bool:
        """Return whether there is a priority class of that name."""
        return name in self._classes.by_key

    async def _follow_profiles(self) -> None:
        """Wait for the kind, which a cluster need not have, then follow its objects."""
        while True:
            try:
                await self._client.page(PROFILES, limit=1)
                break
            except errors.NotFound:
                self._kind_missing = True
            except errors.KubeError as error:
                _log.warning("profiles: %s", error)
            await asyncio.sleep(NO_KIND_SECONDS)
        self._kind_missing = False
        await self.informers["profiles"].run()

    def _compile(self) -> None:
        good, refused = [], {}
        for name, value in sorted(self._profiles.by_key.items()):
            try:
                good.append(profiles.ready(value))
            except profiles.BadProfile as error:
                refused[name] = str(error)
                if self.refused.get(name) != str(error):
                    _log.warning("profile %s matches nothing: %s", name, error)
        self.ready, self.refused = tuple(good), refused
