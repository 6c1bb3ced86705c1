"""The state machine, by example; its invariants under whatever happens are in test_invariants.py."""

from typing import Any

import msgspec
import pytest
from tests.manager.rollout import world as worlds

from cotenant.api.marks import MODE_LABEL
from cotenant.api.report import AgentCounts, NodeCheck
from cotenant.api.rollout import HOLD_ANNOTATION, RULES_LABEL, SLO_REVISION
from cotenant.manager.rollout import machine, view

NAMES = [f"n{number}" for number in range(20)]
SPEC: dict[str, Any] = {
    "change": {"mode": "enforce"},
    "stages": [
        {"name": "canary", "share": 0.05, "soakSeconds": 60},
        {"name": "rest", "soakSeconds": 60},
    ],
    "gates": {"interferenceLevel": {"max": 0.5}},
    "stopping": {"failSeconds": 30, "unknownSeconds": 120},
}


@pytest.fixture
def world() -> worlds.World:
    return worlds.World(SPEC, NAMES)


def canary(world: worlds.World) -> worlds.Agent:
    """Run until the canary soaks and return the one node's agent."""
    world.run(3)
    (name,) = world.changed()
    return world.agents[name]


def test_stage_by_stage_to_the_end(world: worlds.World) -> None:
    world.tick()
    assert len(world.changed()) == 1
    world.run(8)
    assert len(world.changed()) == 11, "the first batch of the second stage: ten unconfirmed at most"
    world.run(12)
    assert world.phase == "Completed"
    assert {labels.get(MODE_LABEL) for labels in world.labels().values()} == {"enforce"}
    assert world.changed() == set(), "a finished rollout leaves its change and nothing of its own"
    assert world.reasons()[-2:] == ["StagePassed", "Completed"]


def test_a_failing_gate_takes_everything_back_with_its_reason(world: worlds.World) -> None:
    before = world.labels()
    agent = canary(world)
    agent.level = 0.9
    world.run(5)
    assert world.phase == "RolledBack"
    assert world.labels() == before
    stopped = world.rollout.status.stopped
    assert stopped is not None
    assert stopped.reason == "GateFailed"
    assert [(one.type, one.reason) for one in world.rollout.status.conditions if one.status == "True"] == [
        ("Stopped", "GateFailed")
    ]
    assert "1 of 1 nodes above 0.5" in stopped.message
    assert world.reasons().count("RollingBack") == 1


def test_a_short_failure_is_forgiven_and_starts_the_soak_anew(world: worlds.World) -> None:
    agent = canary(world)
    assert world.rollout.status.stages[0].soaked_seconds > 0
    agent.level = 0.9
    world.run(2)
    assert world.rollout.status.stages[0].soaked_seconds == 0
    agent.level = 0.1
    world.run(5)
    assert len(world.changed()) == 1
    assert world.phase == "Soaking"


def test_a_failing_gate_may_only_pause_and_resume_goes_on(world: worlds.World) -> None:
    world.edit(stopping=msgspec.structs.replace(world.rollout.spec.stopping, on_failure="pause"))
    agent = canary(world)
    agent.level = 0.9
    world.run(6)
    assert world.phase == "Paused"
    assert len(world.changed()) == 1
    agent.level = 0.1
    world.run(30)
    assert world.phase == "Paused", "what stopped by itself waits for a person"
    world.edit(attempt=1)
    world.run(30)
    assert world.phase == "Completed"


def test_unknown_is_waited_for_and_then_stops(world: worlds.World) -> None:
    agent = canary(world)
    agent.mode = None  # no report any more
    world.run(11)
    assert world.rollout.status.stopped is None
    assert len(world.changed()) == 1
    world.run(3)
    assert world.phase == "Paused"
    assert world.rollout.status.stopped is not None
    assert world.rollout.status.stopped.reason == "GateUnknown"


