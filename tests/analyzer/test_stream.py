"""Both ends of the stream over a real connection on loopback."""

import asyncio
import pathlib
from collections.abc import AsyncIterator, Callable

import grpc.aio
import pytest
from tests.waiting import until

from cotenant.analyzer import receiving
from cotenant.analyzer.errors import BadListen
from cotenant.analyzer.fleet import Fleet
from cotenant.analyzer.program import Settings, credentials_of
from cotenant.analyzer.rulebook import Rulebook
from cotenant.api.v1 import stream_pb2, stream_pb2_grpc
from cotenant.kube.backoff import Backoff
from cotenant.kube.channel import open_plaintext
from cotenant.model import sample
from cotenant.node.sending import KEPT_SAMPLES, Identity, Orders, Sender
from cotenant.units.clock import ManualClock

MakeSample = Callable[..., sample.Sample]


@pytest.fixture
async def address(fleet: Fleet) -> AsyncIterator[str]:
    async with receiving.serving(receiving.Receiver(fleet, receiving.Instructions()), "127.0.0.1:0") as port:
        yield f"127.0.0.1:{port}"


@pytest.fixture
async def start() -> AsyncIterator[Callable[[str], Sender]]:
    tasks = []

    def run(address: str) -> Sender:
        sender = Sender(
            Identity("n1", facts=b'{"mode":"observe"}'), address, backoff=Backoff(0.01, 0.05), accept_seconds=0.5
        )
        tasks.append(asyncio.create_task(sender.run()))
        return sender

    yield run
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_samples_go_up_and_instructions_come_down(
    fleet: Fleet, address: str, start: Callable[[str], Sender], make_sample: MakeSample
) -> None:
    sender = start(address)
    for second in range(5):
        sender.offer(make_sample(100.0 + second))
    await until(lambda: fleet.samples == 5)
    await until(lambda: sender.orders.rules_version.startswith("default-"))
    assert "psi.memory_full_ratio" in sender.orders.alarms
    assert fleet.nodes["n1"].facts is not None
    assert fleet.nodes["n1"].facts.mode == "observe"


async def test_facts_that_change_are_told_in_the_same_call_and_again_in_the_next(
    fleet: Fleet, start: Callable[[str], Sender], make_sample: MakeSample
) -> None:
    def mode() -> str | None:
        told = fleet.nodes.get("n1")
        return told.facts.mode if told is not None and told.facts is not None else None

    receiver = receiving.Receiver(fleet, receiving.Instructions())
    async with receiving.serving(receiver, "127.0.0.1:0") as port:
        sender = start(f"127.0.0.1:{port}")
        sender.offer(make_sample(100.0))
        await until(lambda: mode() == "observe")
        sender.tell(b'{"mode":"enforce"}')
        await until(lambda: mode() == "enforce")
        assert sender.failures == 0
    await until(lambda: sender.failures > 0)
    fleet.nodes.clear()
    async with receiving.serving(receiver, f"127.0.0.1:{port}"):
        await until(lambda: mode() == "enforce")


async def test_the_newest_thirty_arrive_after_the_analyzer_was_away(
    fleet: Fleet, start: Callable[[str], Sender], make_sample: MakeSample
) -> None:
    receiver = receiving.Receiver(fleet, receiving.Instructions())
    async with receiving.serving(receiver, "127.0.0.1:0") as port:
        sender = start(f"127.0.0.1:{port}")
        sender.offer(make_sample(100.0))
        await until(lambda: fleet.samples == 1)
    await until(lambda: sender.failures > 0)
    for second in range(1, 41):
        sender.offer(make_sample(100.0 + second, thrashing=True))
    async with receiving.serving(receiver, f"127.0.0.1:{port}"):
        await until(lambda: fleet.samples == 1 + KEPT_SAMPLES)
        assert fleet.refused <= 1  # the one it had already
    evaluation = fleet.nodes["n1"].evaluation
    assert evaluation is not None
    assert evaluation.detections["memoryPressure"].triggered


async def test_a_new_leader_gets_the_window_at_once(
    fleet: Fleet, start: Callable[[str], Sender], make_sample: MakeSample
) -> None:
    async with receiving.serving(receiving.Receiver(fleet, receiving.Instructions()), "127.0.0.1:0") as port:
        sender = start(f"127.0.0.1:{port}")
        for second in range(12):
            sender.offer(make_sample(100.0 + second, thrashing=True))
        await until(lambda: fleet.samples == 12)
    other = Fleet(Rulebook(), ManualClock())
    async with receiving.serving(receiving.Receiver(other, receiving.Instructions()), f"127.0.0.1:{port}"):
        await until(lambda: other.samples == 12)
    evaluation = other.nodes["n1"].evaluation
    assert evaluation is not None
    assert evaluation.detections["memoryPressure"].triggered


def test_what_nobody_takes_is_dropped_oldest_first(make_sample: MakeSample) -> None:
    sender = Sender(Identity("n1"), "127.0.0.1:1")
    for second in range(40):
        sender.offer(make_sample(100.0 + second))
    assert sender.dropped == 40 - KEPT_SAMPLES
    assert [uptime for _, uptime, _ in sender._kept] == [110.0 + second for second in range(KEPT_SAMPLES)]


async def test_a_replica_that_does_not_lead_sends_the_node_to_the_leader(
    fleet: Fleet, address: str, start: Callable[[str], Sender], make_sample: MakeSample
) -> None:
    other = receiving.Receiver(fleet, receiving.Instructions(), lambda: False, lambda: address)
    async with receiving.serving(other, "127.0.0.1:0") as port:
        sender = start(f"127.0.0.1:{port}")
        sender.offer(make_sample(100.0))
        await until(lambda: fleet.samples == 1)


