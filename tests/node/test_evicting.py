"""Evictions asked of an API server: once, by uid, within budgets, and never in a cascade."""

from collections.abc import Iterable
from typing import Any

import pytest
from tests.kube.conftest import ApiServer, status

from cotenant.kube.client import Client
from cotenant.model.pod import Container, Pod
from cotenant.node.errors import RuntimeUnreachable
from cotenant.node.evicting import COOL_SECONDS, SPARED_SECONDS, STUCK_SECONDS, Evicting
from cotenant.node.killing import PATIENCE_SECONDS, Killing
from cotenant.units.clock import ManualClock
from cotenant.units.plan import PlanItem

AT = "api/v1/namespaces/ns/pods"
EVENTS_AT = "api/v1/namespaces/ns/events"
BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."


class World:
    def __init__(self, server: ApiServer, opened: Client) -> None:
        self.server, self.client, self.clock = server, opened, ManualClock()
        self.evicting = Evicting("n1", self.clock)
        self.pods = [self.pod(name) for name in ("a", "b", "c")]
        self.evicting.follow(self.pods)

    def pod(self, name: str, uid: str = "", **more: Any) -> Pod:
        uid = uid or f"uid-{name}"
        self.server.put(AT, name, metadata={"uid": uid, "namespace": "ns"})
        return Pod(namespace="ns", name=name, uid=uid, kube_qos="BestEffort", phase="Running", **more)

    def want(self, name: str, strategy: str = "memory_evict") -> str:
        item = PlanItem(op="evict", new=f"ns/{name}", strategy=strategy, reason="BEMemoryEvict: 80 of 100 bytes used")
        return self.evicting(item).state

    async def ask(self, seconds: float = 0.0) -> None:
        self.clock.advance(seconds)
        await self.evicting.ask(self.client)

    @property
    def asked(self) -> list[dict[str, Any]]:
        return [
            body
            for (_, path, _), body in zip(self.server.requests, self.server.bodies, strict=True)
            if path.endswith("/eviction")
        ]


@pytest.fixture
async def world(api: ApiServer, client: Client) -> World:
    return World(api, client)


async def test_asked_once_by_uid_with_an_event_and_pending_until_gone(world: World) -> None:
    assert world.want("a") == "busy"
    assert world.evicting.going == {"ns/a"}
    await world.ask()
    assert world.want("a") == "same"
    await world.ask(1)
    assert [body["deleteOptions"] for body in world.asked] == [
        {"preconditions": {"uid": "uid-a"}, "gracePeriodSeconds": 5}
    ]
    told = next(iter(world.server.objects[EVENTS_AT].values()))
    assert told["involvedObject"] == {
        "apiVersion": "v1", "kind": "Pod", "name": "a", "namespace": "ns", "uid": "uid-a"
    }  # fmt: skip
    assert (told["type"], told["reason"]) == ("Warning", "EvictedByCotenant")
    assert told["message"] == "node n1: BEMemoryEvict: 80 of 100 bytes used"
    world.evicting.follow(world.pods)
    assert world.evicting.going == {"ns/a"}
    world.evicting.follow(world.pods[1:])
    assert world.evicting.going == frozenset()
    assert world.want("a") == "gone"
    assert world.evicting.counts == {"accepted": 1}
    assert [(told.item.new, told.state) for told in world.evicting.settled()] == [("ns/a", "written")]
    assert world.evicting.settled() == ()


async def test_one_round_may_take_several_and_the_next_waits(world: World) -> None:
    assert [world.want("a"), world.want("b")] == ["busy", "busy"]
    world.clock.advance(1)
    assert world.want("c") == "held"
    assert world.want("c", "cpu_evict") == "busy"
    await world.ask(COOL_SECONDS["memory_evict"])
    world.evicting.follow([world.pods[2]])
    assert world.want("c") == "same"
    assert len(world.asked) == 3


async def test_cpu_gives_a_pod_its_own_grace(world: World) -> None:
    world.want("a", "cpu_evict")
    await world.ask()
    assert world.asked[0]["deleteOptions"] == {"preconditions": {"uid": "uid-a"}}


async def test_a_budget_spares_a_pod_for_a_while_and_another_may_go(world: World) -> None:
    world.server.fail("eviction", status(429, "TooManyRequests", BUDGET))
    world.want("a")
    await world.ask()
    assert world.evicting.settled() == ()
    assert (world.evicting.going, world.evicting.spared) == (frozenset(), {"ns/a"})
    assert world.want("a") == "held"
    world.clock.advance(COOL_SECONDS["memory_evict"])
    assert world.want("b") == "busy"
    await world.ask()
    world.clock.advance(SPARED_SECONDS)
    world.evicting.follow(world.pods)
    assert world.evicting.spared == frozenset()
    assert world.want("a") == "busy"
    await world.ask()
    assert world.evicting.counts == {"refused": 1, "accepted": 2}


async def test_a_server_that_is_busy_or_away_is_asked_again_and_then_given_up(world: World) -> None:
    world.server.fail("eviction", status(429, "TooManyRequests", "come again"), {"retry-after": "2"})
    world.want("a")
    await world.ask()
    assert world.evicting.going == {"ns/a"}
    await world.ask(1)
    assert len(world.asked) == 1
    await world.ask(4)
    assert len(world.asked) == 2
    assert world.evicting.counts["accepted"] == 1
    world.server.fail("eviction", status(429, "TooManyRequests", "come again"), {"retry-after": "100"})
    world.clock.advance(COOL_SECONDS["memory_evict"])
    world.want("b")
    await world.ask()
    await world.ask(101)
    assert world.evicting.going == {"ns/a"}
    assert len(world.asked) == 3


