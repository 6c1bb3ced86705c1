"""NodeMetric written to an API server: only while it is there, in time, and by the newest version."""

import asyncio
import pathlib
from typing import Any

import msgspec
import pytest
from tests.kube.conftest import ApiServer, status

from cotenant.kernel import paths
from cotenant.kube.client import Client
from cotenant.model.node import Cpu as NodeCpu
from cotenant.model.node import Topology
from cotenant.model.pod import Pod
from cotenant.model.sample import Cgroup, Cpu, Memory, Sample
from cotenant.node import prediction
from cotenant.node.policy import Policy
from cotenant.node.presence import Presence
from cotenant.node.reporting import Asked, Reporter
from cotenant.units.clock import ManualClock

AT = "apis/slo.koordinator.sh/v1alpha1/nodemetrics"
GIB = 1 << 30
PRESENT = Presence(
    topology=Topology(cpus=(NodeCpu(0), NodeCpu(1, 1))),
    memory_bytes=4 * GIB,
    pods={"k/web": Pod(namespace="a", name="web", uid="1", kube_qos="Burstable", priority=9000)},
)
SAMPLE = Sample(
    node="n1",
    time="t",
    cpu=Cpu(online=2, used_ratio=0.5),
    memory=Memory(available_ratio=0.5),
    cgroups=[Cgroup(path="k/web", cpu_used_ratio=0.25, memory_anon_bytes=GIB)],
)


class World:
    def __init__(self, server: ApiServer, opened: Client, state: pathlib.Path) -> None:
        self.server, self.clock, self.state = server, ManualClock(), state
        (state / "proc").mkdir(parents=True)
        self.yields = False
        self.reporter = Reporter(
            paths.Root(state),
            opened,
            "n1",
            lambda: PRESENT,
            Policy("n1", "observe"),
            lambda: self.yields,
            self.clock,
            state / "kept",
        )

    async def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.advance(1)
            self.reporter.take(SAMPLE)
            self.reporter.look()
            await self.reporter.step()

    def ask(self, **spec: Any) -> None:
        self.server.put(AT, "n1", metadata={"uid": "u1"}, spec={"metricCollectPolicy": spec})
        self.hear()

    def hear(self) -> None:
        """Do as the watch does."""
        found = self.server.objects[AT].get("n1")
        self.reporter.replaced({} if found is None else {"n1": msgspec.convert(found, Asked)})

    @property
    def puts(self) -> list[dict[str, Any]]:
        return [
            body
            for (method, _, _), body in zip(self.server.requests, self.server.bodies, strict=True)
            if method == "PUT"
        ]


@pytest.fixture
async def world(api: ApiServer, client: Client, tmp_path: pathlib.Path) -> World:
    return World(api, client, tmp_path)


async def test_nothing_is_written_or_measured_while_nobody_asks(world: World) -> None:
    await world.pass_time(200)
    assert world.server.requests == []
    assert world.reporter.meter is None


async def test_written_each_interval_and_no_more_once_it_is_gone(world: World) -> None:
    world.ask(reportIntervalSeconds=60)
    await world.pass_time(30)
    assert len(world.puts) == 1
    assert world.puts[0]["status"]["nodeMetric"]["nodeUsage"]["resources"] == {"cpu": "1000m", "memory": str(2 * GIB)}
    assert world.puts[0]["status"]["podsMetric"][0]["podUsage"]["resources"]["cpu"] == "500m"
    await world.pass_time(600)
    assert 11 <= len(world.puts) <= 13
    assert world.server.objects[AT]["n1"]["spec"] == {"metricCollectPolicy": {"reportIntervalSeconds": 60}}
    world.server.remove(AT, "n1")
    world.hear()
    written = len(world.puts)
    await world.pass_time(300)
    assert len(world.puts) == written
    assert world.reporter.meter is None


async def test_a_foreign_write_is_read_and_written_over_at_once(world: World) -> None:
    world.ask()
    world.server.put(AT, "n1", metadata={"uid": "u1"}, spec={"metricCollectPolicy": {"reportIntervalSeconds": 60}})
    await world.pass_time(30)
    assert len(world.puts) == 2
    assert "status" in world.server.objects[AT]["n1"]
    assert world.reporter.failures == 0


async def test_away_and_throttled_is_tried_again_long_before_it_is_too_old(world: World) -> None:
    world.ask(reportIntervalSeconds=60)
    await world.pass_time(30)
    world.server.away = True
    await world.pass_time(90)
    assert world.reporter.failures >= 2
    assert "503" in world.reporter.last_error
    world.server.away = False
    world.server.fail("PUT", status(429, "TooManyRequests"), {"retry-after": "7"})
    before = world.reporter.writes
    await world.pass_time(60)
    assert world.reporter.writes == before + 1
    assert world.reporter.last_error == ""


async def test_an_interval_past_what_schedulers_believe_is_shortened(world: World) -> None:
    world.ask(reportIntervalSeconds=1000)
    await world.pass_time(30)
    ages = []
    for _ in range(600):
        await world.pass_time(1)
        assert world.reporter.written_at is not None
        ages.append(world.clock.monotonic() - world.reporter.written_at)
    assert max(ages) < 180


async def test_beside_another_agent_it_is_measured_and_written_once_that_is_gone(world: World) -> None:
    world.yields = True
    world.ask()
    await world.pass_time(120)
    assert world.puts == []
    world.yields = False
    await world.pass_time(1)
    assert len(world.puts) == 1


async def test_a_new_spec_starts_the_figures_anew_and_the_same_one_does_not(world: World) -> None:
    world.ask(aggregateDurationSeconds=60)
    meter = world.reporter.meter
    await world.pass_time(30)
    world.hear()
    assert world.reporter.meter is meter
    world.ask(aggregateDurationSeconds=120)
    assert world.reporter.meter is not meter


async def test_a_deleted_object_is_not_made_anew(world: World) -> None:
    world.ask()
    world.server.remove(AT, "n1")
    await world.pass_time(40)
    assert "n1" not in world.server.objects[AT]
    assert len(world.puts) == 1


async def test_predictions_are_kept_at_intervals_and_at_the_end(world: World) -> None:
    world.ask()
    await world.pass_time(120)
    assert not (world.state / "kept").exists()
    running = asyncio.create_task(world.reporter.run())
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    kept = prediction.Predictor(world.clock.wall())
    assert prediction.load(world.state / "kept", kept, world.clock.wall()) == ""
    assert list(kept.pods) == ["1"]
