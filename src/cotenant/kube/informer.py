"""An informer: all objects of a kind, kept up to date by list and watch.

As client-go does it: the first list is taken from the server's cache (version 0), a watch follows from the version of
the list, bookmarks move that version on; when the version is gone (410) or not there yet ("too large"), list anew,
after a back-off, with no version at all; every other failure backs off and goes on where it was.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import msgspec

from cotenant.kube import errors
from cotenant.kube.backoff import Backoff
from cotenant.kube.client import Client, Resource
from cotenant.units.malformed import MALFORMED

_log = logging.getLogger(__name__)

Object = TypeVar("Object")

PAGE = 500
WATCH_SECONDS = (300, 600)
QUICK_SECONDS = 1.0
"""A watch that ends sooner than this without an event counts as a failure, or a broken proxy would make a hot loop."""


class Receiver(Protocol[Object]):
    """Who is told. Calls come one at a time, from the event loop, and must not wait."""

    def replaced(self, objects: dict[str, Object]) -> None:
        """These are all objects there are, by ``namespace/name`` or ``name``."""
        ...

    def put(self, key: str, value: Object) -> None:
        """This object is new or has changed."""
        ...

    def removed(self, key: str) -> None:
        """This object is gone."""
        ...


class One(Generic[Object]):
    """A receiver for an informer that selects a single object: hands it on, and None when it is gone."""

    def __init__(self, key: str, take: Callable[[Object | None], None]) -> None:
        self._key = key
        self._take = take

    def replaced(self, objects: dict[str, Object]) -> None:
        self._take(objects.get(self._key))

    def put(self, key: str, value: Object) -> None:
        if key == self._key:
            self._take(value)

    def removed(self, key: str) -> None:
        if key == self._key:
            self._take(None)


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Identity(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


_identity_decoder = msgspec.json.Decoder(_Identity)


class Informer(Generic[Object]):
    """Lists and watches one kind until cancelled; all of it, or what a namespace, a label or field selector chooses.

    ``absent`` are the waits while the kind is not defined at all, for one that a cluster may well lack.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        kind: type[Object],
        receiver: Receiver[Object],
        *,
        backoff: Backoff | None = None,
        absent: Backoff | None = None,
        namespace: str | None = None,
        selector: str | None = None,
        fields: str | None = None,
    ) -> None:
        self._client = client
        self._resource = resource
        self._decoder = msgspec.json.Decoder(kind)
        self._receiver = receiver
        self._backoff = backoff or Backoff()
        self._absent = absent
        self._namespace = namespace
        self._selection = {
            name: text for name, text in (("labelSelector", selector), ("fieldSelector", fields)) if text is not None
        }
        self._list_version: str | None = "0"
        self._version = ""
        self.synced = asyncio.Event()
        self.lists = 0
        self.failures = 0
        self.malformed = 0
        self.last_error: str | None = None

    async def run(self) -> None:
        """Keep the receiver up to date; returns only by cancellation."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except (errors.Expired, errors.TooLarge) as error:
                self._list_version = None
                self._version = ""
                await self._pause(error)
            except errors.NotFound as error:
                self._version = ""
                await self._pause(error, self._absent)
            except errors.Unreadable as error:
                self._version = ""
                await self._pause(error)
            except errors.KubeError as error:
                await self._pause(error)

    async def _pause(self, error: errors.KubeError, backoff: Backoff | None = None) -> None:
        again = backoff is not None and str(error) == self.last_error
        self.failures += 1
        self.last_error = str(error)
        wait = (backoff or self._backoff).next_seconds(getattr(error, "retry_after_seconds", None))
        _log.log(logging.DEBUG if again else logging.INFO, "%s: again in %.1f s", error, wait)
        await asyncio.sleep(wait)

    async def _list(self) -> None:
        found: dict[str, Object] = {}
        page = await self._client.page(
            self._resource,
            namespace=self._namespace,
            limit=PAGE,
            resourceVersion=self._list_version,
            **self._selection,
        )
        self._take(page.items, found)
        while page.next_page:
            page = await self._client.page(
                self._resource, namespace=self._namespace, limit=PAGE, continue_=page.next_page, **self._selection
            )
            self._take(page.items, found)
        self._version = self._list_version = page.resource_version
        self.lists += 1
        if self._absent is not None:
            self._absent.reset()
        self._receiver.replaced(found)
        self.synced.set()

    def _take(self, items: list[msgspec.Raw], found: dict[str, Object]) -> None:
        for item in items:
            identity = self._identify(item)
            if identity is not None and (value := self._decode(identity, item)) is not None:
                found[_key(identity)] = value

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        started, events = loop.time(), 0
        seconds = random.randint(*WATCH_SECONDS)
        async for event in self._client.watch(
            self._resource, self._version, seconds, namespace=self._namespace, **self._selection
        ):
            events += 1
            identity = self._identify(event.object)
            if identity is None:
                continue
            if event.type == "DELETED":
                self._receiver.removed(_key(identity))
            elif event.type != "BOOKMARK" and (value := self._decode(identity, event.object)) is not None:
                self._receiver.put(_key(identity), value)
            if identity.resource_version:
                self._version = self._list_version = identity.resource_version
            self._backoff.reset()
            self.last_error = None
        if not events and loop.time() - started < QUICK_SECONDS:
            raise errors.Unreachable(f"watch {self._resource.plural}: ended at once")
        self._backoff.reset()

    def _identify(self, item: msgspec.Raw) -> _Meta | None:
        """Return an object's metadata, or None where it has none that can be read."""
        try:
            return _identity_decoder.decode(item).metadata
        except MALFORMED:
            self.malformed += 1
            return None

    def _decode(self, identity: _Meta, item: msgspec.Raw) -> Object | None:
        """Return the object, or None where it is not of our shape: passed over, not fatal."""
        try:
            return self._decoder.decode(item)
        except MALFORMED as error:
            self.malformed += 1
            _log.warning("%s %s: %s", self._resource.plural, _key(identity), error)
            return None


def _key(identity: _Meta) -> str:
    return f"{identity.namespace}/{identity.name}" if identity.namespace else identity.name
