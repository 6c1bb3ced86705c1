"""Addresses as operators write them: ``HOST:PORT``, with an IPv6 address in brackets."""

import ipaddress
import urllib.parse

from cotenant.units.errors import CotenantError


class BadAddress(CotenantError):
    """A text that is not ``HOST:PORT``, or an address that cannot be listened on."""


def split(text: str, option: str = "--listen") -> tuple[str, int]:
    """Return host and port of ``HOST:PORT`` (``[::1]:80`` too); ``option`` is where it was given.

    :raises BadAddress: if it is something else.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise BadAddress(f"{option} {text}: not HOST:PORT, for example 127.0.0.1:8088")
    return host, int(port)


def join(host: str, port: int) -> str:
    """Return ``HOST:PORT``, from which :func:`split` makes both again."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine alone; of a name other than ``localhost`` that is not known: False."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parts_of_url(url: str, *schemes: str) -> urllib.parse.SplitResult | None:
    """Return the parts of a URL; None where it is of none of these schemes, has no host, or is no URL at all."""
    try:
        parts = urllib.parse.urlsplit(url)
        known = parts.scheme in schemes and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:  # of a port out of range, or of half a bracket
        return None
    return parts if known and not any(ord(character) <= 32 for character in url) else None
