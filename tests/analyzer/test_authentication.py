"""Tokens on the stream, over TLS with a certificate of our own."""

import asyncio
import pathlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from tests import process
from tests.kube.conftest import ApiServer
from tests.waiting import PATIENCE_SECONDS

from cotenant.analyzer import authentication, receiving
from cotenant.analyzer.authentication import Identity, Refused, Reviewer
from cotenant.analyzer.fleet import Fleet
from cotenant.analyzer.program import Settings, credentials_of
from cotenant.api.v1 import stream_pb2, stream_pb2_grpc
from cotenant.kube import channel
from cotenant.kube.backoff import Backoff
from cotenant.kube.client import Client
from cotenant.node import sending, simulation
from cotenant.units.clock import ManualClock

ACCOUNT = "system:serviceaccount:cotenant-system:cotenant-node"
READER = "system:serviceaccount:cotenant-system:cotenant-manager"


@pytest.fixture
def users(api: ApiServer) -> dict[str, dict[str, Any]]:
    """Users by token; any other token is not valid."""
    return api.users


def user(node: str | None = "n1", name: str = ACCOUNT) -> dict[str, Any]:
    extra = {authentication.NODE_NAME_EXTRA: [node], "other": ["x"]} if node else None
    return {"username": name, "extra": extra, "groups": ["system:serviceaccounts"]}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def reviewer(client: Client, clock: ManualClock) -> Reviewer:
    return Reviewer(client, [ACCOUNT], clock, size=3)


async def test_a_token_speaks_for_the_node_it_is_bound_to(users: dict[str, Any], reviewer: Reviewer) -> None:
    users["t"] = user("n1")
    found = await reviewer.identify("Bearer t")
    assert found == Identity(ACCOUNT, "n1")
    found.check("n1")
    with pytest.raises(Refused, match="may not speak for n2"):
        found.check("n2")


async def test_a_token_that_names_no_node_is_held_to_the_accounts_alone(
    users: dict[str, Any], reviewer: Reviewer
) -> None:
    users["old"] = user(None)
    (await reviewer.identify("bearer old")).check("any")
    users["pod"] = user("n1", "system:serviceaccount:default:default")
    with pytest.raises(Refused, match="see --node-account"):
        await reviewer.identify("Bearer pod")


@pytest.mark.parametrize("header", [None, "", "Bearer ", "Basic eDp5", "Bearer " + "x" * 20_000])
async def test_without_a_token_nobody_is_asked(header: str | None, reviewer: Reviewer) -> None:
    with pytest.raises(Refused, match="bearer token"):
        await reviewer.identify(header)
    assert reviewer.reviews == 0


async def test_answers_are_kept_for_a_while_and_in_a_bounded_number(
    users: dict[str, Any], reviewer: Reviewer, clock: ManualClock
) -> None:
    users["t"] = user()
    for _ in range(5):
        await reviewer.identify("Bearer t")
    assert reviewer.reviews == 1
    clock.advance(61)
    await reviewer.identify("Bearer t")
    assert reviewer.reviews == 2
    for number in range(10):
        with pytest.raises(Refused, match="not valid"):
            await reviewer.identify(f"Bearer forged-{number}")
    assert len(reviewer) == 3
    del users["t"]
    clock.advance(61)
    with pytest.raises(Refused, match="not valid"):
        await reviewer.identify("Bearer t")


async def test_while_the_api_server_is_away_known_tokens_go_on(
    users: dict[str, Any],
    reviewer: Reviewer,
    clock: ManualClock,
    api: ApiServer,
) -> None:
    users["t"] = user()
    await reviewer.identify("Bearer t")
    api.away = True
    clock.advance(300)
    await reviewer.identify("Bearer t")
    with pytest.raises(Refused) as caught:
        await reviewer.identify("Bearer new")
    assert caught.value.temporary
    clock.advance(301)
    with pytest.raises(Refused):
        await reviewer.identify("Bearer t")


def make_certificate(folder: pathlib.Path, subject: str) -> tuple[pathlib.Path, pathlib.Path]:
    """Write a certificate that signs itself, and its key."""
    made, key = folder / "tls.crt", folder / "tls.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "1", "-subj", "/CN=analyzer", "-addext", f"subjectAltName={subject}"]
    process.run([*command, "-keyout", key, "-out", made], check=True)
    return made, key


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, pathlib.Path]:
    """A certificate of our own for 127.0.0.1, and its key."""
    return make_certificate(tmp_path_factory.mktemp("tls"), "IP:127.0.0.1")


@pytest.fixture
def receiver(fleet: Fleet, reviewer: Reviewer, client: Client, clock: ManualClock) -> receiving.Receiver:
    readers = Reviewer(client, [READER], clock)
    return receiving.Receiver(
        fleet,
        receiving.Instructions(),
        identify=reviewer.identify,
        identify_reader=readers.identify,
        table_seconds=0.02,
    )


@pytest.fixture
async def address(receiver: receiving.Receiver, certificate: tuple[pathlib.Path, pathlib.Path]) -> AsyncIterator[str]:
    settings = Settings(listen="127.0.0.1:0", tls_certificate=certificate[0], tls_key=certificate[1])
    async with receiving.serving(receiver, settings.listen, credentials_of(settings)) as port:
        yield f"127.0.0.1:{port}"


