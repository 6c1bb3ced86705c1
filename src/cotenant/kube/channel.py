"""The connection to the analyzer: TLS with a ServiceAccount's token, or plaintext on loopback."""

import asyncio
import contextlib
import dataclasses
import pathlib
from collections.abc import Callable

import grpc
import grpc.aio

from cotenant.kube import errors
from cotenant.units import address as addresses

OPTIONS = [
    ("grpc.keepalive_time_ms", 20_000),
    # The caller's own back-off is the only one: gRPC's would outlive the channel in its shared pool, and grow to two
    # minutes.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 500),
]

OpenChannel = Callable[[str], grpc.aio.Channel]
"""Opens a connection to ``HOST:PORT``."""


def open_plaintext(address: str) -> grpc.aio.Channel:
    """Return a channel without TLS, for loopback."""
    return grpc.aio.insecure_channel(address, options=OPTIONS)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Where another program of ours is, and how to be let in."""

    address: str = ""
    """``HOST:PORT`` of any replica; empty: the holder of its lease."""
    ca_file: pathlib.Path | None = None
    """Who signed its certificate; None: plaintext, on loopback only."""
    token_file: pathlib.Path | None = None
    """A ServiceAccount's token."""
    name: str = ""
    """What its certificate must say; its address by default."""


class _Token(grpc.AuthMetadataPlugin):  # type: ignore[misc]
    """Adds the token to each call, read anew: a projected token changes each hour."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    def __call__(self, context: grpc.AuthMetadataContext, callback: grpc.AuthMetadataPluginCallback) -> None:
        try:
            token = self._path.read_text().strip()
        except OSError as error:
            callback((), error)
            return
        callback((("authorization", f"Bearer {token}"),), None)


def end_if_cancelled() -> None:
    """End the running task where it was told to end and gRPC has not passed that on.

    In the moment in which a call begins, gRPC takes a cancellation for itself and reports the failure of the call.

    :raises CancelledError: in that case.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def opener(ca_file: pathlib.Path | None, token_file: pathlib.Path | None, name: str = "") -> OpenChannel:
    """Return what opens a channel to an address; the authority's file is read for each, so a renewed one is believed.

    Without a certificate authority it is plaintext, which :func:`check` allows on loopback only. ``name`` is what the
    certificate must say, whatever the address: the leader is found by its pod's, which no certificate holds.

    :raises BadConfiguration: if the authority's file cannot be read.
    """
    if ca_file is None:
        return open_plaintext
    options: list[tuple[str, str | int]] = [*OPTIONS]
    if name:
        options.append(("grpc.ssl_target_name_override", name))
    authority = _read(ca_file)

    def open_secure(address: str) -> grpc.aio.Channel:
        nonlocal authority
        with contextlib.suppress(errors.BadConfiguration):  # being replaced just now: the one before may still hold
            authority = _read(ca_file)
        credentials = grpc.ssl_channel_credentials(authority)
        if token_file is not None:
            token = grpc.metadata_call_credentials(_Token(token_file))
            credentials = grpc.composite_channel_credentials(credentials, token)
        return grpc.aio.secure_channel(address, credentials, options=options)

    return open_secure


def _read(ca_file: pathlib.Path) -> bytes:
    try:
        return ca_file.read_bytes()
    except OSError as error:
        raise errors.BadConfiguration(f"--analyzer-ca {ca_file}: {error.strerror}") from None


def check(address: str, ca_file: pathlib.Path | None, option: str = "--analyzer") -> None:
    """Refuse an address that would be spoken to in plaintext beyond this machine; ``option`` is where it was given.

    :raises BadConfiguration: if it would.
    :raises BadAddress: if it is not ``HOST:PORT``.
    """
    host, _ = addresses.split(address, option)
    if ca_file is None and not addresses.is_loopback(host):
        raise errors.BadConfiguration(f"{option} {address}: plaintext only on loopback; give --analyzer-ca FILE")