async def test_what_is_malformed_is_counted_and_the_stream_goes_on(fleet: Fleet, make_sample: MakeSample) -> None:
    receiver = receiving.Receiver(fleet, receiving.Instructions())

    async def messages() -> AsyncIterator[stream_pb2.Upward]:
        yield stream_pb2.Upward(hello=stream_pb2.Hello(node="n1", facts=b"{"))
        good = stream_pb2.Sample(uptime_seconds=5, json=sample.encode(make_sample(5.0)))
        bad = [stream_pb2.Sample(json=text) for text in (b"[]", b'{"node":' + b"[" * 100_000, b'{"node":"\xff"}')]
        yield stream_pb2.Upward(batch=stream_pb2.Batch(samples=[*bad, good]))

    async with (
        receiving.serving(receiver, "127.0.0.1:0") as port,
        open_plaintext(f"127.0.0.1:{port}") as channel,
    ):
        async for _ in stream_pb2_grpc.StreamStub(channel).Samples(messages()):
            pass
    assert (fleet.samples, receiver.malformed) == (1, 4)


async def test_facts_are_bounded(fleet: Fleet) -> None:
    receiver = receiving.Receiver(fleet, receiving.Instructions())
    assert receiver._facts("n1", b'{"mode":"observe"}') is not None
    assert receiver._facts("n1", b'{"mode":"' + b"x" * receiving.MAX_FACTS_BYTES + b'"}') is None
    assert receiver.malformed == 1


async def test_streams_are_bounded_and_nothing_is_kept_of_names_that_only_connect(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "MAX_STREAMS", 2)
    receiver = receiving.Receiver(fleet, receiving.Instructions())

    async def call(channel: grpc.aio.Channel, name: str, open_until: asyncio.Event) -> bytes:
        async def messages() -> AsyncIterator[stream_pb2.Upward]:
            yield stream_pb2.Upward(hello=stream_pb2.Hello(node=name))
            await open_until.wait()

        async for answer in stream_pb2_grpc.StreamStub(channel).Samples(messages()):
            assert answer.rules_version
        return b""

    ending = asyncio.Event()
    async with (
        receiving.serving(receiver, "127.0.0.1:0") as port,
        open_plaintext(f"127.0.0.1:{port}") as channel,
        asyncio.TaskGroup() as tasks,
    ):
        for name in ("n1", "n2"):
            tasks.create_task(call(channel, name, ending))
        await until(lambda: receiver.connected == 2)
        with pytest.raises(grpc.aio.AioRpcError, match="2 nodes are connected already"):
            await call(channel, "n3", ending)
        ending.set()
    assert fleet.nodes == {}
    assert fleet.rulebook._assigned == {}


@pytest.mark.parametrize("name", ["../n1", "a/b", "n\n1", "-n1", "n" * 254, "cluster", "\u043f1"])
async def test_a_name_that_no_node_can_have_is_turned_away(fleet: Fleet, address: str, name: str) -> None:
    async def misnamed() -> AsyncIterator[stream_pb2.Upward]:
        yield stream_pb2.Upward(hello=stream_pb2.Hello(node=name))

    async with open_plaintext(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError, match="names no node"):
            async for _ in stream_pb2_grpc.StreamStub(channel).Samples(misnamed()):
                pass
    assert fleet.nodes == {}


async def test_who_does_not_say_who_it_is_is_turned_away(fleet: Fleet, address: str) -> None:
    async def nameless() -> AsyncIterator[stream_pb2.Upward]:
        yield stream_pb2.Upward(batch=stream_pb2.Batch())

    async with open_plaintext(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError, match="names no node"):
            async for _ in stream_pb2_grpc.StreamStub(channel).Samples(nameless()):
                pass
    assert fleet.nodes == {}


def test_a_value_past_an_alarm_is_sent_at_once(make_sample: MakeSample) -> None:
    orders = Orders(alarms={"psi.memory_full_ratio": (0.04, False), "memory.available_ratio": (0.06, True)})
    assert not orders.is_alarming(make_sample(1.0))
    assert orders.is_alarming(make_sample(1.0, thrashing=True))
    low = make_sample(1.0)
    assert not Orders(alarms={"no.such.signal": (0.0, False)}).is_alarming(low)
    assert Orders(alarms={"memory.available_ratio": (0.6, True)}).is_alarming(low)


async def test_an_address_that_cannot_be_had_is_told_once_with_what_to_do(
    fleet: Fleet, address: str, capfd: pytest.CaptureFixture[str]
) -> None:
    receiver = receiving.Receiver(fleet, receiving.Instructions())
    with pytest.raises(BadListen, match=f"{address}: .*; choose another address or port"):
        async with receiving.serving(receiver, address):
            pass
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("listen", ["0.0.0.0:7443", "10.0.0.1:1", "[::]:1", "analyzer:7443"])
def test_plaintext_stays_on_loopback(listen: str) -> None:
    with pytest.raises(BadListen, match="tls-certificate"):
        credentials_of(Settings(listen=listen))


@pytest.mark.parametrize(("given", "missing"), [("tls_certificate", "--tls-key"), ("tls_key", "--tls-certificate")])
def test_half_a_certificate_is_not_plaintext(given: str, missing: str) -> None:
    with pytest.raises(BadListen, match=missing):
        credentials_of(Settings(listen="127.0.0.1:0", **{given: pathlib.Path("tls.pem")}))


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "[::1]:0", "localhost:1"])
def test_loopback_needs_no_certificate(listen: str) -> None:
    assert credentials_of(Settings(listen=listen)) is None