def test_a_stage_without_nodes_waits_and_stops_unless_it_is_optional(world: worlds.World) -> None:
    stages = [{"name": "typo", "nodeSelector": {"pool": "canray"}}, {"name": "rest"}]
    typo = worlds.World(SPEC | {"stages": stages}, NAMES)
    typo.run(14)
    assert typo.phase == "Paused"
    assert typo.changed() == set()
    assert "it has no node" in typo.rollout.status.message
    stages[0]["optional"] = True  # type: ignore[assignment]
    optional = worlds.World(SPEC | {"stages": stages}, NAMES)
    optional.run(2)
    assert len(optional.changed()) == 10


def test_paused_changes_nothing_and_counts_no_time(world: worlds.World) -> None:
    canary(world)
    soaked = world.rollout.status.stages[0].soaked_seconds
    world.edit(paused=True)
    world.run(30)
    assert world.phase == "Paused"
    assert len(world.changed()) == 1
    world.edit(paused=False)
    world.tick()
    assert world.phase == "Soaking"
    assert world.rollout.status.stages[0].soaked_seconds <= soaked + 10


def test_abort_puts_back_what_was_there_and_leaves_what_a_person_changed() -> None:
    world = worlds.World(SPEC | {"stages": [{"name": "all"}]}, NAMES, {"n0": {MODE_LABEL: "dry-run"}})
    world.run(6)
    assert len(world.changed()) == 20
    world.label("n1", MODE_LABEL, "dry-run")
    world.label("n2", MODE_LABEL, None)
    world.edit(abort=True)
    world.run(3)
    assert world.phase == "RolledBack"
    assert world.changed() == set()
    modes = {name: labels.get(MODE_LABEL) for name, labels in world.labels().items()}
    assert modes == dict.fromkeys(NAMES) | {"n0": "dry-run", "n1": "dry-run"}


def test_a_rolled_back_rollout_starts_over_when_resumed(world: worlds.World) -> None:
    agent = canary(world)
    agent.level = 0.9
    world.run(6)
    agent.level = 0.1
    world.run(20)
    assert world.phase == "RolledBack"
    world.edit(attempt=1)
    world.tick()
    assert len(world.changed()) == 1
    world.run(30)
    assert world.phase == "Completed"


def test_the_node_s_own_check_gates_its_entry(world: worlds.World) -> None:
    spec = SPEC | {"stages": [{"name": "all"}], "entry": {"require": ["psi"], "maxLeftOutShare": 0.2}}
    world = worlds.World(spec, NAMES)
    world.agents["n3"].check = NodeCheck(irreversible=False, conflicts=["koordlet"])
    world.agents["n4"].check = NodeCheck(irreversible=False, missing=["psi"])
    world.agents["n5"].interface = "openeuler-qos-level"
    world.agents["n5"].check = NodeCheck(irreversible=True)
    world.agents["n6"].check = None
    world.run(10)
    assert set(NAMES) - world.changed() == {"n3", "n4", "n5", "n6"}
    left_out = {one.name: one.reason for one in world.rollout.status.left_out}
    assert left_out == {
        "n3": "its check finds koordlet",
        "n4": "its check misses psi",
        "n5": "writes of openeuler-qos-level cannot be taken back: irreversibleWrites",
        "n6": "its report has no check",
    }
    stage = world.rollout.status.stages[0]
    assert (stage.nodes, stage.changed, stage.refused, stage.waiting) == (20, 16, 3, 1)
    world.run(70)
    assert world.phase == "Completed"


def test_what_a_gate_could_never_tell_is_not_entered() -> None:
    gate = {"interferenceLevel": {"maxIncrease": 0.1}}
    world = worlds.World(SPEC | {"stages": [{"name": "all"}], "gates": gate}, ["n1", "n2", "n3"])
    world.agents["n1"].level = None
    world.agents["n2"].counts = None
    world.run(3)
    assert world.changed() == {"n3"}
    assert {one.name for one in world.rollout.status.left_out} == {"n1", "n2"}


def test_conditions_for_who_waits() -> None:
    world = worlds.World(SPEC | {"stages": [{"name": "all", "soakSeconds": 0}]}, ["n1"])
    world.tick()
    assert {one.type: one.status for one in world.rollout.status.conditions} == {
        "Complete": "False",
        "Stopped": "False",
    }
    since = world.rollout.status.conditions[0].last_transition_time
    world.tick()
    assert world.rollout.status.conditions[0].last_transition_time == since
    world.run(5)
    complete, stopped = world.rollout.status.conditions
    assert (complete.type, complete.status, stopped.status) == ("Complete", "True", "False")
    assert complete.last_transition_time != since


