"""This node's NodeMetric, written while there is one: each interval a little early, and again at once when it failed.

The interval is drawn anew each time, so that nodes that started together do not write together. Only the newest state
is ever written; while the API server is away nothing piles up.
"""

import asyncio
import logging
import pathlib
import random
from collections.abc import Callable

import msgspec

from cotenant.api.koordinator import node_metric as api
from cotenant.api.objects import ObjectMeta
from cotenant.kernel import numa, paths
from cotenant.kube import errors
from cotenant.kube.backoff import OPTIONAL_KIND_SECONDS, Backoff
from cotenant.kube.client import NODE_METRICS, Client
from cotenant.kube.informer import Informer
from cotenant.model.node import Node, Use
from cotenant.model.sample import Sample
from cotenant.node import node_metric, prediction
from cotenant.node.metering import Meter
from cotenant.node.node_metric import Request, Subject
from cotenant.node.policy import Policy
from cotenant.node.prediction import Predictor
from cotenant.node.presence import Presence
from cotenant.units.clock import Clock

_log = logging.getLogger(__name__)

FIELD_MANAGER = "cotenant-node"
FIRST_SECONDS = (15.0, 30.0)
"""After the start: long enough for a mean, and short enough for the last report of the process before to be in date."""
JITTER = 0.1
SAVE_SECONDS = 600.0
"""Between two checkpoints of the predictions; one more is made at the end."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A NodeMetric without its status, which is ours and large."""

    metadata: ObjectMeta = ObjectMeta()
    spec: api.NodeMetricSpec = api.NodeMetricSpec()


class Reporter:
    """Measures while a NodeMetric of this node exists, and writes its status.

    ``present`` says who is here now, ``yields`` that another agent writes the object: then it is only measured.
    """

    def __init__(
        self,
        root: paths.Root,
        client: Client,
        name: str,
        present: Callable[[], Presence],
        policy: Policy,
        yields: Callable[[], bool],
        clock: Clock,
        state: pathlib.Path,
        backoff: Backoff | None = None,
    ) -> None:
        self._client = client
        self._name = name
        self._present = present
        self._policy = policy
        self._yields = yields
        self._clock = clock
        self._state = state
        self._backoff = backoff or Backoff(1.0, 20.0)
        self._numa = numa.NumaReader(root)
        self._asked: Asked | None = None
        self._due = 0.0
        self._saved_at = clock.monotonic()
        self.request = Request()
        self.meter: Meter | None = None
        self.predictor = Predictor(clock.wall())
        self.notice = prediction.load(state, self.predictor, clock.wall())
        if self.notice:
            _log.warning("%s", self.notice)
        self.writes = 0
        self.failures = 0
        self.written_at: float | None = None
        self.last_error = ""

    def informer(self) -> Informer[Asked]:
        """Return the informer of the one object."""
        absent = Backoff(*OPTIONAL_KIND_SECONDS)
        return Informer(self._client, NODE_METRICS, Asked, self, absent=absent, fields=f"metadata.name={self._name}")

    # --- the informer's receiver ------------------------------------------------------------------------------------

    def replaced(self, objects: dict[str, Asked]) -> None:
        self._take(objects.get(self._name))

    def put(self, key: str, value: Asked) -> None:
        if key == self._name:
            self._take(value)

    def removed(self, key: str) -> None:
        if key == self._name:
            self._take(None)

    def _take(self, asked: Asked | None) -> None:
        before, self._asked = self._asked, asked
        if asked is None:
            self.meter = None
            return
        request = node_metric.request_of(asked.spec)
        if self.meter is not None and request == self.request and before is not None:
            return
        if request.notices != self.request.notices:
            for notice in request.notices:
                _log.warning("nodemetric/%s: %s", self._name, notice)
        if self.meter is None:
            self._due = self._clock.monotonic() + random.uniform(*FIRST_SECONDS)
        if self.meter is None or request.collection != self.request.collection:
            self.meter = Meter(request.collection)
        self.request = request

    # --- the sampler's listener -------------------------------------------------------------------------------------

    def take(self, sample: Sample) -> None:
        """Take one sample in; does nothing while nobody asks for figures."""
        meter = self.meter
        if meter is None:
            return
        present = self._present()
        used = meter.take(self._clock.monotonic(), sample, present)
        self.predictor.take(used, present.pods, self._clock.wall())

    # --- the loop ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write until cancelled; then keep what the predictions rest on."""
        try:
            while True:
                if self.meter is not None and self.meter.wants_numa(self._clock.monotonic()):
                    await asyncio.to_thread(self.look)
                await asyncio.sleep(1.0)
                await self.step()
        finally:
            self._save()

    def look(self) -> None:
        """Look at the NUMA nodes when it is time to."""
        meter, now = self.meter, self._clock.monotonic()
        if meter is not None and meter.wants_numa(now):
            meter.take_numa(now, self._numa.read(self._present().topology))

    def _subject(self) -> Subject:
        slo, here = self._policy.slo, self._policy.node(Node(capacity_millicores=None, capacity_memory_bytes=None))
        allocatable = Use(cpu_millicores=here.allocatable_millicores, memory_bytes=here.allocatable_memory_bytes)
        applications = slo.host_applications if slo is not None else ()
        return Subject(
            pods=self._present().pods,
            applications=applications,
            allocatable=allocatable,
            cpu_normalization_ratio=here.cpu_normalization_ratio,
        )

    async def step(self) -> None:
        """Write if it is time to, and keep a checkpoint if it is time for that."""
        now = self._clock.monotonic()
        if now - self._saved_at >= SAVE_SECONDS:
            self._saved_at = now
            await asyncio.to_thread(self._save)
        if self.meter is None or self._asked is None or now < self._due or self._yields():
            return
        status = node_metric.status_of(self.meter, self.predictor, self._subject(), now, self._clock.wall())
        if status is None:
            return
        try:
            await self._write(status)
        except errors.KubeError as error:
            self.failures += 1
            self.last_error = str(error)
            wait = getattr(error, "retry_after_seconds", None)
            self._due = now + self._backoff.next_seconds(wait)
            _log.info("nodemetric/%s: %s", self._name, error)
            return
        self._backoff.reset()
        self.writes += 1
        self.written_at = now
        self.last_error = ""
        self._due = now + self.request.report_s * random.uniform(1 - JITTER, 1.0)

    async def _write(self, status: api.NodeMetricStatus) -> None:
        asked = self._asked
        if asked is None:
            return
        try:
            await self._put(asked.metadata, status)
        except errors.Conflict:
            newest = await self._client.get(NODE_METRICS, self._name, Asked)
            await self._put(newest.metadata, status)
        except errors.NotFound:
            self._take(None)  # the watch will say so too

    async def _put(self, metadata: ObjectMeta, status: api.NodeMetricStatus) -> None:
        named = {"name": self._name, "uid": metadata.uid, "resourceVersion": metadata.resource_version}
        body = {"apiVersion": api.API_VERSION, "kind": api.KIND, "metadata": named, "status": status}
        written = await self._client.replace(
            NODE_METRICS, self._name, body, Asked, subresource="status", field_manager=FIELD_MANAGER
        )
        self._asked = written

    def _save(self) -> None:
        if not self.predictor.pods and not self.predictor.prod.cpu.total:
            return
        try:
            prediction.save(self._state, prediction.dump(self.predictor))
        except OSError as error:
            self.notice = f"{self._state}: {error.strerror}; predictions start anew with the next start"
            _log.warning("%s", self.notice)