def open_secure(
    certificate: tuple[pathlib.Path, pathlib.Path], folder: pathlib.Path, token: str
) -> channel.OpenChannel:
    file = folder / "token"
    file.write_text(token)
    return channel.opener(certificate[0], file)


async def test_the_agents_own_connection_is_let_in_by_token_and_tls(
    fleet: Fleet, address: str, certificate: Any, users: dict[str, Any], tmp_path: pathlib.Path,
    make_sample: Callable[..., Any],
) -> None:  # fmt: skip
    users["good"] = user("n1")
    opened = open_secure(certificate, tmp_path, "good\n")
    sender = sending.Sender(sending.Identity("n1"), address, opened, Backoff(0.01, 0.05))
    running = asyncio.create_task(sender.run())
    sender.offer(make_sample(1.0))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while fleet.samples == 0:
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert set(fleet.nodes) == {"n1"}


@pytest.mark.parametrize(
    ("token", "code"),
    [("good", grpc.StatusCode.PERMISSION_DENIED), ("bad", grpc.StatusCode.UNAUTHENTICATED)],
)
async def test_others_are_turned_away(
    fleet: Fleet,
    receiver: receiving.Receiver,
    address: str,
    certificate: Any,
    users: dict[str, Any],
    tmp_path: pathlib.Path,
    token: str,
    code: Any,
) -> None:
    users["good"] = user("n1")

    async def hello() -> AsyncIterator[stream_pb2.Upward]:
        yield stream_pb2.Upward(hello=stream_pb2.Hello(node="n2"))

    async with open_secure(certificate, tmp_path, token)(address) as opened:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in stream_pb2_grpc.StreamStub(opened).Samples(hello()):
                pass
    assert caught.value.code() == code
    assert fleet.nodes == {}
    assert receiver.refused == 1


async def test_what_nodes_use_is_for_the_manager_alone(
    fleet: Fleet, address: str, certificate: Any, users: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    users["node"], users["manager"] = user("n1"), user(None, READER)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await first_table(open_secure(certificate, tmp_path, "node")(address))
    assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
    assert not fleet.tallies
    table = await first_table(open_secure(certificate, tmp_path, "manager")(address))
    assert table.complete


async def first_table(opening: grpc.aio.Channel) -> stream_pb2.UsageTable:
    async with opening as opened, asyncio.timeout(PATIENCE_SECONDS):
        async for table in stream_pb2_grpc.StreamStub(opened).Usage(stream_pb2.UsageRequest()):
            return table
    raise AssertionError("the call ended without a table")


async def test_plaintext_does_not_reach_a_tls_port(address: str) -> None:
    async def hello() -> AsyncIterator[stream_pb2.Upward]:
        yield stream_pb2.Upward(hello=stream_pb2.Hello(node="n1"))

    async with channel.open_plaintext(address) as opened:
        with pytest.raises(grpc.aio.AioRpcError):
            async for _ in stream_pb2_grpc.StreamStub(opened).Samples(hello()):
                pass


async def knock(opened: channel.OpenChannel, address: str) -> grpc.StatusCode:
    """Return the status with which a call without a token ends."""
    async with opened(address) as reached:
        call = stream_pb2_grpc.StreamStub(reached).Samples(iter([stream_pb2.Upward(hello=stream_pb2.Hello(node="n1"))]))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in call:
                pass
    code = caught.value.code()
    assert isinstance(code, grpc.StatusCode)
    return code


async def test_a_certificate_is_known_by_a_name_and_renewed_without_a_restart(
    fleet: Fleet, reviewer: Reviewer, tmp_path: pathlib.Path
) -> None:
    name = "cotenant-analyzer.cotenant-system.svc"
    made, key = make_certificate(tmp_path, f"DNS:{name}")
    settings = Settings(listen="127.0.0.1:0", tls_certificate=made, tls_key=key)
    receiver = receiving.Receiver(fleet, receiving.Instructions(), identify=reviewer.identify)
    named, unnamed = channel.opener(made, None, name), channel.opener(made, None)
    old = tmp_path / "old.crt"
    old.write_bytes(made.read_bytes())
    believing_the_old = channel.opener(old, None, name)
    async with receiving.serving(receiver, settings.listen, credentials_of(settings)) as port:
        address = f"127.0.0.1:{port}"
        assert await knock(unnamed, address) == grpc.StatusCode.UNAVAILABLE
        assert await knock(named, address) == grpc.StatusCode.UNAUTHENTICATED  # reached: only the token is missing
        make_certificate(tmp_path, f"DNS:{name}")
        assert await knock(named, address) == grpc.StatusCode.UNAUTHENTICATED
        assert await knock(believing_the_old, address) == grpc.StatusCode.UNAVAILABLE
        made.unlink()
        assert await knock(named, address) == grpc.StatusCode.UNAUTHENTICATED


async def test_simulated_nodes_are_let_in_by_a_token_that_is_bound_to_none(
    fleet: Fleet, address: str, certificate: Any, users: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    users["all"] = user(None)
    plan = simulation.Plan(count=3, address=address, open_channel=open_secure(certificate, tmp_path, "all"))
    running = asyncio.create_task(simulation.run(plan, None))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while set(fleet.nodes) != {"node-0", "node-1", "node-2"}:
            await asyncio.sleep(0.005)
    running.cancel()
    assert (await running)["sent"] > 0
