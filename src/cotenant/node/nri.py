"""A plugin of the Node Resource Interface: what a container is to have is set before it starts, not a second later.

It fails open: whatever goes wrong here, the runtime gets an empty answer in time and the container starts; the
reconciler sets the rest. There is one connection at a time, under one name, and the old one is closed before a new one
is opened: a runtime that saw the same plugin twice would refuse containers (both "set" the same CPU list).
"""

import asyncio
import contextlib
import dataclasses
import logging
import pathlib
from collections.abc import Callable

from google.protobuf import message

from cotenant.api.v1 import nri_pb2
from cotenant.kube.backoff import Backoff
from cotenant.node import ttrpc

_log = logging.getLogger(__name__)

NAME, INDEX = "cotenant", "50"
RUNTIME = "nri.pkg.api.v1alpha1.Runtime"
RUN_POD_SANDBOX, CREATE_CONTAINER, UPDATE_CONTAINER = 1, 4, 8
EVENTS = 1 << (RUN_POD_SANDBOX - 1) | 1 << (CREATE_CONTAINER - 1) | 1 << (UPDATE_CONTAINER - 1)
CALL_SECONDS = 5.0
ANSWER_SECONDS = 1.0
"""The runtime waits two seconds by default; it gets an empty answer well before that."""


@dataclasses.dataclass(frozen=True, slots=True)
class StartedPod:
    """A pod as the runtime describes it. ``cgroup_parent`` is its group: a path, or a systemd slice's name."""

    namespace: str
    name: str
    uid: str
    labels: dict[str, str]
    annotations: dict[str, str]
    cgroup_parent: str


@dataclasses.dataclass(frozen=True, slots=True)
class Adjustment:
    """What a container is to have. None: as it is."""

    shares: int | None = None
    quota_usec: int | None = None
    cpus: str | None = None
    memory_limit_bytes: int | None = None


class Plugin:
    """``started`` hears of a pod before its containers; ``adjust`` says what one of them is to have; ``resizing`` hears
    of a running container's new quota, by its id, before the runtime sets it.

    All run in threads: they read the kernel's files.
    """

    def __init__(
        self,
        socket: pathlib.Path,
        started: Callable[[StartedPod], None],
        adjust: Callable[[StartedPod, str], Adjustment | None],
        resizing: Callable[[str, int], None],
        backoff: Backoff | None = None,
    ) -> None:
        self._socket = socket
        self._started = started
        self._adjust = adjust
        self._resizing = resizing
        self._backoff = backoff or Backoff(0.5, 30.0)
        self.connected = False
        self.connections = 0
        self.pods = 0
        self.adjusted = 0
        self.failures = 0
        self.last_error = ""

    async def run(self) -> None:
        """Be the runtime's plugin until cancelled, connecting anew whenever the runtime comes back."""
        while True:
            try:
                await self._connect()
            except (OSError, ttrpc.ConnectionLost, TimeoutError) as error:
                self.last_error = str(error) or type(error).__name__
                _log.info("NRI at %s: %s; the reconciler does its work meanwhile", self._socket, self.last_error)
            finally:
                self.connected = False
            await asyncio.sleep(self._backoff.next_seconds())

    async def _connect(self) -> None:
        reader, writer = await asyncio.open_unix_connection(str(self._socket))
        lost = ""
        try:
            connection = ttrpc.Multiplexed(reader, writer, self._serve)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(connection.run())
                request = nri_pb2.RegisterPluginRequest(plugin_name=NAME, plugin_idx=INDEX)
                await connection.call(RUNTIME, "RegisterPlugin", request, CALL_SECONDS)
                self.connected = True
                self.connections += 1
                self.last_error = ""
                self._backoff.reset()
        except* (ttrpc.ConnectionLost, TimeoutError, OSError) as group:
            lost = _first(group)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        raise ttrpc.ConnectionLost(lost)

    async def _serve(self, method: str, payload: bytes) -> message.Message | None:
        if method == "Configure":
            return nri_pb2.ConfigureResponse(events=EVENTS)
        if method == "Synchronize":
            # The pods that run already are the reconciler's; a list in parts is taken part by part.
            return nri_pb2.SynchronizeResponse(more=nri_pb2.SynchronizeRequest.FromString(payload).more)
        if method == "RunPodSandbox":
            pod = _pod(nri_pb2.RunPodSandboxRequest.FromString(payload).pod)
            self.pods += 1
            await self._in_time(lambda: self._started(pod))
            return nri_pb2.TtrpcStatus()  # an empty message
        if method == "CreateContainer":
            request = nri_pb2.CreateContainerRequest.FromString(payload)
            return await self._create(_pod(request.pod), request.container.name)
        if method == "UpdateContainer":
            update = nri_pb2.UpdateContainerRequest.FromString(payload)
            quota_usec = update.linux_resources.cpu.quota.value
            if quota_usec > 0:
                await self._in_time(lambda: self._resizing(update.container.id, quota_usec))
            return nri_pb2.UpdateContainerResponse()
        return nri_pb2.TtrpcStatus() if method in ("Shutdown", "StateChange") else None

    async def _create(self, pod: StartedPod, container: str) -> message.Message:
        found: list[Adjustment | None] = []
        await self._in_time(lambda: found.append(self._adjust(pod, container)))
        wanted = found[0] if found else None
        if wanted is None:
            return nri_pb2.CreateContainerResponse()
        self.adjusted += 1
        return nri_pb2.CreateContainerResponse(adjust=_encode(wanted))

    async def _in_time(self, work: Callable[[], None]) -> None:
        """Do the work in a thread; what fails or takes too long is counted, and the container starts all the same."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await asyncio.to_thread(work)
        except Exception as error:  # noqa: BLE001 - the outermost place: a container must start whatever fails here
            self.failures += 1
            self.last_error = str(error) or type(error).__name__
            _log.warning("NRI request: %s; left to the reconciler", self.last_error)


def _first(group: BaseExceptionGroup[BaseException]) -> str:
    """Return the text of the first error in a group, however deep."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__


def _pod(wire: nri_pb2.PodSandbox) -> StartedPod:
    return StartedPod(
        wire.namespace, wire.name, wire.uid, dict(wire.labels), dict(wire.annotations), wire.linux.cgroup_parent
    )


def _encode(wanted: Adjustment) -> nri_pb2.ContainerAdjustment:
    adjustment = nri_pb2.ContainerAdjustment()
    resources = adjustment.linux.resources
    if wanted.shares is not None:
        resources.cpu.shares.value = wanted.shares
    if wanted.quota_usec is not None:
        resources.cpu.quota.value = wanted.quota_usec
    if wanted.cpus is not None:
        resources.cpu.cpus = wanted.cpus
    if wanted.memory_limit_bytes is not None:
        resources.memory.limit.value = wanted.memory_limit_bytes
    return adjustment
