"""Whatever happens to nodes, agents, people and managers: what a rollout must never do, and what it must reach."""

import dataclasses
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.manager.rollout import world as worlds

from cotenant.api.marks import MODE_LABEL
from cotenant.api.report import AgentCounts, NodeCheck
from cotenant.api.rollout import Stage
from cotenant.manager.rollout import machine, membership
from cotenant.manager.rollout.view import NodeView

NAMES = [f"n{number}" for number in range(8)]
SPEC: dict[str, Any] = {
    "change": {"mode": "enforce"},
    "stages": [
        {"name": "first", "share": 0.2, "soakSeconds": 40},
        {"name": "second", "share": 0.6, "soakSeconds": 40},
        {"name": "rest", "soakSeconds": 40},
    ],
    "entry": {"maxUnconfirmed": 2, "maxLeftOutShare": 0.3},
    "gates": {"interferenceLevel": {"max": 0.5, "maxIncrease": 0.3}, "evictions": {"maxPerNodeHour": 5}},
    "stopping": {"failSeconds": 20, "unknownSeconds": 60},
}

events = st.one_of(
    st.tuples(st.just("level"), st.sampled_from(NAMES), st.sampled_from([None, 0.05, 0.2, 0.9])),
    st.tuples(st.just("silent"), st.sampled_from(NAMES), st.booleans()),
    st.tuples(st.just("obeys"), st.sampled_from(NAMES), st.booleans()),
    st.tuples(st.just("evicts"), st.sampled_from(NAMES), st.integers(0, 9)),
    st.tuples(st.just("conflict"), st.sampled_from(NAMES), st.booleans()),
    st.tuples(st.just("person"), st.sampled_from(NAMES), st.sampled_from([None, "dry-run", "observe", "enforce"])),
    st.tuples(st.just("paused"), st.just(""), st.booleans()),
    st.tuples(st.just("resume"), st.just(""), st.none()),
    st.tuples(st.just("abort"), st.just(""), st.none()),
    st.tuples(st.just("add"), st.sampled_from(["x1", "x2"]), st.none()),
    st.tuples(st.just("remove"), st.sampled_from(NAMES), st.none()),
    st.tuples(st.just("restart"), st.just(""), st.sampled_from(["nothing", "kept", "half"])),
    st.tuples(st.just("time"), st.just(""), st.integers(1, 6)),
)


def happen(world: worlds.World, what: str, name: str, value: Any) -> None:
    """Have one thing happen to the world that is no business of the rollout's."""
    agent = world.agents.get(name)
    if what == "person" and name in world.nodes:
        world.label(name, MODE_LABEL, value)
    elif what == "paused":
        world.edit(paused=value)
    elif what == "resume":
        world.edit(attempt=world.rollout.spec.attempt + 1, abort=False, paused=False)
    elif what == "abort":
        world.edit(abort=True)
    elif what == "add" and name not in world.nodes:
        world.add(name)
    elif what == "remove":
        world.nodes.pop(name, None)
        world.agents.pop(name, None)
    elif agent is None:
        return
    elif what == "level":
        agent.level = value
    elif what == "silent":
        agent.mode = None if value else "observe"
    elif what == "obeys":
        agent.obeys = value
    elif what == "evicts":
        agent.counts = AgentCounts(started_at="s1", evictions=value)
    elif what == "conflict":
        agent.check = NodeCheck(irreversible=False, conflicts=["koordlet"] if value else [])


def check(world: worlds.World, step: machine.Step) -> None:
    """Hold one decision against what must never be."""
    spec, status = world.rollout.spec, step.status
    if not step.hold:
        return
    names = [name for name, _ in step.hold]
    assert len(names) == len(set(names))
    assert not spec.paused
    assert not spec.abort
    assert not step.release
    assert status.stopped is None
    views = {view.name: view for view in world.views()}
    mine = [view for view in views.values() if view.hold is not None]
    intact = [view for view in mine if not view.overridden]
    # Never ahead of a gate, by what is known and not by what the machine says of it.
    known = [view.level for view in intact if view.level is not None]
    assert all(level <= 0.5 for level in known)
    assert len(known) >= 0.9 * len(intact)
    assert all(view.facts is not None and view.facts.check and not view.facts.check.conflicts for view in intact)
    # Never more than two that have not confirmed.
    assert sum(view.confirmed is not True for view in intact) + len(names) <= 2
    for name, hold in step.hold:
        view = views[name]
        assert view.hold is None, "changed once"
        assert view.facts is not None
        assert view.facts.check is not None
        assert not view.facts.check.conflicts
        index = [stage.name for stage in spec.stages].index(hold.stage)
        assert all(stage.passed for stage in status.stages[:index]), "before an earlier stage has passed"
        assert hold.was == {MODE_LABEL: view.labels.get(MODE_LABEL)}


