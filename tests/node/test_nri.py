"""The plugin against a runtime that is played by this test over a real socket."""

import asyncio
import contextlib
import pathlib
import struct
from collections.abc import AsyncIterator

import pytest
from google.protobuf import message

from cotenant.api.v1 import nri_pb2
from cotenant.kube.backoff import Backoff
from cotenant.node import nri

FRAME, HEADER = struct.Struct(">II"), struct.Struct(">IIBB")


class Runtime:
    """Answers the registration and makes calls, as containerd does."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._stream = 1
        self.registered = nri_pb2.RegisterPluginRequest()

    async def receive(self) -> tuple[int, int, bytes]:
        """Return connection, stream and payload of the next message, which may come in several frames."""
        data, connection = b"", 0
        while len(data) < HEADER.size or len(data) < HEADER.size + HEADER.unpack_from(data)[0]:
            connection, length = FRAME.unpack(await self._reader.readexactly(FRAME.size))
            data += await self._reader.readexactly(length)
        return connection, HEADER.unpack_from(data)[1], data[HEADER.size :]

    async def send(self, connection: int, stream: int, kind: int, value: message.Message, pieces: int = 1) -> None:
        body = value.SerializeToString()
        data = HEADER.pack(len(body), stream, kind, 0) + body
        size = -(-len(data) // pieces)
        for start in range(0, len(data), size):
            part = data[start : start + size]
            self._writer.write(FRAME.pack(connection, len(part)) + part)
        await self._writer.drain()

    async def register(self) -> None:
        connection, stream, payload = await self.receive()
        assert connection == 2
        request = nri_pb2.TtrpcRequest.FromString(payload)
        assert (request.service, request.method) == (nri.RUNTIME, "RegisterPlugin")
        self.registered = nri_pb2.RegisterPluginRequest.FromString(request.payload)
        await self.send(2, stream, 2, nri_pb2.TtrpcResponse())

    async def call(self, method: str, value: message.Message, pieces: int = 1) -> nri_pb2.TtrpcResponse:
        stream, self._stream = self._stream, self._stream + 2
        request = nri_pb2.TtrpcRequest(service="Plugin", method=method, payload=value.SerializeToString())
        await self.send(1, stream, 1, request, pieces)
        connection, answered, payload = await self.receive()
        assert (connection, answered) == (1, stream)
        return nri_pb2.TtrpcResponse.FromString(payload)

    def hang_up(self) -> None:
        self._writer.close()


@pytest.fixture
async def runtimes(tmp_path: pathlib.Path) -> AsyncIterator[asyncio.Queue[Runtime]]:
    arrived: asyncio.Queue[Runtime] = asyncio.Queue()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await arrived.put(Runtime(reader, writer))

    server = await asyncio.start_unix_server(accept, tmp_path / "nri.sock")
    async with server:
        yield arrived


@contextlib.asynccontextmanager
async def running(plugin: nri.Plugin) -> AsyncIterator[None]:
    task = asyncio.create_task(plugin.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def make(socket: pathlib.Path, adjustment: nri.Adjustment | None = None, fail: bool = False) -> nri.Plugin:
    def adjust(pod: nri.StartedPod, container: str) -> nri.Adjustment | None:
        if fail:
            raise ValueError(f"no {container}")
        return adjustment

    return nri.Plugin(socket, lambda pod: None, adjust, lambda container, quota: None, Backoff(0.01, 0.02))


CREATE = nri_pb2.CreateContainerRequest(
    pod=nri_pb2.PodSandbox(namespace="ns", name="p", uid="u", labels={"koordinator.sh/qosClass": "BE"}),
    container=nri_pb2.Container(id="c1", name="main"),
)


async def test_it_registers_under_its_name_and_asks_for_three_events(
    runtimes: asyncio.Queue[Runtime], tmp_path: pathlib.Path
) -> None:
    async with running(make(tmp_path / "nri.sock")):
        runtime = await runtimes.get()
        await runtime.register()
        assert (runtime.registered.plugin_name, runtime.registered.plugin_idx) == ("cotenant", "50")
        answer = await runtime.call("Configure", nri_pb2.ConfigureRequest(runtime_name="containerd"))
        assert nri_pb2.ConfigureResponse.FromString(answer.payload).events == 0b10001001
        runtime.hang_up()


@pytest.mark.parametrize("pieces", [1, 7])
async def test_a_container_is_set_up_before_it_starts(
    runtimes: asyncio.Queue[Runtime], tmp_path: pathlib.Path, pieces: int
) -> None:
    wanted = nri.Adjustment(shares=512, quota_usec=50_000, cpus="0-1", memory_limit_bytes=1 << 20)
    async with running(make(tmp_path / "nri.sock", wanted)):
        runtime = await runtimes.get()
        await runtime.register()
        answer = await runtime.call("CreateContainer", CREATE, pieces)
        resources = nri_pb2.CreateContainerResponse.FromString(answer.payload).adjust.linux.resources
        assert (resources.cpu.shares.value, resources.cpu.quota.value) == (512, 50_000)
        assert (resources.cpu.cpus, resources.memory.limit.value) == ("0-1", 1 << 20)
        runtime.hang_up()


async def test_a_new_quota_is_heard_of_before_it_is_set(
    runtimes: asyncio.Queue[Runtime], tmp_path: pathlib.Path
) -> None:
    heard: list[tuple[str, int]] = []
    plugin = nri.Plugin(
        tmp_path / "nri.sock", lambda pod: None, lambda pod, name: None, lambda *new: heard.append(new), Backoff(0.01)
    )
    async with running(plugin):
        runtime = await runtimes.get()
        await runtime.register()
        for quota in (30_000, -1):  # none at all needs no room
            cpu = nri_pb2.LinuxCPU(quota=nri_pb2.OptionalInt64(value=quota))
            update = nri_pb2.UpdateContainerRequest(
                container=nri_pb2.Container(id="c1"), linux_resources=nri_pb2.LinuxResources(cpu=cpu)
            )
            answer = await runtime.call("UpdateContainer", update)
            assert answer.status.code == 0
        assert heard == [("c1", 30_000)]
        runtime.hang_up()


async def test_a_defect_of_ours_lets_the_container_start(
    runtimes: asyncio.Queue[Runtime], tmp_path: pathlib.Path
) -> None:
    plugin = make(tmp_path / "nri.sock", fail=True)
    async with running(plugin):
        runtime = await runtimes.get()
        await runtime.register()
        answer = await runtime.call("CreateContainer", CREATE)
        assert answer.status.code == 0
        assert not nri_pb2.CreateContainerResponse.FromString(answer.payload).HasField("adjust")
        assert plugin.failures == 1
        runtime.hang_up()


async def test_a_method_we_do_not_know_is_answered_as_such(
    runtimes: asyncio.Queue[Runtime], tmp_path: pathlib.Path
) -> None:
    async with running(make(tmp_path / "nri.sock")):
        runtime = await runtimes.get()
        await runtime.register()
        assert (await runtime.call("Dance", nri_pb2.TtrpcStatus())).status.code == 12
        runtime.hang_up()


async def test_it_comes_back_once_when_the_runtime_restarts(
    runtimes: asyncio.Queue[Runtime], tmp_path: pathlib.Path
) -> None:
    plugin = make(tmp_path / "nri.sock")
    async with running(plugin):
        for _ in range(3):
            runtime = await runtimes.get()
            await runtime.register()
            await runtime.call("Configure", nri_pb2.ConfigureRequest())
            assert runtimes.empty()
            runtime.hang_up()
        assert plugin.connections == 3


async def test_nonsense_ends_the_connection_and_not_the_agent(
    runtimes: asyncio.Queue[Runtime], tmp_path: pathlib.Path
) -> None:
    plugin = make(tmp_path / "nri.sock")
    async with running(plugin):
        runtime = await runtimes.get()
        runtime._writer.write(FRAME.pack(9, 1 << 30))
        await runtime._writer.drain()
        second = await runtimes.get()
        await second.register()
        await second.call("Configure", nri_pb2.ConfigureRequest())
        assert plugin.connections == 1
        runtime.hang_up()
        second.hang_up()
