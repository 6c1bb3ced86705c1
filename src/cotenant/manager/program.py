"""``cotenant manager``: the parts put together, the lease, the page for probes, and the end."""

import asyncio
import dataclasses
import logging
import os
import pathlib
import secrets
import socket
from collections.abc import Callable, Sequence

import prometheus_client
from prometheus_client import core, registry

from cotenant.kube import ending
from cotenant.kube.client import Client
from cotenant.kube.configuration import load_configuration
from cotenant.kube.elector import Elector
from cotenant.manager import controller, server
from cotenant.manager.latency.controller import Latency
from cotenant.manager.latency.table import Table
from cotenant.manager.observing import Observed
from cotenant.manager.overcommit.controller import Overcommit
from cotenant.manager.rollout.controller import Rollouts
from cotenant.manager.slo.amplifying import AmplificationController
from cotenant.manager.slo.following import SloConfigFollower
from cotenant.manager.slo.node_metric import NodeMetricController
from cotenant.manager.slo.node_slo import NodeSloController
from cotenant.manager.slo.state import SloState
from cotenant.manager.webhook.registering import WebhookRegistrar
from cotenant.manager.webhook.server import WebhookServer
from cotenant.manager.webhook.unmutated import UnmutatedFinder
from cotenant.model.latency import ServiceLatency
from cotenant.units.clock import SystemClock
from cotenant.web import serving

_log = logging.getLogger(__name__)

LEASE = "cotenant-manager"
LOOK_SECONDS = 0.1

Make = Callable[[], controller.Controller]

CONTROLLERS: tuple[Make, ...] = (
    SloConfigFollower,
    NodeSloController,
    NodeMetricController,
    AmplificationController,
    Overcommit,
    Latency,
    Rollouts,
    WebhookRegistrar,
    UnmutatedFinder,
)
"""Run on the leader. One line each: the class."""
SERVERS: tuple[Make, ...] = (WebhookServer,)
"""Run on every replica. One line each: the class."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the process runs; what its parts do is in ``parts``."""

    listen: str = "127.0.0.1:8090"
    kubeconfig: pathlib.Path | None = None
    namespace: str = controller.DEFAULT_NAMESPACE
    parts: controller.Settings = dataclasses.field(default_factory=controller.Settings)


async def run(settings: Settings, started: Callable[[str], None]) -> None:
    """Manage until told to end; ``started`` gets the URL of ``/metrics`` and the probes.

    :raises CotenantError: if the address or the kubeconfig cannot be used.
    """
    clock = SystemClock()
    config = load_configuration(settings.kubeconfig)
    with serving.bind(settings.listen) as listener:
        async with Client(config, controller.FIELD_MANAGER) as client:
            context = controller.Context(
                client=client, clock=clock, namespace=settings.namespace, settings=settings.parts
            )
            prometheus_client.ProcessCollector(registry=context.metrics)
            manager = Manager(context, CONTROLLERS, SERVERS)
            started(serving.url_of(listener))

            async def work() -> None:
                async with asyncio.TaskGroup() as tasks:
                    answering = server.application(manager.metrics_text, context.readiness, manager.latencies)
                    tasks.create_task(serving.serve(answering, listener))
                    tasks.create_task(manager.run())

            await ending.until_told(work())


class Manager:
    """The parts: servers always run, controllers while the lease is ours."""

    def __init__(self, context: controller.Context, controllers: Sequence[Make], servers: Sequence[Make]) -> None:
        self._context = context
        self._controllers = controllers
        self._servers = servers
        self.elector = Elector(context.client, LEASE, _identity(), context.clock, namespace=context.namespace)
        self._term: controller.Context | None = None
        context.metrics.register(ManagerCollector(self.elector))

    async def run(self) -> None:
        """Work until cancelled; an error that a part raises ends all of them."""
        async with asyncio.TaskGroup() as tasks:
            for make in self._servers:
                one = make()
                tasks.create_task(one.run(self._context), name=one.name)
            tasks.create_task(self.elector.stand(self._lead), name="campaign")
            tasks.create_task(self._wait_for_lease(), name="readiness")

    def latencies(self) -> Sequence[ServiceLatency] | None:
        """Return the latency of online services, or None where another replica knows it."""
        return None if self._term is None else self._term.latencies.services()

    def metrics_text(self) -> bytes:
        """Return the metrics of the process and, while this replica leads, those of its controllers."""
        contexts = [self._context] if self._term is None else [self._context, self._term]
        return b"".join(prometheus_client.generate_latest(one.metrics) for one in contexts)

    async def _wait_for_lease(self) -> None:
        """Be ready once the lease was seen: later outages are the cluster's, and no reason to take servers away."""
        readiness = self._context.readiness
        readiness.wait_for("lease", "not seen yet")
        told: str | None = None
        while self.elector.leader is None:
            error = self.elector.last_error
            if error is not None and error != told:
                told = error
                _log.warning("lease %s/%s: %s", self._context.namespace, LEASE, error)
                readiness.wait_for("lease", error)
            await asyncio.sleep(LOOK_SECONDS)
        readiness.ready("lease")

    async def _lead(self) -> None:
        self._term = term = dataclasses.replace(
            self._context,
            metrics=prometheus_client.CollectorRegistry(),
            observed=Observed(),
            slo=SloState(),
            latencies=Table(),
        )
        term.metrics.register(term.observed)
        try:
            async with asyncio.TaskGroup() as tasks:
                for make in self._controllers:
                    one = make()
                    tasks.create_task(one.run(term), name=one.name)
                tasks.create_task(asyncio.Event().wait(), name="lease")  # leads even with nothing to do
        finally:
            self._term = None


class ManagerCollector(registry.Collector):
    """Who leads."""

    def __init__(self, elector: Elector) -> None:
        self._elector = elector

    def collect(self) -> list[core.Metric]:
        leading = float(self._elector.leading)
        return [core.GaugeMetricFamily("cotenant_manager_leading", "1 while this replica leads.", value=leading)]


def _identity() -> str:
    """Return a name that no other candidate has, a restarted one of this pod included."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
