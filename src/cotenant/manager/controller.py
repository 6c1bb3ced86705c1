"""What the manager is made of: controllers, which run on the leader, and servers, which run on every replica.

Each is a class that is constructed without arguments, listed in one line of ``program.py``. Controllers are constructed
anew for each term of leadership, with a new registry of metrics: what an earlier term knew of the cluster is not true
any more.
"""

import dataclasses
from typing import Literal, Protocol

import prometheus_client

from cotenant.kube.channel import Peer
from cotenant.kube.client import Client
from cotenant.manager.latency.table import Table
from cotenant.manager.observing import Observed
from cotenant.manager.slo.state import SloState
from cotenant.manager.webhook.settings import Settings as WebhookSettings
from cotenant.units.clock import Clock
from cotenant.units.errors import CotenantError

DEFAULT_NAMESPACE = "cotenant-system"
FIELD_MANAGER = "cotenant-manager"

NodeMetricWhen = Literal["auto", "always", "never"]
OvercommitWhen = Literal["auto", "always", "never"]


class BadPlace(CotenantError):
    """A text that does not say where an object is."""


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a namespaced object is."""

    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str, option: str) -> "Place":
        """Return the place that an option names.

        :raises BadPlace: if it is not ``NAMESPACE/NAME``.
        """
        parts = text.split("/")
        if len(parts) != 2 or not all(parts):
            raise BadPlace(f"{option} {text}: give NAMESPACE/NAME")
        return cls(*parts)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What an operator gives on the command line."""

    slo_config: Place = Place("koordinator-system", "slo-controller-config")
    """Koordinator's ConfigMap."""
    analyzer: Peer = dataclasses.field(default_factory=Peer)
    """Who tells what nodes use."""
    node_metric: NodeMetricWhen = "auto"
    """When nodes are asked for NodeMetrics: ``auto`` while somebody reads them."""
    overcommit: OvercommitWhen = "auto"
    """When nodes offer batch and mid resources by us: ``auto`` while no manager of Koordinator's lives."""
    webhook: WebhookSettings = dataclasses.field(default_factory=WebhookSettings)
    latency: bool = False
    """Read the latency of online services."""


class Readiness:
    """What ``/readyz`` waits for, by name, with the reason why it is not there yet."""

    def __init__(self) -> None:
        self.waiting: dict[str, str] = {}

    def wait_for(self, name: str, reason: str) -> None:
        """Answer 503 until :meth:`ready` is called with the same name."""
        self.waiting[name] = reason

    def ready(self, name: str) -> None:
        """Wait for this no longer."""
        self.waiting.pop(name, None)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What every part of the manager gets."""

    client: Client
    clock: Clock
    namespace: str
    """Where our own objects are: the lease, the ConfigMap ``cotenant``, Events about no object of their own."""
    settings: Settings = dataclasses.field(default_factory=Settings)
    metrics: prometheus_client.CollectorRegistry = dataclasses.field(
        default_factory=lambda: prometheus_client.CollectorRegistry()
    )
    """Register collectors here: a controller's live as long as its term, a server's as long as the process."""
    observed: Observed = dataclasses.field(default_factory=Observed)
    """Name informers and reconcilers here: their metrics are made for you."""
    readiness: Readiness = dataclasses.field(default_factory=Readiness)
    slo: SloState = dataclasses.field(default_factory=SloState)
    """The strategies of nodes; a term begins with none known."""
    latencies: Table = dataclasses.field(default_factory=Table)
    """The latency of online services; a term begins with none known, and without ``--latency`` it stays so."""


class Controller(Protocol):
    """One part of the manager."""

    @property
    def name(self) -> str:
        """What logs and metrics call it."""
        ...

    async def run(self, context: Context) -> None:
        """Work until cancelled.

        Whatever the API server refuses is retried with a back-off, counted and logged; only what is fatal to the whole
        process is raised.
        """
        ...