def test_too_many_nodes_left_out_stop_the_stage() -> None:
    world = worlds.World(SPEC | {"stages": [{"name": "all"}]}, NAMES)
    for name in NAMES[:3]:
        world.agents[name].check = NodeCheck(irreversible=False, conflicts=["koordlet"])
    world.run(20)
    assert world.phase == "Paused"
    assert world.rollout.status.stopped is not None
    assert "3 of its 20 nodes are left out" in world.rollout.status.stopped.message


def test_irreversible_writes_are_allowed_by_interface() -> None:
    spec = SPEC | {"gates": {"irreversibleWrites": {"allowedInterfaces": ["openeuler-qos-level"]}}}
    world = worlds.World(spec | {"stages": [{"name": "all"}]}, ["n1"])
    world.agents["n1"] = worlds.Agent(interface="openeuler-qos-level", check=NodeCheck(irreversible=True))
    world.run(2)
    assert world.changed() == {"n1"}
    world.agents["n1"].counts = AgentCounts(started_at="s1", irreversible_writes=9)
    world.run(5)
    assert world.phase == "Soaking"


def test_an_agent_that_never_takes_the_change_holds_the_rest_back(world: worlds.World) -> None:
    for agent in world.agents.values():
        agent.obeys = False
    world.run(40)
    assert len(world.changed()) == 1
    assert world.phase == "Paused"


def test_latency_is_measured_before_the_stage_and_held_to_it() -> None:
    world = worlds.World(SPEC | {"gates": {"onlineLatency": {"maxIncreaseRatio": 0.1}}}, NAMES)
    world.latencies = {"shop/redis": None}
    world.run(3)
    assert world.changed() == set(), "waits for the latency from before the change"
    world.latencies = {"shop/redis": 0.010, "shop/web": 0.5}
    world.run(3)
    assert len(world.changed()) == 1
    before = {one.service: one.seconds for one in world.rollout.status.stages[0].latency_before}
    assert before == world.latencies
    world.latencies["shop/redis"] = 0.0109
    world.run(2)
    assert {gate.name: gate.state for gate in world.rollout.status.gates}["onlineLatency"] == "passing"
    world.latencies["shop/redis"] = 0.012
    world.run(6)
    assert world.phase == "RolledBack"
    assert world.rollout.status.stopped is not None
    assert "shop/redis: P99 12 ms, 10 ms before the change: 20% up" in world.rollout.status.stopped.message


def test_a_latency_beyond_the_last_bucket_is_no_measure_of_before() -> None:
    world = worlds.World(SPEC | {"gates": {"onlineLatency": {"maxIncreaseRatio": 0.1}}}, NAMES)
    world.latencies, world.beyond = {"shop/redis": 10.0}, frozenset({"shop/redis"})
    world.run(3)
    assert world.changed() == set()
    world.beyond = frozenset()
    world.run(3)
    assert len(world.changed()) == 1


@pytest.mark.parametrize("services", [[], ["shop/redis"]])
def test_a_service_that_was_known_and_is_not_any_more_is_unknown(services: list[str]) -> None:
    gate = {"maxIncreaseRatio": 0.1, "services": services}
    world = worlds.World(SPEC | {"gates": {"onlineLatency": gate}}, NAMES)
    world.latencies = {"shop/redis": 0.010, "shop/web": 0.5}
    world.run(3)
    del world.latencies["shop/redis"]
    world.run(2)
    assert {gate.name: gate.state for gate in world.rollout.status.gates}["onlineLatency"] == "unknown"


def test_a_restart_goes_on_where_it_was_and_unwatched_time_does_not_count(world: worlds.World) -> None:
    canary(world)
    soaked = world.rollout.status.stages[0].soaked_seconds
    world.wall += 3600
    step = world.decide(0.0)  # what a new manager decides first
    assert step.hold == ()
    assert step.status.phase == "Soaking"
    assert step.status.stages[0].soaked_seconds == soaked


