"""Both ends of the usage table over a real connection on loopback."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.kube.conftest import ApiServer
from tests.waiting import until

from cotenant.analyzer import authentication, receiving
from cotenant.analyzer.fleet import Fleet
from cotenant.analyzer.rulebook import Rulebook
from cotenant.kube.backoff import Backoff
from cotenant.kube.channel import Peer
from cotenant.kube.client import Client
from cotenant.manager.overcommit.feed import Feed
from cotenant.model import sample
from cotenant.units.clock import ManualClock

TABLE_SECONDS = 0.02


def sampled(node: str, uptime_s: float, used_ratio: float = 0.5) -> sample.Sample:
    return sample.Sample(
        node=node,
        time="2026-11-30T00:00:00Z",
        uptime_s=uptime_s,
        cpu=sample.Cpu(online=4, used_ratio=used_ratio),
        cgroups=[sample.Cgroup(path="kubepods/p", name="d/web", class_="online", cpu_used_ratio=0.25)],
    )


class Analyzers:
    """Analyzers on loopback: each hears of its nodes; one leads."""

    def __init__(self) -> None:
        self.fleet = Fleet(Rulebook(), ManualClock())
        self.leading = True
        self.leader = ""

    @contextlib.asynccontextmanager
    async def serving(self, identify: Any = None) -> AsyncIterator[str]:
        receiver = receiving.Receiver(
            self.fleet,
            receiving.Instructions(),
            lambda: self.leading,
            lambda: self.leader,
            identify_reader=identify,
            table_seconds=TABLE_SECONDS,
        )
        async with receiving.serving(receiver, "127.0.0.1:0") as port:
            yield f"127.0.0.1:{port}"


@pytest.fixture
async def start(client: Client) -> AsyncIterator[Callable[[str], Feed]]:
    tasks = []

    def run(address: str) -> Feed:
        feed = Feed(
            client, "cotenant-system", ManualClock(), analyzer=Peer(address=address), backoff=Backoff(0.01, 0.05)
        )
        tasks.append(asyncio.create_task(feed.run()))
        return feed

    yield run
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_what_nodes_use_comes_table_by_table(start: Callable[[str], Feed]) -> None:
    analyzers = Analyzers()
    async with analyzers.serving() as address:
        feed = start(address)
        await until(lambda: analyzers.fleet.tallies)
        for number in range(receiving.NODES_PER_MESSAGE + 1):  # more than one message holds
            analyzers.fleet.hear(f"n{number}", [sampled(f"n{number}", 1.0)])
        await until(lambda: len(feed.rows) > receiving.NODES_PER_MESSAGE)
        row = feed.rows["n7"].row
        assert (row.cpu_millicores, row.pods["d/web"].cpu_millicores) == (2000.0, 1000.0)
        tables = feed.tables
        await until(lambda: feed.tables > tables + 1)  # empty ones come too: the connection lives
        analyzers.fleet.hear("n7", [sampled("n7", 2.0, 1.0)])
        await until(lambda: feed.rows["n7"].row.cpu_millicores == 4000.0)
    await until(lambda: feed.failures > 0)
    assert not analyzers.fleet.tallies


async def test_a_replica_that_does_not_lead_sends_the_reader_to_the_leader(start: Callable[[str], Feed]) -> None:
    analyzers, other = Analyzers(), Analyzers()
    async with analyzers.serving() as leading, other.serving() as following:
        other.leading, other.leader = False, leading
        feed = start(following)
        await until(lambda: analyzers.fleet.tallies)
        analyzers.leading = False  # and when that one loses its lease
        other.leading, analyzers.leader = True, following
        await until(lambda: other.fleet.tallies)
        other.fleet.hear("n1", [sampled("n1", 1.0)])
        await until(lambda: "n1" in feed.rows)


async def test_the_leader_is_found_by_its_lease(api: ApiServer, start: Callable[[str], Feed]) -> None:
    analyzers = Analyzers()
    feed = start("")
    await until(lambda: feed.failures > 0)  # there is no lease yet
    async with analyzers.serving() as address:
        leases = "apis/coordination.k8s.io/v1/namespaces/cotenant-system/leases"
        api.put(leases, "cotenant-analyzer", spec={"holderIdentity": f"host-1_{address}"})
        await until(lambda: analyzers.fleet.tallies)


async def test_plaintext_goes_nowhere_but_to_this_machine(start: Callable[[str], Feed]) -> None:
    feed = start("203.0.113.7:7443")
    await until(lambda: feed.failures > 1)
    assert feed.tables == 0


async def test_who_is_not_known_reads_nothing(start: Callable[[str], Feed]) -> None:
    async def refuse(authorization: str | None) -> authentication.Identity:
        raise authentication.Refused("who are you?")

    analyzers = Analyzers()
    async with analyzers.serving(refuse) as address:
        feed = start(address)
        await until(lambda: feed.failures > 1)
        assert feed.tables == 0


async def test_no_more_than_a_few_read_at_once(start: Callable[[str], Feed]) -> None:
    analyzers = Analyzers()
    async with analyzers.serving() as address:
        feeds = [start(address) for _ in range(receiving.MAX_READERS + 1)]
        await until(lambda: sum(feed.failures > 0 for feed in feeds) == 1)
        assert len(analyzers.fleet.tallies) == receiving.MAX_READERS
