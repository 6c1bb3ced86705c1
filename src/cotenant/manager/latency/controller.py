"""Reads the latency of online services while this replica leads; only where an operator asks for it (``--latency``).

Pages are read by a few threads, each with a deadline: neither the webhook nor another controller waits for one.
"""

import asyncio
import concurrent.futures
import contextlib
import logging
from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec
from prometheus_client import core, registry

from cotenant.api.exposition import Selector
from cotenant.api.objects import ObjectMeta
from cotenant.kube import errors, informer
from cotenant.kube.client import CONFIG_MAPS, PODS, SERVICES
from cotenant.latency import configuration
from cotenant.latency.errors import BadSource, Unreadable
from cotenant.latency.watching import ScrapeReading, reading_of
from cotenant.manager.controller import Context
from cotenant.manager.latency import targets
from cotenant.manager.latency.table import Source, Table
from cotenant.units.malformed import MALFORMED
from cotenant.web.metrics import latency_metrics

_log = logging.getLogger(__name__)

CONFIG_NAME = "cotenant"
CONFIG_KEY = "latency.yaml"
ROUND_SECONDS = 15.0
LIST_SECONDS = 30.0
"""How often the pods of annotated Services are listed, unless a Service changes meanwhile."""
LEAST_LIST_SECONDS = 1.0
THREADS = 8
TARGETS_LIMIT = 500
"""Pages read in one round: eight threads and four seconds each make it in time while most answer at once."""


class _ConfigMap(msgspec.Struct):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}


Object = TypeVar("Object", targets.PodObject, targets.ServiceObject)


