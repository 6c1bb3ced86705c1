"""``cotenant scheduler``: the answering process, and on a cluster the process that writes verdicts, both supervised."""

import dataclasses
import os
import pathlib
import socket
from collections.abc import Callable

import prometheus_client

from cotenant.kube.client import Client
from cotenant.kube.configuration import load_configuration
from cotenant.scheduler import marking, serving, verdicts
from cotenant.scheduler.cluster import ClusterSource
from cotenant.scheduler.rules import Rules
from cotenant.scheduler.server import MAX_BODY_BYTES, MAX_INFLIGHT_BYTES
from cotenant.scheduler.source import FileSource, Source
from cotenant.scheduler.supervision import Supervisor, Work, Worker
from cotenant.units.clock import SystemClock
from cotenant.web import exporter
from cotenant.web import serving as web_serving
from cotenant.web.body import BodyReader

WRITER_HUNG_SECONDS = 5.0
"""Nobody waits for the writer of verdicts; a plan for all nodes may take a while on a busy machine."""

PREDECESSOR_SECONDS = 3.0
"""How long the worker of a killed scheduler may hold the address: its next heartbeat tells it that it is alone."""

Started = Callable[[str, int], None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the scheduler's process runs. ``verdicts`` None: nothing is written on nodes."""

    rules: Rules = dataclasses.field(default_factory=Rules)
    reports: pathlib.Path | None = None
    objects: pathlib.Path | None = None
    kubeconfig: pathlib.Path | None = None
    analyzer_namespace: str | None = None
    max_body_bytes: int = MAX_BODY_BYTES
    verdicts: marking.Settings | None = None
    verdict_metrics: str = ""


def run(settings: Settings, listen: str, started: Started) -> int:
    """Answer until told to end, and return the exit status; ``started`` gets the URL and the number of reports, once.

    :raises CotenantError: if the settings cannot be used.
    """
    if settings.reports is not None:
        FileSource(settings.reports, settings.objects)  # what is wrong with the files is said before anything starts
    else:
        load_configuration(settings.kubeconfig)
    with web_serving.bind(listen, patience_seconds=PREDECESSOR_SECONDS) as listener:
        return Supervisor(_workers(settings, listener, started)).run()


def _workers(settings: Settings, listener: socket.socket, started: Started) -> list[Worker]:
    workers = [Worker("extender", _answering(settings, listener, started))]
    if settings.verdicts is not None and settings.reports is None:
        # The parent's pid: a writer that is started again holds the lease of the one before.
        identity = f"{socket.gethostname()}_{os.getpid()}"
        workers.append(Worker("verdict writer", _writing(settings, settings.verdicts, identity), WRITER_HUNG_SECONDS))
    return workers


def _answering(settings: Settings, listener: socket.socket, started: Started) -> Work:
    async def work(earlier: int) -> None:
        clock = SystemClock()

        async def answer(source: Source) -> None:
            def say(url: str) -> None:
                if not earlier:
                    started(url, len(source.table.rows))

            reader = BodyReader(settings.max_body_bytes, MAX_INFLIGHT_BYTES)
            await serving.serve(source, settings.rules, listener, clock, reader, say, earlier)

        if settings.reports is not None:
            # A process that did not start again would leave schedulers waiting at the socket, call after call.
            await answer(FileSource(settings.reports, settings.objects, restarted=bool(earlier)))
            return
        async with Client(load_configuration(settings.kubeconfig), "cotenant-scheduler") as client:
            await answer(ClusterSource(client, clock, settings.analyzer_namespace, follow_placements=True))

    return work


def _writing(settings: Settings, wanted: marking.Settings, identity: str) -> Work:
    async def work(earlier: int) -> None:
        clock, registry = SystemClock(), prometheus_client.CollectorRegistry()
        if settings.verdict_metrics:
            exporter.serve([registry], settings.verdict_metrics, "--verdict-metrics")
        async with Client(load_configuration(settings.kubeconfig), "cotenant-scheduler") as client:
            source = ClusterSource(client, clock, settings.analyzer_namespace)
            await verdicts.keep(client, source, wanted, clock, identity, registry)

    return work
