"""The controller against an API server and a real stream on loopback."""

import asyncio
import contextlib
import dataclasses
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

import prometheus_client
import pytest
from tests.kube.conftest import status
from tests.manager.conftest import NODE_METRICS, NODES, TOPOLOGIES, Cluster
from tests.waiting import ended, until

from cotenant.analyzer import receiving
from cotenant.analyzer.fleet import Fleet
from cotenant.analyzer.rulebook import Rulebook
from cotenant.api import timestamp
from cotenant.kube.channel import Peer
from cotenant.manager import controller as controllers
from cotenant.manager.overcommit import controller, names
from cotenant.manager.overcommit.controller import Overcommit
from cotenant.manager.slo import readers
from cotenant.manager.slo.following import SloConfigFollower
from cotenant.model import sample
from cotenant.units.clock import ManualClock

PODS = "api/v1/pods"
CPU, MEMORY = names.BATCH["cpu"], names.BATCH["memory"]
SIZE = {"cpu": "10", "memory": "10Gi"}


class World:
    """A cluster, an analyzer, and what its nodes tell it."""

    def __init__(self, cluster: Cluster, address: str, fleet: Fleet) -> None:
        self.cluster = cluster
        self.fleet = fleet
        context = cluster.context
        settings = dataclasses.replace(context.settings, analyzer=Peer(address=address))
        cluster.context = dataclasses.replace(context, settings=settings)
        self._uptime_s = 1.0
        cluster.api.objects[PODS] = {}
        self.configure(enable=True)

    def configure(self, **strategy: Any) -> None:
        self.cluster.write_config(colocation=json.dumps(strategy))

    def add_node(self, name: str = "n1") -> None:
        state = {"capacity": dict(SIZE), "allocatable": dict(SIZE)}
        self.cluster.api.put(NODES, name, metadata={"uid": f"uid-{name}"}, status=state)

    def add_pod(self, name: str, requests: dict[str, str], priority: int, node: str = "n1") -> None:
        self.cluster.api.put(
            PODS,
            name,
            metadata={"namespace": "d"},
            spec={"nodeName": node, "priority": priority, "containers": [{"resources": {"requests": requests}}]},
            status={"phase": "Pending", "qosClass": "Burstable"},
        )

    def use(self, cpu_ratio: float, node: str = "n1", **pods: float) -> None:
        """Have a node send a sample."""
        self._uptime_s += 1
        groups = [
            sample.Cgroup(path=f"kubepods/{name}", name=f"d/{name}", class_="online", cpu_used_ratio=ratio)
            for name, ratio in pods.items()
        ]
        taken = sample.Sample(
            node=node,
            time="2026-11-30T00:00:00Z",
            uptime_s=self._uptime_s,
            cpu=sample.Cpu(online=10, used_ratio=cpu_ratio),
            memory=sample.Memory(available_ratio=1.0),
            cgroups=groups,
        )
        self.fleet.hear(node, [taken])

    def report(self, cpu: str, node: str = "n1", age_seconds: float = 0, **more: Any) -> None:
        """Write a NodeMetric, as Koordinator's agent does."""
        usage = {"nodeUsage": {"resources": {"cpu": cpu, "memory": "0"}}}
        at = timestamp.render(self.cluster.clock.wall() - age_seconds)
        self.cluster.api.put(NODE_METRICS, node, status={"updateTime": at, "nodeMetric": usage, **more})

    def offered(self, node: str = "n1", resource: str = CPU) -> int | None:
        value = self.cluster.objects(NODES)[node]["status"]["allocatable"].get(resource)
        return None if value is None else int(value)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self.cluster.running(SloConfigFollower(), Overcommit()):
            await until(lambda: self.fleet.tallies)
            yield


