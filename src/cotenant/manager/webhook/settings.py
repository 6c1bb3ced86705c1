"""How the webhook runs, as an operator sets it on the command line."""

import dataclasses
import pathlib
import urllib.parse

from cotenant.manager.webhook.affinity import Strength
from cotenant.units import address as addresses
from cotenant.units.errors import CotenantError

DAY_SECONDS = 86_400.0
LOOK_SECONDS = 10.0
"""How often the certificates are looked at, at most."""
LOOKS_A_LIFE = 10


class BadSettings(CotenantError):
    """Options that do not go together."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the webhook is told."""

    listen: str = ""
    """``HOST:PORT``; without it there is no webhook."""
    url: str = ""
    """Where the API server finds it; without it by the Service."""
    service: str = "cotenant-manager-webhook"
    """The Service in front of the replicas, in the manager's namespace."""
    register: bool = False
    """Whether the leader writes the webhook configurations; else it only fills in the certificate authority."""
    configuration: str = "cotenant-webhook"
    """The name of both webhook configurations."""
    secret: str = "cotenant-webhook-tls"
    """Where the certificates are, in the manager's namespace."""
    certificate_seconds: float = 30 * DAY_SECONDS
    """How long a serving certificate holds; it is replaced after two thirds of that."""
    templates: pathlib.Path | None = None
    """Strategy templates over the bundled ones."""
    affinity: Strength = "soft"
    """How strongly managed pods keep away from nodes with a verdict."""


def look_seconds(settings: Settings) -> float:
    """Return how often the certificates are looked at: many times in the life of one."""
    return min(LOOK_SECONDS, settings.certificate_seconds / LOOKS_A_LIFE)


def address(settings: Settings) -> str:
    """Return the URL by which the API server reaches the webhook, or an empty text where it goes by the Service.

    :raises BadSettings: if it is not ``https``.
    :raises BadAddress: if the address to listen on is not ``HOST:PORT``.
    """
    if settings.url:
        parts = addresses.parts_of_url(settings.url, "https")
        if parts is None or parts.query or parts.fragment:
            raise BadSettings(f"--webhook-url {settings.url}: give https://HOST:PORT, as the API server reaches it")
        return settings.url.rstrip("/")
    if not settings.listen:
        return ""
    host, _ = addresses.split(settings.listen, "--webhook-listen")
    return f"https://{settings.listen}" if addresses.is_loopback(host) else ""


def names(settings: Settings, namespace: str) -> tuple[str, ...]:
    """Return the names and addresses that the serving certificate is for."""
    service = f"{settings.service}.{namespace}.svc"
    host = urllib.parse.urlsplit(address(settings)).hostname
    return (service, f"{service}.cluster.local", *((host,) if host else ()))