def one_tick(world: worlds.World, crash: str = "") -> machine.Step:
    """Let ten seconds pass; ``crash``: where the manager dies, so that its next step starts with no time watched."""
    world.wall += 10
    world.obey()
    step = world.decide(0.0 if crash else 10.0)
    check(world, step)
    if crash == "nothing":
        return step
    before = {stage.name: stage for stage in world.rollout.status.stages}
    for stage in step.status.stages:
        if stage.name in before and step.status.attempt == world.rollout.status.attempt:
            assert stage.soaked_seconds <= before[stage.name].soaked_seconds + 10
            if stage.passed and not before[stage.name].passed and stage.nodes:
                wanted = next(one.soak_seconds for one in world.rollout.spec.stages if one.name == stage.name)
                assert stage.soaked_seconds >= wanted
    world.keep(step)
    world.act(step, 1 if crash == "half" else 0 if crash == "kept" else 10_000)
    return step


@settings(max_examples=80)
@given(st.lists(events, max_size=40), st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["observe", "dry-run"])))
def test_whatever_happens(happenings: list[tuple[str, str, Any]], labelled: dict[str, str]) -> None:
    world = worlds.World(SPEC, NAMES, {name: {MODE_LABEL: mode} for name, mode in labelled.items()})
    original = world.labels()
    people: dict[str, str | None] = {}
    for what, name, value in happenings:
        happen(world, what, name, value)
        if what == "person" and name in world.nodes and world.phase != "Completed":
            people[name] = value
        if what == "restart":
            one_tick(world, crash=value)
        for _ in range(value if what == "time" else 1):
            one_tick(world)

    # Whatever that led to: an abort ends with every node as it was, or as a person left it.
    if world.phase == "Completed":
        assert world.changed() == set()
        return
    world.edit(abort=True)
    for _ in range(4):
        one_tick(world)
    assert world.phase in ("RolledBack", "Completed")
    assert world.changed() == set()
    if world.phase == "Completed":
        return
    for name, labels in world.labels().items():
        if name not in people:
            assert labels == original.get(name, {}), name


@settings(max_examples=25)
@given(st.integers(1, 25), st.randoms(use_true_random=False))
def test_calm_nodes_always_reach_the_end_with_restarts_in_between(count: int, random: Any) -> None:
    world = worlds.World(SPEC, [f"m{number}" for number in range(count)])
    for _ in range(30 + 6 * count):
        one_tick(world, crash=random.choice(["", "", "", "nothing", "kept", "half"]))
    for _ in range(40):
        one_tick(world)
    assert world.phase == "Completed"
    assert all(labels == {MODE_LABEL: "enforce"} for labels in world.labels().values())


@settings(max_examples=30)
@given(st.lists(events, max_size=12))
def test_the_same_state_leads_to_the_same_decision(happenings: list[tuple[str, str, Any]]) -> None:
    world = worlds.World(SPEC, NAMES)
    for what, name, value in happenings:
        happen(world, what, name, value)
        one_tick(world)
    again = msgspec.json.decode(msgspec.json.encode(world.rollout), type=type(world.rollout))
    first = world.decide(10.0)
    world.rollout = again
    second = world.decide(10.0)
    assert msgspec.json.encode(dataclasses.asdict(first)) == msgspec.json.encode(dataclasses.asdict(second))


stages = st.lists(st.floats(0.01, 1.0), min_size=1, max_size=5).map(
    lambda shares: [Stage(name=f"s{index}", share=share) for index, share in enumerate(shares)]
)
fleets = st.dictionaries(
    st.text("abcdefgh0123456789", min_size=1, max_size=6),
    st.sampled_from(["anolis-bvt", "mainline-idle", None]),
    max_size=40,
)


@settings(max_examples=40)
@given(stages, fleets, st.sampled_from(["anolis-bvt", "mainline-idle"]))
def test_membership_is_stable_when_nodes_come_and_go(
    chosen: list[Stage], interfaces: dict[str, str | None], kind: str
) -> None:
    fleet = {name: NodeView(name=name, interface=interface) for name, interface in interfaces.items()}
    before = membership.assign(chosen, fleet.values(), "")
    assert before == membership.assign(chosen, reversed(fleet.values()), "")
    joined = dict(fleet) | {"joins": NodeView(name="joins", interface=kind)}
    after = membership.assign(chosen, joined.values(), "")
    moved = [name for name in before if before[name] != after.get(name)]
    assert len(moved) <= len(chosen)
    assert all(fleet[name].interface == kind for name in moved)


@settings(max_examples=40)
@given(stages, fleets)
def test_each_stage_reaches_its_share_of_each_interface(chosen: list[Stage], interfaces: dict[str, str | None]) -> None:
    fleet = [NodeView(name=name, interface=interface) for name, interface in interfaces.items()]
    found = membership.assign(chosen, fleet, "")
    for kind in set(interfaces.values()):
        alike = [view.name for view in fleet if view.interface == kind]
        for index in range(len(chosen)):
            reached = sum(found.get(name, len(chosen)) <= index for name in alike)
            most = max(stage.share for stage in chosen[: index + 1])
            assert reached >= max(1.0, most * len(alike) - 1e-6)
            assert reached < most * len(alike) + 1 + 1e-6
