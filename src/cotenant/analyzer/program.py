"""The analyzer's process: with a cluster it stands for leader, follows rules and nodes and writes reports; without one
it writes them to a file."""

import asyncio
import dataclasses
import logging
import os
import pathlib
import socket
from collections.abc import Callable

import grpc
import prometheus_client

from cotenant.analyzer import authentication, certificate, page, receiving, services
from cotenant.analyzer.errors import BadListen, BadReportsFile
from cotenant.analyzer.files import FileSink
from cotenant.analyzer.fleet import Fleet
from cotenant.analyzer.following import Following, published
from cotenant.analyzer.metrics import AnalyzerCollector
from cotenant.analyzer.rulebook import Rulebook
from cotenant.analyzer.writing import TICK_SECONDS, ClusterSink, Writer
from cotenant.detect import templates
from cotenant.detect.rules import Rules
from cotenant.kube import ending, errors, mounted
from cotenant.kube.client import Client
from cotenant.kube.configuration import load_configuration
from cotenant.kube.elector import Elector
from cotenant.latency import fetching
from cotenant.units import address
from cotenant.units.clock import Clock, SystemClock
from cotenant.web import serving
from cotenant.web.guard import AllowedHosts

_log = logging.getLogger(__name__)

LEASE = "cotenant-analyzer"
PAUSE_SECONDS = 2.0
UNSURE_SECONDS = 30.0
"""How long after its last renewal a leader goes on to take samples while nobody can say who leads: an API server that
stalls for some seconds is no reason for all nodes to connect anew. Nodes are unknown after a minute without samples."""

Started = Callable[[str, str | None], None]
"""Gets where nodes connect, and the page's URL."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the analyzer runs."""

    listen: str = "127.0.0.1:7443"
    advertise: str = ""
    """Where nodes reach this replica; the address listened on by default."""
    tls_certificate: pathlib.Path | None = None
    tls_key: pathlib.Path | None = None
    instructions: receiving.Instructions = dataclasses.field(default_factory=receiving.Instructions)
    rules: Rules | None = None
    reports_out: pathlib.Path | None = None
    kubeconfig: pathlib.Path | None = None
    namespace: str | None = None
    page: str = ""
    """Where the fleet page and ``/metrics`` are; nowhere by default."""
    latency: str = ""
    """Where the manager tells the latency of online services, for the page; nowhere by default."""
    page_names: tuple[str, ...] = ()
    """Names by which the page may be asked for, besides loopback and the address listened on."""
    templates: pathlib.Path | None = None
    """Strategy templates over the bundled ones."""
    node_accounts: tuple[str, ...] = ()
    """ServiceAccounts that may send samples; the account ``cotenant-node`` of the lease's namespace by default."""
    reader_accounts: tuple[str, ...] = ()
    """ServiceAccounts that may read what nodes use; ``cotenant-manager`` of the same namespace by default."""
    token_audience: str | None = None
    """For whom nodes' tokens are to be; the API server by default. One of our own is of no use to anybody else."""


def credentials_of(settings: Settings) -> grpc.ServerCredentials | None:
    """Return the server's TLS, or None for plaintext on loopback.

    :raises BadAddress: if it is not ``HOST:PORT``.
    :raises BadListen: if the address is not loopback and there is no certificate, or only half of one.
    """
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        missing = "--tls-key" if settings.tls_key is None else "--tls-certificate"
        raise BadListen(f"a certificate and its key go together: give {missing} too")
    if settings.tls_certificate is not None and settings.tls_key is not None:
        return certificate.ServerCertificate(settings.tls_certificate, settings.tls_key).credentials()
    if not address.is_loopback(address.split(settings.listen)[0]):
        raise BadListen(f"--listen {settings.listen}: plaintext only on loopback; give --tls-certificate, --tls-key")
    return None


async def run(settings: Settings, started: Started, clock: Clock | None = None) -> None:
    """Analyze until told to end; ``started`` gets the address once nodes can connect."""
    clock = clock or SystemClock()
    credentials = credentials_of(settings)
    kept = mounted.optional(settings.templates, templates.over_bundled)
    fleet = Fleet(Rulebook(settings.rules, kept.value if kept is not None else None), clock)
    into = _into_cluster if settings.reports_out is None else _into_file

    async def work() -> None:
        following = asyncio.create_task(kept.follow(fleet.rulebook.take_templates)) if kept is not None else None
        try:
            await into(settings, fleet, clock, credentials, started)
        finally:
            if following is not None:
                following.cancel()

    await ending.until_told(work())