class _Annotated(Generic[Object]):
    """Keeps the objects of a kind that carry the annotation; the others are let go at once."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.changed = asyncio.Event()

    def replaced(self, objects: dict[str, Object]) -> None:
        self.objects = {key: value for key, value in objects.items() if value.annotated}
        self.changed.set()

    def put(self, key: str, value: Object) -> None:
        if value.annotated:
            self.objects[key] = value
            self.changed.set()
        else:
            self.removed(key)

    def removed(self, key: str) -> None:
        if self.objects.pop(key, None) is not None:
            self.changed.set()


class Latency:
    """The controller."""

    name = "latency"

    def __init__(self, pause_seconds: float = ROUND_SECONDS) -> None:
        self._pause_seconds = pause_seconds
        self._pods: _Annotated[targets.PodObject] = _Annotated()
        self._services: _Annotated[targets.ServiceObject] = _Annotated()
        self._of_services: dict[str, targets.Target] = {}

    async def run(self, context: Context) -> None:
        """Work until cancelled; at once nothing where it is not asked for."""
        if not context.settings.latency:
            return
        table = context.latencies
        table.start(context.clock)
        context.metrics.register(LatencyCollector(table))
        key = f"{context.namespace}/{CONFIG_NAME}"
        taking: informer.One[_ConfigMap] = informer.One(key, lambda found: self._configure(table, found))
        chosen = f"metadata.name={CONFIG_NAME}"
        client = context.client
        following = (
            informer.Informer(client, PODS, targets.PodObject, self._pods).run(),
            informer.Informer(client, SERVICES, targets.ServiceObject, self._services).run(),
            informer.Informer(
                client, CONFIG_MAPS, _ConfigMap, taking, namespace=context.namespace, fields=chosen
            ).run(),
        )
        pool = concurrent.futures.ThreadPoolExecutor(THREADS, "latency")
        try:
            async with asyncio.TaskGroup() as tasks:
                for one in following:
                    tasks.create_task(one)
                tasks.create_task(self._listing(context))
                while True:
                    await self.round(context, pool)
                    await asyncio.sleep(self._pause_seconds)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # a page that hangs does not hold up the end

    def _configure(self, table: Table, found: _ConfigMap | None) -> None:
        """Take the entries of the ConfigMap; one that cannot be read keeps the last ones."""
        place = f"configmap {CONFIG_NAME}, {CONFIG_KEY}"
        table.problems.pop(place, None)
        text = None if found is None else found.data.get(CONFIG_KEY)
        try:
            services = () if text is None else configuration.parse(text, place, targets.SERVICES_LIMIT)
            if any(service.log is not None for service in services):
                raise BadSource(f"{place}: an access log is read on one host only: cotenant up --latency-log")
        except BadSource as error:
            table.problems[place] = str(error)
            _log.warning("%s; the last entries stay", error)
            return
        table.queries = {service.name: Source(reading_of(service)[1]) for service in services}

    async def _listing(self, context: Context) -> None:
        while True:
            self._services.changed.clear()
            await self.list_pods(context)
            await asyncio.sleep(LEAST_LIST_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LIST_SECONDS - LEAST_LIST_SECONDS):
                    await self._services.changed.wait()

    async def list_pods(self, context: Context) -> None:
        """List the pods of annotated Services; where that fails, the last ones stay."""
        found: dict[str, targets.Target] = {}
        problems = context.latencies.problems
        for key, service in sorted(self._services.objects.items())[: targets.SERVICES_LIMIT]:
            problems.pop(f"service {key}", None)
            if not service.selector:
                problems[f"service {key}"] = "it selects no pods"
                continue
            try:
                page = await context.client.page(
                    PODS,
                    namespace=service.metadata.namespace,
                    limit=500,
                    labelSelector=service.selector,
                    resourceVersion="0",
                )
                pods = [msgspec.json.decode(item, type=targets.PodObject) for item in page.items]
            except (errors.KubeError, *MALFORMED) as error:
                _log.info("pods of service %s: %s", key, error)
                found |= {uid: one for uid, one in self._of_services.items() if one.service == key}
                continue
            for pod in pods:
                self._add(found, f"service {key}", targets.of_service(service, pod), problems)
        self._of_services = found

    def _add(
        self,
        found: dict[str, targets.Target],
        place: str,
        target: targets.Target | str | None,
        problems: dict[str, str],
    ) -> None:
        if isinstance(target, str):
            problems[place] = target
        elif target is not None:
            found[target.uid] = target

    async def round(self, context: Context, pool: concurrent.futures.Executor) -> None:
        """Read every source once, as many at a time as there are threads."""
        table, found = context.latencies, dict(self._of_services)
        for key in [place for place in table.problems if place.startswith("pod ")]:
            del table.problems[key]
        for key, pod in self._pods.objects.items():
            self._add(found, f"pod {key}", targets.of_pod(pod), table.problems)
        chosen = targets.choose(found.values())[:TARGETS_LIMIT]
        table.pods = {
            target: table.pods.get(target) or Source(_reading(target.url, target.metric)) for target in chosen
        }
        loop = asyncio.get_running_loop()
        sources = [*table.pods.values(), *table.queries.values()]
        await asyncio.gather(
            *(loop.run_in_executor(pool, read_once, source, context.clock.monotonic()) for source in sources)
        )
        wall = context.clock.wall()
        for source in sources:
            if not source.error:
                source.seen_wall = wall


def _reading(url: str, metric: Selector) -> ScrapeReading:
    return ScrapeReading(url, metric, period_seconds=ROUND_SECONDS)


def read_once(source: Source, now: float) -> None:
    """Read a source; what goes wrong is noted there."""
    try:
        source.reading.read(now)
    except Unreadable as error:
        source.error = str(error)
    except Exception as error:  # noqa: BLE001 - in a thread of the pool: a defect is told like a source that fails
        _log.exception("a source of latency")
        source.error = f"{type(error).__name__}: {error}"
    else:
        source.error = ""


class LatencyCollector(registry.Collector):
    """The services' latency, and what cannot be used. Series are bounded by the number of services."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def collect(self) -> Iterator[core.Metric]:
        yield from latency_metrics(self._table.services())
        sources = [*self._table.pods.values(), *self._table.queries.values()]
        read = core.GaugeMetricFamily(
            "cotenant_manager_latency_sources", "Pages and queries that are read.", labels=["state"]
        )
        failing = sum(bool(source.error) for source in sources)
        read.add_metric(["read"], len(sources) - failing)
        read.add_metric(["failing"], failing)
        yield read
        text = "Annotations and entries about latency that cannot be used."
        yield core.GaugeMetricFamily("cotenant_manager_latency_problems", text, value=len(self._table.problems))
