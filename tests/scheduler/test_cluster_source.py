"""The table follows an API server; the protocol's corners are tested with the informer."""

import asyncio
from typing import Any

import pytest
from tests.waiting import until

from cotenant.kube import errors
from cotenant.kube.client import Page, Resource, WatchEvent
from cotenant.scheduler import cluster
from cotenant.units.clock import ManualClock


class Server:
    """A client whose lists are given and whose watches never say anything."""

    namespace = "cotenant-system"

    def __init__(self) -> None:
        self.lists: dict[str, list[bytes]] = {}
        self.renewed: str | None = None

    async def page(self, resource: Resource, **params: Any) -> Page:
        if resource.plural not in self.lists:
            raise errors.NotFound("no such kind", 404, "NotFound")
        return Page(list(self.lists[resource.plural]), "7", "")  # type: ignore[arg-type]

    async def watch(self, resource: Resource, *asked: Any, **params: Any) -> Any:
        await asyncio.Event().wait()
        yield WatchEvent("BOOKMARK", b"{}")

    async def get(self, resource: Resource, name: str, kind: type[Any], **params: Any) -> Any:
        assert (resource.plural, name, params["namespace"]) == ("leases", "cotenant-analyzer", "cotenant-system")
        if self.renewed is None:
            raise errors.NotFound("no lease", 404, "NotFound")
        return cluster.Lease(spec=cluster.Lease().spec.__class__(renew_time=self.renewed))


REPORT = {
    "metadata": {"name": "n1"},
    "status": {"expiresAt": "2099-01-01T00:00:00Z", "interferenceLevel": 0.5, "hard": ["psiIoSome"]},
}


@pytest.fixture
def server() -> Server:
    return Server()


async def test_lists_fill_the_table_and_a_kind_that_is_not_installed_leaves_the_rest(server: Server) -> None:
    server.lists["nodes"] = [b'{"metadata":{"name":"n1","labels":{"a":"b"}}}']
    server.lists["runtimeclasses"] = [b'{"metadata":{"name":"kata"},"handler":"kata"}']
    source = cluster.ClusterSource(server, ManualClock())  # type: ignore[arg-type]
    assert source.table.runtime_classes is None  # nothing known yet: Kata passes
    keeping = asyncio.create_task(source.keep())
    await until(lambda: bool(source.table.nodes) and source.table.runtime_classes is not None)
    assert source.table.rows == {}
    assert "no such kind" in source.describe()["reports"]["lastError"]
    assert source.describe()["nodes"] == {"synced": True, "lastError": None}
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)


def test_a_deleted_report_takes_its_row_along(server: Server) -> None:
    source = cluster.ClusterSource(server, ManualClock())  # type: ignore[arg-type]
    reports = cluster._Reports(source)
    reports.replaced({"a": {"metadata": {"name": "a"}}, "cluster": {"metadata": {"name": "cluster"}}})
    reports.put("b", {"metadata": {"name": "b"}, "status": {"hard": ["psiIoSome"]}})
    assert set(source.table.rows) == {"a", "b"}
    reports.removed("a")
    reports.removed("cluster")
    assert set(source.table.rows) == set(source.table.limited) == {"b"}
    reports.replaced({})
    assert source.table.rows == source.table.limited == {}


async def test_reports_hold_only_while_the_analyzer_renews_its_lease(server: Server) -> None:
    clock = ManualClock()
    source = cluster.ClusterSource(server, clock)  # type: ignore[arg-type]
    cluster._Reports(source).put("n1", REPORT)
    now = clock.wall()

    async def hard_at_next_look() -> bool:
        await source.look_at_lease()
        in_force = bool(source.table.limits_in_force(now))
        assert (source.table.levels(["n1"], now)[0] is not None) == in_force
        assert (source.table.known("n1", now) is not None) == in_force
        assert bool(source.table.freshness(now).fresh) == in_force
        return in_force

    assert not await hard_at_next_look()  # no lease at all
    server.renewed = "2001-01-01T00:00:00Z"  # another machine's clock: only that it changed counts
    assert await hard_at_next_look()
    clock.advance(59)
    assert await hard_at_next_look()
    clock.advance(2)
    assert not await hard_at_next_look()
    server.renewed = "2001-01-01T00:00:02Z"
    assert await hard_at_next_look()
    server.renewed = None  # the API server does not answer: what was seen goes on counting
    assert await hard_at_next_look()
    assert source.describe()["analyzerLeaseError"] == "no lease"
