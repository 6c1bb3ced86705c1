"""The agent takes its own node's verdict off when nobody else does."""

from typing import Any

import pytest
from tests.kube.conftest import ApiServer

from cotenant.api import timestamp
from cotenant.kube.client import Client
from cotenant.node.expiry import Expiry
from cotenant.units.clock import ManualClock

AT_NODES = "api/v1/nodes"
AT_REPORTS = "apis/cotenant.io/v1alpha1/nodeinterferencereports"
AT_LEASES = "apis/coordination.k8s.io/v1/namespaces/tests/leases"
THEIRS = {"key": "theirs", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}


class World:
    def __init__(self, server: ApiServer, opened: Client) -> None:
        self.server, self.clock, self.connected = server, ManualClock(), False
        self.expiry = Expiry(opened, "n1", self.node, lambda: self.connected, self.clock)
        self.mark()
        self.report(1800)
        self.renew(0)

    def node(self) -> dict[str, Any] | None:
        return self.server.objects[AT_NODES].get("n1")

    def mark(self) -> None:
        labels = {"zone": "z", "cotenant.io/avoid-online": "true", "cotenant.io/interference": "severe"}
        taints = [THEIRS, {"key": "cotenant.io/interference", "effect": "NoSchedule"}]
        labels["cotenant.io/kata-ready"] = "true"
        self.server.put(AT_NODES, "n1", metadata={"labels": labels}, spec={"taints": taints, "podCIDR": "x"})

    def report(self, seconds: float) -> None:
        self.server.put(AT_REPORTS, "n1", status={"expiresAt": timestamp.render(self.clock.wall() + seconds)})

    def renew(self, second: int) -> None:
        spec = {"renewTime": f"2026-01-01T00:00:{second % 60:02}.000000Z"}
        self.server.put(AT_LEASES, "cotenant-analyzer", spec=spec)

    async def pass_time(self, seconds: int) -> None:
        for _ in range(seconds // 5):
            self.clock.advance(5)
            await self.expiry.look()

    @property
    def marked(self) -> bool:
        node = self.node()
        assert node is not None
        return "cotenant.io/avoid-online" in node["metadata"]["labels"]


@pytest.fixture
async def world(api: ApiServer, client: Client) -> World:
    return World(api, client)


async def test_off_within_a_minute_of_the_leases_end_and_the_rest_stays(world: World) -> None:
    await world.pass_time(60)
    assert world.marked
    await world.pass_time(60)
    assert not world.marked
    node = world.node()
    assert node is not None
    assert node["metadata"]["labels"] == {"zone": "z", "cotenant.io/kata-ready": "true"}
    assert node["spec"] == {"taints": [THEIRS], "podCIDR": "x"}
    assert world.expiry.removals == 1


async def test_off_within_a_minute_of_the_reports_end_although_the_analyzer_lives(world: World) -> None:
    world.connected = True
    world.report(100)
    await world.pass_time(95)
    assert world.marked
    await world.pass_time(60)
    assert not world.marked


async def test_a_report_that_is_renewed_or_a_lease_that_moves_keeps_it(world: World) -> None:
    world.report(100)
    for second in range(0, 200, 20):
        world.report(100)
        world.renew(second // 20)
        await world.pass_time(20)
    assert world.marked


async def test_a_deleted_report_ends_it(world: World) -> None:
    world.connected = True
    world.server.remove(AT_REPORTS, "n1")
    await world.pass_time(60)
    assert not world.marked


async def test_while_the_api_server_is_away_nothing_counts_against_the_analyzer(world: World) -> None:
    await world.pass_time(30)
    world.server.away = True
    await world.pass_time(120)
    assert world.expiry.last_error
    world.server.away = False
    await world.pass_time(40)
    assert world.marked
    world.renew(7)
    await world.pass_time(40)
    assert world.marked


async def test_a_node_without_a_verdict_asks_nothing(world: World) -> None:
    world.server.put(AT_NODES, "n1", metadata={"labels": {"zone": "z"}})
    before = len(world.server.requests)
    await world.pass_time(300)
    assert len(world.server.requests) == before


async def test_the_stream_to_the_analyzer_stands_for_its_lease(world: World) -> None:
    world.connected = True
    await world.pass_time(300)
    assert world.marked
    assert not any("leases" in path for _, path, _ in world.server.requests)


async def test_no_fight_with_somebody_who_puts_it_back(world: World) -> None:
    for _ in range(400 // 5):
        await world.pass_time(5)
        if not world.marked:
            world.mark()
    assert 1 < world.expiry.removals <= 4