def test_a_revision_is_made_ready_first_and_everybody_s_at_the_end() -> None:
    spec = SPEC | {"change": {"nodeSLO": "7", "rules": {"revision": 3}}, "stages": [{"name": "all", "soakSeconds": 0}]}
    world = worlds.World(spec, ["n1"])
    world.target = view.TargetState(ready=False, promoted=False, discarded=False, message="no revision 7 yet")
    step = world.tick()
    assert (step.target, world.phase, world.changed()) == ("prepare", "Pending", set())
    world.target = view.TargetState(ready=True, promoted=False, discarded=False)
    world.tick()
    assert world.labels() == {"n1": {SLO_REVISION: "7", RULES_LABEL: "r"}}
    world.agents["n1"].obeys = False
    facts = world.view("n1").facts
    assert facts is not None
    assert world.view("n1").confirmed is None, "the agent does not say which NodeSLO it has"


def test_what_is_promoted_is_let_go_and_cleaned_up() -> None:
    spec = SPEC | {
        "change": {"mode": "enforce", "rules": {"revision": 3}},
        "stages": [{"name": "all", "soakSeconds": 0}],
    }
    world = worlds.World(spec, ["n1"])
    world.target = view.TargetState(promoted=False, discarded=False)
    world.run(3)
    assert world.tick().target == "promote"
    world.target = view.TargetState(promoted=True, discarded=False)
    world.tick()
    world.act(machine.Step(world.rollout.status, finish=("n1",)))
    assert world.tick().target == "discard"
    world.target = view.TargetState()
    world.tick()
    assert world.phase == "Completed"


def test_rules_that_turn_out_bad_are_taken_back(world: worlds.World) -> None:
    canary(world)
    world.target = view.TargetState(problem="rules r are refused: unknown signal")
    world.run(2)
    assert world.phase == "RolledBack"
    assert world.changed() == set()


def test_an_edited_change_stops(world: worlds.World) -> None:
    canary(world)
    world.edit(change=msgspec.structs.replace(world.rollout.spec.change, mode="dry-run"))
    world.tick()
    assert world.phase == "Paused"
    assert world.rollout.status.stopped is not None
    assert world.rollout.status.stopped.reason == "ChangeEdited"


def test_a_node_that_another_rollout_holds_is_left_to_it_while_that_is_under_way() -> None:
    world = worlds.World(SPEC | {"stages": [{"name": "all"}]}, ["n1", "n2"])
    held = '{"rollout":"other","uid":"uid-2","stage":"s","at":"","set":{"cotenant.io/mode":"observe"},"was":{"cotenant.io/mode":null}}'  # noqa: E501
    world.nodes["n1"]["metadata"]["annotations"][HOLD_ANNOTATION] = held
    world.others = frozenset({"uid-2"})
    world.run(3)
    assert world.labels()["n1"] == {}
    assert world.rollout.status.left_out[0].reason == "rollout other holds it"
    world.others = frozenset()
    world.run(2)
    assert world.labels()["n1"] == {MODE_LABEL: "enforce"}


def test_an_annotation_that_nobody_can_read_is_left_alone() -> None:
    world = worlds.World(SPEC | {"stages": [{"name": "all"}]}, ["n1", "n2"])
    world.nodes["n1"]["metadata"]["annotations"][HOLD_ANNOTATION] = "{"
    world.run(3)
    world.edit(abort=True)
    world.run(3)
    assert world.phase == "RolledBack"
    assert world.nodes["n1"]["metadata"]["annotations"] == {HOLD_ANNOTATION: "{"}
    assert world.labels() == {"n1": {}, "n2": {}}


def test_a_node_that_joins_a_passed_stage_is_changed_too(world: worlds.World) -> None:
    world.edit(
        stages=[*world.rollout.spec.stages[:1], msgspec.structs.replace(world.rollout.spec.stages[1], soak_seconds=600)]
    )
    world.run(20)
    assert len(world.changed()) == 20
    world.add("late")
    world.run(3)
    assert "late" in world.changed()
