"""The Secret in which the replicas share certificates, and the TLS context that follows it.

Every replica reads it now and then: two certificates overlap by days, so nothing hangs on a moment. A new certificate
goes into the same context: connections that stand keep theirs, new ones get the new one.
"""

import asyncio
import base64
import contextlib
import dataclasses
import logging
import os
import ssl
from collections.abc import Iterator
from typing import Any

import msgspec

from cotenant.kube import errors
from cotenant.kube.client import SECRETS, Client
from cotenant.manager.controller import FIELD_MANAGER
from cotenant.manager.webhook.certificates import BadMaterial, Material

_log = logging.getLogger(__name__)

FIRST_POLL_SECONDS = 0.5
"""While there is nothing to serve with."""
_KEYS = {"authorities": "ca.crt", "authority_key": "ca.key", "certificate": "tls.crt", "key": "tls.key"}


class _Secret(msgspec.Struct, kw_only=True):
    metadata: dict[str, Any] = {}
    data: dict[str, str] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Held:
    """What is stored; the material is None where it cannot be read."""

    material: Material | None
    resource_version: str


class Store:
    """The Secret."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name

    def __str__(self) -> str:
        return f"Secret {self._namespace}/{self._name}"

    async def read(self) -> Held | None:
        """Return what is there, or None where there is no such Secret.

        :raises KubeError: if it cannot be read.
        """
        try:
            secret = await self._client.get(SECRETS, self._name, _Secret, namespace=self._namespace)
        except errors.NotFound:
            return None
        return Held(_material(secret.data or {}), str(secret.metadata.get("resourceVersion", "")))

    async def write(self, material: Material, before: Held | None) -> None:
        """Store it, if nobody has since ``before`` was read.

        :raises Conflict: if somebody has.
        :raises KubeError: if it cannot be written.
        """
        data = {name: base64.b64encode(getattr(material, field)).decode() for field, name in _KEYS.items()}
        if before is not None:
            patch = {"metadata": {"resourceVersion": before.resource_version}, "data": data}
            await self._client.patch(SECRETS, self._name, patch, namespace=self._namespace, field_manager=FIELD_MANAGER)
            return
        metadata = {
            "name": self._name,
            "namespace": self._namespace,
            "labels": {"app.kubernetes.io/part-of": "cotenant"},
        }
        body = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": metadata, "data": data}
        await self._client.create(SECRETS, body, dict, namespace=self._namespace)


class Following:
    """A server's TLS context, kept up with the Secret."""

    def __init__(self, store: Store, look_seconds: float) -> None:
        self._store = store
        self._look_seconds = look_seconds
        self._loaded: Material | None = None
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        self.loaded = asyncio.Event()
        self.expires_at: float | None = None
        self.failures = 0

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            try:
                self.take(await self._store.read())
            except errors.KubeError as error:
                self.failures += 1
                _log.warning("%s: %s", self._store, error)
            await asyncio.sleep(self._look_seconds if self.loaded.is_set() else FIRST_POLL_SECONDS)

    def take(self, held: Held | None) -> None:
        """Serve with what is stored from now on; what cannot be used changes nothing."""
        material = held.material if held is not None else None
        if material is None or material == self._loaded:
            return
        try:
            issued = material.issued()
            load(self.context, material)
        except (BadMaterial, ssl.SSLError) as error:
            self.failures += 1
            _log.warning("%s: %s", self._store, error)
            return
        self._loaded, self.expires_at = material, issued.expires_at
        self.loaded.set()


def load(context: ssl.SSLContext, material: Material) -> None:
    """Have new connections get this certificate. OpenSSL reads files only; the key never touches a disk.

    :raises SSLError: if the key is not the certificate's.
    """
    with _in_memory(material.certificate) as certificate, _in_memory(material.key) as key:
        context.load_cert_chain(certificate, key)


@contextlib.contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    descriptor = os.memfd_create("cotenant-webhook")
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _material(data: dict[str, str]) -> Material | None:
    try:
        return Material(**{field: base64.b64decode(data[name], validate=True) for field, name in _KEYS.items()})
    except (KeyError, ValueError):
        return None
