"""This node's NodeResourceTopology, written when what it should say has changed, and at no other time."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from cotenant.api import unstructured
from cotenant.kernel import cpu_model, numa, paths
from cotenant.kube import errors
from cotenant.kube.backoff import OPTIONAL_KIND_SECONDS, Backoff
from cotenant.kube.client import TOPOLOGIES, Client
from cotenant.kube.informer import Informer
from cotenant.model.snapshot import Snapshot
from cotenant.node import resource_topology
from cotenant.node.cpus import Assignments
from cotenant.node.policy import Policy
from cotenant.units.clock import Clock

_log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""How soon a change is written; pods come and go in less, and the pools with them."""
FIELD_MANAGER = "cotenant-node"


class TopologyWriter:
    """Keeps the object true. ``seen`` gives the newest look; ``yields`` says that another agent writes it now."""

    def __init__(
        self,
        root: paths.Root,
        client: Client,
        name: str,
        seen: Callable[[], Snapshot | None],
        cpus: Assignments,
        policy: Policy,
        yields: Callable[[], bool],
        clock: Clock,
        backoff: Backoff | None = None,
    ) -> None:
        self._client = client
        self._name = name
        self._seen = seen
        self._cpus = cpus
        self._policy = policy
        self._yields = yields
        self._clock = clock
        self._backoff = backoff or Backoff(2.0, 300.0)
        self._root = root
        self._numa = numa.NumaReader(root)
        self._found: Mapping[str, Any] | None = None
        self._listed = False
        self._not_before = 0.0
        self.writes = 0
        self.failures = 0
        self.last_error = ""

    def informer(self) -> Informer[dict[str, Any]]:
        """Return the informer of the one object."""
        chosen, absent = f"metadata.name={self._name}", Backoff(*OPTIONAL_KIND_SECONDS)
        return Informer(self._client, TOPOLOGIES, dict[str, Any], self, absent=absent, fields=chosen)

    def replaced(self, objects: dict[str, dict[str, Any]]) -> None:
        self._listed = True
        self._found = objects.get(self._name)

    def put(self, key: str, value: dict[str, Any]) -> None:
        if key == self._name:
            self._found = value

    def removed(self, key: str) -> None:
        if key == self._name:
            self._found = None

    async def run(self) -> None:
        """Look every few seconds until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.step()

    async def step(self) -> None:
        """Write if there is something new to say; nothing is written before the object was looked for."""
        now = self._clock.monotonic()
        seen = self._seen()
        if seen is None or not self._listed or self._yields() or now < self._not_before:
            return
        states = await asyncio.to_thread(self._numa.read, seen.topology)
        model = await asyncio.to_thread(cpu_model.read, self._root, seen.topology)
        want = resource_topology.wanted(seen, self._cpus, states, self._policy.object, model)
        if want is None:
            return
        uid = unstructured.uid(self._policy.object)
        try:
            await self._write(resource_topology.merged(self._found, self._name, uid, want))
        except errors.Conflict as error:
            self.last_error = str(error)  # the watch brings what somebody else wrote; then again
        except errors.KubeError as error:
            self.failures += 1
            self.last_error = str(error)
            self._not_before = now + self._backoff.next_seconds(getattr(error, "retry_after_seconds", None))
            _log.info("noderesourcetopology/%s: %s", self._name, error)

    async def _write(self, body: dict[str, Any] | None) -> None:
        if body is None:
            return
        if self._found is None:
            self._found = await self._client.create(TOPOLOGIES, body, dict)
        else:
            self._found = await self._client.replace(TOPOLOGIES, self._name, body, dict, field_manager=FIELD_MANAGER)
        self._backoff.reset()
        self.writes += 1
        self.last_error = ""