async def test_what_may_not_be_asked_for_is_not_asked_each_second(world: World) -> None:
    world.server.fail("eviction", status(403, "Forbidden"))
    world.want("a")
    await world.ask()
    await world.ask(1)
    assert world.want("a") == "held"
    assert (len(world.asked), world.evicting.counts["failed"]) == (1, 1)


async def test_another_pod_of_the_same_name_is_left_alone(world: World) -> None:
    world.want("a")
    replaced = world.pod("a", "uid-new")
    await world.ask()
    assert world.evicting.counts["accepted"] == 0
    assert "deletionTimestamp" not in world.server.objects[AT]["a"]["metadata"]
    world.evicting.follow([replaced])
    assert world.evicting.going == frozenset()


async def test_static_and_terminating_pods_are_not_asked_for(world: World) -> None:
    static = world.pod("static", annotations={"kubernetes.io/config.source": "file"})
    world.evicting.follow([static, world.pod("going", terminating=True)])
    assert world.want("static") == "left_out"
    assert world.want("going") == "same"
    await world.ask()
    assert world.asked == []


async def test_a_pod_that_never_goes_does_not_count_for_ever(world: World) -> None:
    world.want("a")
    await world.ask()
    world.clock.advance(STUCK_SECONDS + 1)
    world.evicting.follow(world.pods)
    assert world.evicting.going == frozenset()


async def test_an_event_that_cannot_be_written_changes_nothing(world: World) -> None:
    world.server.fail("events", status(403, "Forbidden"))
    world.want("a")
    await world.ask()
    assert world.evicting.counts == {"accepted": 1}


class Stopped:
    """A container runtime that says what it was asked to stop."""

    def __init__(self) -> None:
        self.containers: list[str] = []
        self.away = False

    def stop(self, containers: Iterable[str], grace_seconds: int = 0) -> list[str]:
        if self.away:
            raise RuntimeUnreachable("run/containerd.sock: no such file")
        self.containers += containers
        return list(containers)


def with_last_resort(world: World) -> Stopped:
    stopped = Stopped()
    killing = Killing(stopped, world.clock)  # type: ignore[arg-type] # asks for stop alone
    world.evicting = Evicting("n1", world.clock, killing)
    containers = (
        Container(name="main", container_id="c-main", running=True),
        Container(name="sidecar", container_id="c-side", running=True, sidecar=True),
        Container(name="done", container_id="c-done"),
    )
    world.pods = [world.pod(name, containers=containers) for name in ("a", "b")]
    world.evicting.follow(world.pods)
    return stopped


async def kill(world: World, seconds: float = 0.0) -> None:
    await world.ask(seconds)
    await world.evicting.kill_overdue(world.client)


async def test_what_is_still_there_after_ten_seconds_is_killed_once_with_its_sidecars(world: World) -> None:
    stopped = with_last_resort(world)
    world.want("a")
    await kill(world)
    await kill(world, PATIENCE_SECONDS - 1)
    assert stopped.containers == []
    await kill(world, 1)
    assert stopped.containers == ["c-main", "c-side"]
    await kill(world, 1)
    assert len(stopped.containers) == 2
    assert world.evicting.counts == {"accepted": 1, "killed": 1}
    messages = [event["message"] for event in world.server.objects[EVENTS_AT].values()]
    assert any("killed: still there 10 s" in message for message in messages)


async def test_a_budget_does_not_save_a_pod_from_memory_that_runs_out(world: World) -> None:
    stopped = with_last_resort(world)
    world.server.fail("/eviction", status(429, "TooManyRequests", BUDGET))
    world.want("a")
    await kill(world)
    assert stopped.containers == ["c-main", "c-side"]
    assert world.evicting.spared == {"ns/a"}


async def test_below_three_percent_nobody_waits(world: World) -> None:
    stopped = with_last_resort(world)
    world.evicting.follow(world.pods, available_ratio=0.02)
    world.want("a")
    await kill(world)
    assert stopped.containers == ["c-main", "c-side"]


async def test_nothing_is_killed_for_cpu_and_nothing_without_a_runtime(world: World) -> None:
    stopped = with_last_resort(world)
    world.want("a", "cpu_evict")
    await kill(world)
    await kill(world, PATIENCE_SECONDS)
    assert stopped.containers == []


async def test_an_api_server_that_is_away_does_not_keep_memory(world: World) -> None:
    stopped = with_last_resort(world)
    world.server.away = True
    world.want("a")
    for _ in range(12):
        await kill(world, 1)
    assert stopped.containers == ["c-main", "c-side"]


async def test_a_runtime_that_is_away_is_asked_again(world: World) -> None:
    stopped = with_last_resort(world)
    stopped.away = True
    world.want("a")
    await kill(world)
    await kill(world, PATIENCE_SECONDS)
    stopped.away = False
    await kill(world, 1)
    assert stopped.containers == ["c-main", "c-side"]
