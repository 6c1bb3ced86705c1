"""Rules on an API server: in force at once, refused, rolled back, and what is told of it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.kube.conftest import ApiServer
from tests.kube.following import caught_up

from cotenant.analyzer import receiving
from cotenant.analyzer.fleet import Fleet
from cotenant.analyzer.following import Following
from cotenant.analyzer.metrics import AnalyzerCollector
from cotenant.analyzer.rulebook import Rulebook
from cotenant.analyzer.writing import ClusterSink, Writer
from cotenant.kube import revisions
from cotenant.kube.client import Client
from cotenant.units.clock import ManualClock

AT_RULES = "apis/cotenant.io/v1alpha1/detectionruleconfigs"
AT_REVISIONS = "apis/apps/v1/namespaces/tests/controllerrevisions"
AT_EVENTS = "api/v1/namespaces/default/events"
AT_NODES = "api/v1/nodes"

SENSITIVE = {"hardLimits": {"psiMemoryFullRatio": 0.0001}, "hysteresis": {"hardEnterForSeconds": 2}}


class World:
    def __init__(self, server: ApiServer, opened: Client, clock: ManualClock) -> None:
        self.server, self.client, self.clock = server, opened, clock
        for listed_at in (AT_RULES, AT_REVISIONS, AT_EVENTS, AT_NODES):
            server.objects.setdefault(listed_at, {})
        self.tasks: list[asyncio.Task[None]] = []
        self.replicas: list[Following] = []

    async def replica(self, leads: bool = True) -> tuple[Fleet, Following]:
        fleet = Fleet(Rulebook(), self.clock)
        following = Following(self.client, fleet, self.clock, lambda: leads)
        self.tasks += [asyncio.create_task(following.nodes.run()), asyncio.create_task(following.rules.run())]
        self.replicas.append(following)
        await self.delivered()
        await following.tend()
        return fleet, following

    async def delivered(self) -> None:
        for one in self.replicas:
            await caught_up(self.server, one.nodes, one.rules)

    async def die(self) -> None:
        """End every replica."""
        self.replicas.clear()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.tasks.clear()

    async def apply(self, generation: int, name: str = "default", uid: str = "", **spec: Any) -> None:
        held = self.server.objects[AT_RULES].get(name, {})
        metadata = {"generation": generation, "uid": uid or f"uid-{name}"}
        kind = {"apiVersion": "cotenant.io/v1alpha1", "kind": "DetectionRuleConfig"}
        self.server.put(AT_RULES, name, **{**held, **kind, "metadata": metadata, "spec": spec})
        await self.delivered()

    def status(self, name: str = "default") -> dict[str, Any]:
        return self.server.objects[AT_RULES][name]["status"]

    def condition(self, kind: str) -> dict[str, Any] | None:
        return next((one for one in self.status()["conditions"] if one["type"] == kind), None)

    def window(self, fleet: Fleet) -> float:
        return fleet.rulebook.books["default"].engine.in_force.window_seconds


@pytest.fixture
async def world(api: ApiServer, client: Client, clock: ManualClock) -> AsyncIterator[World]:
    made = World(api, client, clock)
    yield made
    await made.die()


def stall(
    fleet: Fleet, clock: ManualClock, make_sample: Callable[..., Any], nodes: int, hurt: int, seconds: int
) -> None:
    for _ in range(seconds):
        clock.advance(1)
        for number in range(nodes):
            fleet.hear(f"n{number}", [make_sample(clock.monotonic(), thrashing=number < hurt, node=f"n{number}")])


async def test_each_valid_generation_is_kept_and_told(world: World) -> None:
    fleet, following = await world.replica()
    await world.apply(1, windowSeconds=20)
    await following.tend()
    first = world.condition("Valid")
    assert first is not None
    assert (first["status"], first["reason"], world.status()["activeGeneration"]) == ("True", "InForce", 1)
    world.clock.advance(100)
    await world.apply(2, windowSeconds=30)
    await following.tend()
    second = world.condition("Valid")
    assert second is not None
    assert (second["observedGeneration"], second["lastTransitionTime"]) == (2, first["lastTransitionTime"])
    world.clock.advance(100)
    await world.apply(3, windowSeconds=-1)
    await following.tend()
    third = world.condition("Valid")
    assert third is not None
    assert (third["status"], third["reason"], world.status()["activeGeneration"]) == ("False", "Refused", 2)
    assert third["lastTransitionTime"] > first["lastTransitionTime"]
    assert world.window(fleet) == 30
    kept = world.server.objects[AT_REVISIONS]
    assert [kept[name]["data"]["spec"]["windowSeconds"] for name in sorted(kept)] == [20, 30]
    assert kept["rules-default-1"]["metadata"]["ownerReferences"][0]["uid"] == "uid-default"


async def test_a_replica_that_does_not_lead_tells_nothing(world: World) -> None:
    fleet, following = await world.replica(leads=False)
    await world.apply(1, windowSeconds=20)
    await following.tend()
    assert world.window(fleet) == 20
    assert "status" not in world.server.objects[AT_RULES]["default"]
    assert not world.server.objects[AT_REVISIONS]


async def test_a_change_that_excludes_too_many_is_rolled_back_with_an_event_and_stays_so(
    world: World, make_sample: Callable[..., Any]
) -> None:
    fleet, following = await world.replica()
    other_fleet, _ = await world.replica(leads=False)
    await world.apply(1, windowSeconds=10)
    await following.tend()
    stall(fleet, world.clock, make_sample, nodes=10, hurt=4, seconds=12)
    await following.tend()
    assert fleet.share_of("default").limited == 0
    await world.apply(2, **SENSITIVE)
    stall(fleet, world.clock, make_sample, nodes=10, hurt=4, seconds=5)
    assert (fleet.share_of("default").limited, fleet.share_of("default").nodes) == (4, 10)
    await following.tend()
    await world.delivered()
    assert fleet.rulebook.rollbacks == 1
    rolled_back = world.condition("RolledBack")
    assert rolled_back is not None
    assert rolled_back["observedGeneration"] == 2
    assert "4 of 10 nodes" in rolled_back["message"]
    assert world.status()["activeGeneration"] == 1
    (event,) = world.server.objects[AT_EVENTS].values()
    assert (event["reason"], event["type"], event["involvedObject"]["name"]) == ("RolledBack", "Warning", "default")
    for one in (fleet, other_fleet):
        book = one.rulebook.books["default"]
        assert (book.generation, book.engine.in_force.hard_limits.psi_memory_full_ratio) == (1, 0.05)
    stall(fleet, world.clock, make_sample, nodes=10, hurt=0, seconds=30)
    await following.tend()
    assert fleet.rulebook.rollbacks == 1

    new_fleet, new = await world.replica()  # an analyzer that starts now
    await new.tend()
    book = new_fleet.rulebook.books["default"]
    assert (book.generation, book.engine.in_force.hard_limits.psi_memory_full_ratio) == (1, 0.05)
    assert world.condition("RolledBack") is not None

    await world.apply(3, windowSeconds=40)
    await following.tend()
    assert world.window(fleet) == 40
    assert world.condition("RolledBack") is None


async def in_force_after_a_change_of_leader(
    world: World, make_sample: Callable[..., Any], hurt_before: int, first: dict[str, Any], second: dict[str, Any]
) -> int:
    """Change rules, have the leader die, let four of ten nodes be hurt; return the generation that the next has."""
    fleet, following = await world.replica()
    await world.apply(1, **first)
    await following.tend()
    stall(fleet, world.clock, make_sample, nodes=10, hurt=hurt_before, seconds=16)
    await following.tend()
    await world.apply(2, **second)
    await following.tend()
    await world.die()

    new_fleet, new = await world.replica()
    stall(new_fleet, world.clock, make_sample, nodes=10, hurt=4, seconds=16)
    await new.tend()
    await world.delivered()
    return new_fleet.rulebook.books["default"].generation


async def test_a_new_leader_goes_on_with_a_trial(world: World, make_sample: Callable[..., Any]) -> None:
    assert await in_force_after_a_change_of_leader(world, make_sample, 0, {"windowSeconds": 10}, SENSITIVE) == 1
    noted = world.server.objects[AT_REVISIONS]["rules-default-2"]["metadata"]["annotations"]
    assert (noted[revisions.LIMITED_BEFORE], noted[revisions.PREVIOUS_GENERATION]) == ("0", "1")
    assert world.status()["activeGeneration"] == 1
    assert world.condition("RolledBack") is not None
    assert len(world.server.objects[AT_EVENTS]) == 1


async def test_a_new_leader_knows_who_was_limited_before_the_change(
    world: World, make_sample: Callable[..., Any]
) -> None:
    changed = {**SENSITIVE, "windowSeconds": 12}
    assert await in_force_after_a_change_of_leader(world, make_sample, 4, SENSITIVE, changed) == 2
    assert world.condition("RolledBack") is None


async def test_a_trial_that_was_over_is_not_taken_up(world: World, make_sample: Callable[..., Any]) -> None:
    _, following = await world.replica()
    await world.apply(1, windowSeconds=10)
    await following.tend()
    await world.apply(2, **SENSITIVE)
    await following.tend()
    world.clock.advance(121)
    new_fleet, new = await world.replica()
    stall(new_fleet, world.clock, make_sample, nodes=10, hurt=4, seconds=16)
    await new.tend()
    assert new_fleet.rulebook.books["default"].generation == 2


async def test_a_change_that_came_while_nobody_led_is_on_trial(world: World, make_sample: Callable[..., Any]) -> None:
    _, following = await world.replica()
    await world.apply(1, windowSeconds=10)
    await following.tend()
    await world.delivered()
    held = world.server.objects[AT_RULES]["default"]
    world.server.objects[AT_RULES]["default"] = {  # unseen by the first
        **held, "metadata": {**held["metadata"], "generation": 2}, "spec": SENSITIVE,
    }  # fmt: skip
    fleet, new = await world.replica()
    assert fleet.rulebook.books["default"].generation == 2
    stall(fleet, world.clock, make_sample, nodes=10, hurt=4, seconds=16)
    await new.tend()
    assert fleet.rulebook.books["default"].generation == 1


async def test_nothing_is_told_before_the_trials_of_an_earlier_leader_are_known(world: World) -> None:
    _, following = await world.replica(leads=False)
    await world.apply(1, windowSeconds=10)
    following._leads = lambda: True
    world.server.fail(f"GET {AT_REVISIONS}", {"code": 503, "reason": "ServiceUnavailable", "message": "later"})
    await following.tend()
    assert "status" not in world.server.objects[AT_RULES]["default"]
    await following.tend()
    assert world.status()["activeGeneration"] == 1


async def test_a_new_leader_finds_the_last_good_rules_behind_bad_ones(world: World) -> None:
    _, following = await world.replica()
    await world.apply(4, windowSeconds=25)
    await following.tend()
    await world.apply(5, windowSeconds="x")
    await following.tend()
    fleet, new = await world.replica()
    await new.tend()
    assert world.window(fleet) == 25
    assert world.status()["activeGeneration"] == 4


async def test_an_object_made_again_under_its_name_begins_a_history_of_its_own(world: World) -> None:
    fleet, following = await world.replica()
    for generation, seconds in ((1, 20), (2, 25)):
        await world.apply(generation, windowSeconds=seconds)
        await following.tend()
    world.server.remove(AT_RULES, "default")  # the garbage collector has not been at its revisions yet
    await world.apply(1, uid="uid-again", windowSeconds=30)
    await following.tend()
    assert world.window(fleet) == 30
    kept = world.server.objects[AT_REVISIONS]
    assert {name: one["data"]["spec"] for name, one in kept.items()} == {"rules-default-1": {"windowSeconds": 30}}
    assert kept["rules-default-1"]["metadata"]["ownerReferences"][0]["uid"] == "uid-again"


async def test_revisions_of_an_earlier_object_of_the_name_are_nobody_s_last_good_rules(world: World) -> None:
    _, following = await world.replica()
    await world.apply(1, windowSeconds=20)
    await following.tend()
    (left,) = world.server.objects[AT_REVISIONS].values()
    world.server.remove(AT_RULES, "default")
    await world.apply(1, uid="uid-again", windowSeconds=30)
    await following.tend()
    await world.apply(2, uid="uid-again", windowSeconds="x")
    await following.tend()
    world.server.objects[AT_REVISIONS] = {"rules-default-1": left}
    fleet, new = await world.replica()
    await new.tend()
    assert world.window(fleet) == 10, "the preset's"
    assert await revisions.history_by_name(world.client, "tests", "default") == []


async def test_an_object_made_again_between_two_lists_is_in_force(world: World) -> None:
    fleet, following = await world.replica()
    await world.apply(1, windowSeconds=20)
    again = {**world.server.objects[AT_RULES]["default"], "spec": {"windowSeconds": 30}}
    again["metadata"] = {**again["metadata"], "uid": "uid-again"}
    following._rules.replaced({"default": again})
    assert world.window(fleet) == 30


async def test_nothing_more_is_told_of_an_object_that_was_deleted_meanwhile(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    _, following = await world.replica(leads=False)
    await world.apply(1, windowSeconds=20)
    world.server.remove(AT_RULES, "default")
    await world.delivered()
    following._leads = lambda: True
    await following.tend()
    assert not world.server.objects[AT_REVISIONS]
    assert caplog.messages == []


async def test_what_is_not_a_revision_under_the_label_is_left_alone(world: World) -> None:
    labels = {revisions.RULES_LABEL: "default"}
    world.server.put(AT_REVISIONS, "theirs", metadata={"labels": labels}, revision="seven")
    value = {"metadata": {"name": "default", "generation": 1}, "spec": {}}
    await revisions.record(world.client, "tests", value)
    assert set(world.server.objects[AT_REVISIONS]) == {"theirs", "rules-default-1"}


async def test_history_is_bounded_and_rolls_back_into_the_object(world: World) -> None:
    for generation in range(1, 13):
        value = {"metadata": {"name": "default", "generation": generation}, "spec": {"windowSeconds": 9 + generation}}
        await revisions.record(world.client, "tests", value)
    await revisions.record(world.client, "tests", value)  # a second leader
    kept = await revisions.history(world.client, "tests", value)
    assert [one.revision for one in kept] == list(range(3, 13))
    world.server.put(AT_RULES, "default", metadata={"generation": 12, "labels": {"a": "b"}}, spec={"windowSeconds": 21})
    chosen = await revisions.roll_back(world.client, "tests", "default")
    assert chosen.revision == 11
    written = world.server.objects[AT_RULES]["default"]
    assert written["spec"] == {"windowSeconds": 20}
    assert written["metadata"]["labels"] == {"a": "b"}
    with pytest.raises(revisions.NoRevision, match="no revision 99; there are 3, 4"):
        await revisions.roll_back(world.client, "tests", "default", 99)


async def test_what_cannot_be_followed_is_told_in_metrics(world: World) -> None:
    fleet, following = await world.replica()
    following.nodes.failures, following.rules.malformed = 2, 3
    writer = Writer(fleet, ClusterSink(world.client), world.clock)
    receiver = receiving.Receiver(fleet, receiving.Instructions())
    told = {
        (family.name, sample.labels.get("kind")): sample.value
        for family in AnalyzerCollector(fleet, receiver, writer, lambda: True, following).collect()
        for sample in family.samples
    }
    assert told["cotenant_analyzer_watch_failures", "nodes"] == 2
    assert told["cotenant_analyzer_malformed", "rules"] == 3