async def _into_file(
    settings: Settings,
    fleet: Fleet,
    clock: Clock,
    credentials: grpc.ServerCredentials | None,
    started: Started,
) -> None:
    assert settings.reports_out is not None
    sink = FileSink(settings.reports_out)
    try:
        sink.flush()
    except OSError as error:
        raise BadReportsFile(
            f"--reports-out {settings.reports_out}: {error.strerror}; give a file that can be written"
        ) from None
    writer = Writer(fleet, sink, clock)
    receiver = receiving.Receiver(fleet, settings.instructions)
    paging = _Paging(settings, fleet, clock, receiver, writer)

    async def write() -> None:
        while True:
            await writer.write_due()
            await asyncio.to_thread(sink.flush)
            await asyncio.sleep(TICK_SECONDS)

    async with receiving.serving(receiver, settings.listen, credentials) as port:
        started(_at(settings.listen, port), paging.url)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(write())
            tasks.create_task(paging.run())


async def _into_cluster(
    settings: Settings,
    fleet: Fleet,
    clock: Clock,
    credentials: grpc.ServerCredentials | None,
    started: Started,
) -> None:
    async with Client(load_configuration(settings.kubeconfig), "cotenant-analyzer") as client:
        elector: Elector

        def serves() -> bool:
            return elector.held_within(UNSURE_SECONDS)

        def leader() -> str:
            return "" if elector.leader in (None, elector.identity) else elector.leader.rpartition("_")[2]

        identify = identify_reader = None
        if credentials is not None:
            own = f"system:serviceaccount:{settings.namespace or client.namespace}"
            nodes = settings.node_accounts or (f"{own}:cotenant-node",)
            readers = settings.reader_accounts or (f"{own}:cotenant-manager",)
            identify = authentication.Reviewer(client, nodes, clock, settings.token_audience).identify
            identify_reader = authentication.Reviewer(client, readers, clock, settings.token_audience).identify
        receiver = receiving.Receiver(fleet, settings.instructions, serves, leader, identify, identify_reader)
        async with receiving.serving(receiver, settings.listen, credentials) as port:
            advertised = settings.advertise or _at(settings.listen, port)
            # The lease's identity ends in the address, so that nodes find the leader without configuration.
            identity = f"{socket.gethostname()}-{os.getpid()}_{advertised}"
            elector = Elector(client, LEASE, identity, clock, namespace=settings.namespace)
            writer = Writer(fleet, ClusterSink(client), clock)
            following = Following(
                client, fleet, clock, lambda: elector.leading and fleet.taken_over, settings.namespace
            )
            paging = _Paging(settings, fleet, clock, receiver, writer, serves, leader, following)
            started(advertised, paging.url)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(following.run())
                tasks.create_task(elector.stand(lambda: _lead(client, fleet, writer)))
                tasks.create_task(paging.run())


def _at(listen: str, port: int) -> str:
    """Return an address with the port that it got, which 0 leaves to the system."""
    return address.join(address.split(listen)[0], port)


class _Paging:
    """The page and ``/metrics``, where they are asked for."""

    def __init__(
        self,
        settings: Settings,
        fleet: Fleet,
        clock: Clock,
        receiver: receiving.Receiver,
        writer: Writer,
        leads: Callable[[], bool] = lambda: True,
        leader: Callable[[], str] = lambda: "",
        following: Following | None = None,
    ) -> None:
        self.url: str | None = None
        self._site: page.FleetSite | None = None
        if not settings.page:
            return
        if settings.latency:
            fetching.check_url(settings.latency)
        self._listening = serving.bind(settings.page, "--page")
        host = self._listening.getsockname()[0]
        self.url = f"{serving.url_of(self._listening)}/"
        metrics = prometheus_client.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=metrics)
        metrics.register(AnalyzerCollector(fleet, receiver, writer, leads, following))
        hosts = AllowedHosts(host, frozenset(name.lower() for name in settings.page_names))
        told = services.Services(settings.latency, clock) if settings.latency else None
        self._site = page.FleetSite(fleet, clock, hosts, metrics, leads, leader, told)

    async def run(self) -> None:
        """Serve until cancelled."""
        if self._site is not None:
            with self._listening:
                await page.serve(self._site, self._listening)


async def _lead(client: Client, fleet: Fleet, writer: Writer) -> None:
    """Write, once it is known what an earlier leader published."""
    while True:
        try:
            earlier = await published(client)
            break
        except errors.KubeError as error:
            _log.warning("reports of an earlier leader: %s", error)
            await asyncio.sleep(PAUSE_SECONDS)
    in_force = [book.engine.in_force for book in fleet.rulebook.books.values()]
    fleet.take_over(earlier, max(rules.window_seconds + rules.hysteresis.min_hold_seconds for rules in in_force))
    try:
        await writer.run()
    finally:
        fleet.taken_over = False
