"""What is planned is what happens."""

from typing import Any

import pytest
from tests.manager.rollout import world as worlds

from cotenant.api.report import NodeCheck
from cotenant.manager.rollout import planning

NAMES = [f"n{number}" for number in range(20)]


def spec(**changes: Any) -> dict[str, Any]:
    stages = [{"name": "canary", "share": 0.1, "soakSeconds": 0}, {"name": "rest", "soakSeconds": 0}]
    return {"change": {"mode": "enforce"}, "stages": stages, **changes}


def test_the_nodes_of_each_stage_in_the_order_in_which_they_are_changed() -> None:
    world = worlds.World(spec(entry={"maxUnconfirmed": 1}), NAMES)
    for number, name in enumerate(NAMES):
        world.agents[name].interface = "anolis-bvt" if number % 2 else "mainline-idle"
    found = planning.plan(world.rollout, world.views(), frozenset())
    assert found.good
    assert [len(stage.nodes) for stage in found.stages] == [2, 18]
    assert found.stages[0].interfaces == {"anolis-bvt": 1, "mainline-idle": 1}
    planned = [name for stage in found.stages for name in stage.nodes]
    changed: list[str] = []
    for _ in range(80):
        step = world.tick()
        changed += [name for name, _ in step.hold]
    assert world.phase == "Completed"
    assert changed == planned


def test_who_is_left_out_and_what_stops_it() -> None:
    world = worlds.World(spec(), NAMES)
    for name in NAMES[:3]:
        world.agents[name].check = NodeCheck(irreversible=False, conflicts=["koordlet"])
    world.agents["n3"].mode = None
    found = planning.plan(world.rollout, world.views(), frozenset())
    assert not found.good
    assert {one.name: one.reason for one in found.left_out} == dict.fromkeys(NAMES[:3], "its check finds koordlet") | {
        "n3": "no report that holds"
    }
    assert any("would be left out" in stage.obstacle for stage in found.stages)


@pytest.mark.parametrize(
    ("stage", "obstacle"),
    [
        ({"nodeSelector": {"pool": "none"}}, "it has no node"),
        ({"nodeSelector": {"pool": "none"}, "optional": True}, ""),
    ],
)
def test_a_stage_without_a_node(stage: dict[str, Any], obstacle: str) -> None:
    world = worlds.World(spec(stages=[{"name": "a", **stage}, {"name": "rest"}]), NAMES)
    assert planning.plan(world.rollout, world.views(), frozenset()).stages[0].obstacle == obstacle


def test_a_stage_whose_nodes_are_all_taken_is_no_obstacle() -> None:
    world = worlds.World(spec(stages=[{"name": "a"}, {"name": "b"}]), NAMES[:1])
    found = planning.plan(world.rollout, world.views(), frozenset())
    assert found.good
    assert found.stages[1].nodes == []


def test_what_cannot_be_meant_and_who_is_in_no_stage() -> None:
    world = worlds.World(spec(stages=[{"name": "a", "share": 0.5}], entry={"require": ["warp-drive"]}), NAMES)
    found = planning.plan(world.rollout, world.views(), frozenset())
    assert found.unreached == 10
    assert "no feature warp-drive" in found.problems[0]