@pytest.fixture
async def world(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(controller, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(readers, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(readers, "ALIVE_SECONDS", 5.0)
    fleet = Fleet(Rulebook(), ManualClock())
    receiver = receiving.Receiver(fleet, receiving.Instructions(), table_seconds=0.02)
    async with receiving.serving(receiver, "127.0.0.1:0") as port:
        yield World(cluster, f"127.0.0.1:{port}", fleet)


async def test_what_a_node_uses_becomes_what_it_offers(world: World) -> None:
    world.add_node()
    async with world.running():
        world.use(0.1)
        await until(lambda: world.offered() == 5_000)
        assert world.cluster.objects(NODES)["n1"]["status"]["capacity"][CPU] == "5000"
        assert world.offered(resource=MEMORY) == 65 * 10 * 2**30 // 100
        (method, path, query) = next(asked for asked in world.cluster.api.requests if "nodes/n1" in asked[1])
        assert (method, path, query["fieldManager"]) == ("PATCH", "api/v1/nodes/n1/status", "cotenant-manager")
        writes = world.cluster.writes("nodes/n1")
        for _ in range(20):
            world.use(0.101)
            await asyncio.sleep(0.01)
        assert world.cluster.writes("nodes/n1") == writes  # nothing to tell
        await until(lambda: world.use(0.3) or world.offered() == 3_000)
        # A pod that is bound here counts before it runs, by its request.
        world.add_pod("web", {"cpu": "2"}, 9000)
        await until(lambda: world.offered() == 1_000)


async def test_where_no_stream_flows_the_node_metric_counts(world: World) -> None:
    world.add_node()
    world.report("2", prodReclaimableMetric={"resource": {"resources": {"cpu": "3", "memory": "1Gi"}}})
    async with world.running():
        await until(lambda: world.offered() == 4_000)
        assert world.offered(resource=names.MID["cpu"]) == 3_000
        world.use(0.5)  # the stream is newer and more exact; what is predicted still comes by the metric
        await until(lambda: world.offered() == 1_000)
        assert world.offered(resource=names.MID["cpu"]) == 3_000


async def test_a_node_of_which_nothing_is_known_any_more_is_drained(world: World) -> None:
    world.add_node()
    world.add_pod("job", {CPU: "700"}, 5500)
    world.report("2")
    async with world.running():
        await until(lambda: world.offered() == 4_000)
        world.cluster.clock.advance(16 * 60)
        await until(lambda: world.offered() == 700)
        world.cluster.api.remove(PODS, "job")
        await until(lambda: world.offered() is None)
        assert CPU not in world.cluster.objects(NODES)["n1"]["status"]["capacity"]
        world.report("2")
        await until(lambda: world.offered() == 4_000)


async def test_switching_off_takes_it_back_and_on_brings_it_back(world: World) -> None:
    world.add_node()
    world.report("2")
    async with world.running():
        await until(lambda: world.offered() == 4_000)
        world.configure(enable=False)
        await until(lambda: world.offered() is None)
        world.configure(enable=True, cpuReclaimThresholdPercent=70)
        await until(lambda: world.offered() == 5_000)


async def test_what_a_kubelet_overwrites_is_put_back(world: World) -> None:
    world.add_node()
    world.report("2")
    async with world.running():
        await until(lambda: world.offered() == 4_000)
        world.add_node()  # registered anew, with nothing but its own
        await until(lambda: world.offered() == 4_000)
        found = world.cluster.objects(NODES)["n1"]
        found["status"]["allocatable"][CPU] = "9000"  # and one of the two alone
        world.cluster.api.put(NODES, "n1", **found)
        await until(lambda: world.offered() == 4_000)


async def test_refusals_and_outages_delay_and_nothing_else(world: World) -> None:
    world.add_node()
    world.report("2")
    world.cluster.api.fail("PATCH api/v1/nodes/n1", status(429, "TooManyRequests"), {"Retry-After": "1"})
    async with world.running():
        await until(lambda: world.offered() == 4_000)
        world.cluster.api.away = True
        world.use(0.5)
        await asyncio.sleep(0.1)
        assert world.offered() == 4_000
        world.cluster.api.away = False
        await until(lambda: world.offered() == 1_000)


async def test_a_node_that_goes_is_forgotten(world: World) -> None:
    for name in ("n1", "n2"):
        world.add_node(name)
    async with world.running():
        world.use(0.1)
        world.use(0.1, node="n2")
        await until(lambda: world.offered("n2") == 5_000)
        world.cluster.api.remove(NODES, "n2")
        world.use(0.1, node="n2")  # its last words
        await until(lambda: 'cotenant_overcommit_nodes{state="current"} 1.0' in metrics(world))


async def test_a_node_that_is_not_understood_is_left_as_it_is_and_counted(world: World) -> None:
    world.add_node()
    world.report("2")
    async with world.running():
        await until(lambda: world.offered() == 4_000)
        found = world.cluster.objects(NODES)["n1"]
        found["metadata"]["annotations"] = {**found["metadata"]["annotations"], names.THIRD_PARTY_ANNOTATION: "{"}
        world.cluster.api.put(NODES, "n1", **found)
        await until(lambda: "cotenant_overcommit_nodes_unread 1.0" in metrics(world))
        world.cluster.clock.advance(1)  # a second report within a second would be taken for the first
        world.report("5")
        await asyncio.sleep(0.1)
        assert world.offered() == 4_000
        found["metadata"]["annotations"].pop(names.THIRD_PARTY_ANNOTATION)
        world.cluster.api.put(NODES, "n1", **found)
        await until(lambda: world.offered() == 1_000)


def metrics(world: World) -> str:
    return prometheus_client.generate_latest(world.cluster.context.metrics).decode()


async def test_metrics_say_what_is_offered_and_asked_for(world: World) -> None:
    world.add_node()
    world.add_pod("job", {CPU: "700"}, 5500)
    async with world.running():
        world.use(0.1)
        await until(lambda: world.offered() == 5_000)
        await until(lambda: f'cotenant_overcommit_offered{{resource="{CPU}"}} 5000.0' in metrics(world))
        text = metrics(world)
        assert f'cotenant_overcommit_asked{{resource="{CPU}"}} 700.0' in text
        assert "cotenant_overcommit_table_age_seconds" in text
        assert "cotenant_overcommit_nodes_contested 0.0" in text


async def test_zones_follow_the_node_and_end_with_it(world: World) -> None:
    world.add_node()
    each = [{"name": name, "capacity": size, "allocatable": size, "available": size} for name, size in SIZE.items()]
    zone = {"name": "node-0", "type": "Node", "resources": each}
    world.cluster.api.put(TOPOLOGIES, "n1", zones=[zone], topologyPolicies=["None"])

    def in_zone() -> dict[str, Any]:
        (found,) = world.cluster.objects(TOPOLOGIES)["n1"]["zones"]
        return {one["name"]: one["allocatable"] for one in found["resources"]}

    world.report("2")
    async with world.running():
        await until(lambda: in_zone().get(CPU) == "4000")
        assert in_zone()["cpu"] == "10"
        world.configure(enable=False)
        await until(lambda: CPU not in in_zone())
        assert in_zone() == SIZE


async def test_koordinators_own_manager_is_left_its_resources_while_it_lives(world: World) -> None:
    leases = "apis/coordination.k8s.io/v1/namespaces/koordinator-system/leases"
    renewals = itertools.count()

    def renew() -> None:
        spec = {"holderIdentity": "koord-manager-0", "renewTime": f"{next(renewals)}"}
        world.cluster.api.put(leases, "koordinator-manager", spec=spec)

    async def live() -> None:
        while True:
            renew()
            await asyncio.sleep(0.01)

    renew()
    world.add_node()
    found = world.cluster.objects(NODES)["n1"]
    found["status"]["allocatable"][CPU] = found["status"]["capacity"][CPU] = "123"
    world.cluster.api.put(NODES, "n1", **found)
    living = asyncio.create_task(live())
    async with world.running():
        for _ in range(20):
            world.report("2")
            await asyncio.sleep(0.01)
        assert world.offered() == 123
        assert "cotenant_overcommit_standing_back 1.0" in metrics(world)
        await ended(living)
        await until(lambda: world.report("2") or world.offered() == 4_000)  # its lease is not renewed any more
        renew()
        await until(lambda: "cotenant_overcommit_standing_back 1.0" in metrics(world))


@pytest.mark.parametrize(("when", "offered", "standing"), [("always", 4_000, "0.0"), ("never", None, "1.0")])
async def test_who_is_told_does_not_ask_who_else_lives(
    world: World, when: controllers.OvercommitWhen, offered: int | None, standing: str
) -> None:
    leases = "apis/coordination.k8s.io/v1/namespaces/koordinator-system/leases"
    spec = {"holderIdentity": "koord-manager-0", "renewTime": "1"} if when == "always" else {}
    world.cluster.api.put(leases, "koordinator-manager", spec=spec)
    settings = dataclasses.replace(world.cluster.context.settings, overcommit=when)
    world.cluster.context = dataclasses.replace(world.cluster.context, settings=settings)
    world.add_node()
    world.report("2")
    async with world.running():
        await until(lambda: f"cotenant_overcommit_standing_back {standing}" in metrics(world))
        if offered is not None:
            await until(lambda: world.offered() == offered)
        else:
            await asyncio.sleep(0.3)
            assert world.offered() is None


async def test_nothing_is_written_before_it_is_known_who_else_does(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "RETRY_SECONDS", 0.05)
    for _ in range(3):
        world.cluster.api.fail("leases/koordinator-manager", status(500, "InternalError"))
    world.add_node()
    world.report("2")
    async with world.running():
        await until(lambda: world.offered() == 4_000)
    asked = [path for _, path, _ in world.cluster.api.requests]
    written = next(index for index, path in enumerate(asked) if path == "api/v1/nodes/n1/status")
    assert sum("leases/koordinator-manager" in path for path in asked[:written]) == 4


async def test_a_new_term_knows_nothing_of_the_last(world: World) -> None:
    world.add_node()
    world.report("2")
    async with world.running():
        await until(lambda: world.offered() == 4_000)
    world.report("3")
    world.cluster.context = dataclasses.replace(world.cluster.context, metrics=prometheus_client.CollectorRegistry())
    async with world.running():
        await until(lambda: world.offered() == 3_000)
