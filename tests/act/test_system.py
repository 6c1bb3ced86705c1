from collections.abc import Callable
from typing import Any

import pytest
from tests.act.machine import Machine

from cotenant.act import system

Make = Callable[..., Machine]
VM = "proc/sys/vm"


def node_with(machine: Make, gib: int = 32) -> tuple[Machine, dict[str, Any]]:
    node = machine()
    node.extra = {
        f"{VM}/min_free_kbytes": "67584\n",
        f"{VM}/watermark_scale_factor": "10\n",
        "sys/kernel/debug/sched_features": "GENTLE NO_ID_IDLE_AVG\n",
    }
    return node, {"status": {"capacity": {"cpu": "8", "memory": f"{gib}Gi"}}}


@pytest.mark.parametrize(
    ("gib", "factor", "value", "valid"),
    [
        (32, 100, 335_544, True),
        (1, 50, 5242, False),
        (4, 10, 4194, False),
        (512, 100, 5_368_709, True),
        (2048, 100, 21_474_836, False),
    ],
)
def test_min_free_kbytes(machine: Make, gib: int, factor: int, value: int, valid: bool) -> None:
    assert system.min_free_kbytes(gib << 30, factor) == value
    node, described = node_with(machine, gib)
    plan = node.plan({"systemStrategy": {"minFreeKbytesFactor": factor}}, node=described)
    assert [item.new for item in plan.items] == ([str(value)] if valid else [])
    assert bool(plan.notices) is not valid


def test_only_what_the_policy_sets_is_written(machine: Make) -> None:
    node, described = node_with(machine)
    assert node.plan({"systemStrategy": {}}, node=described).items == ()
    plan = node.plan({"systemStrategy": {"watermarkScaleFactor": 150}}, node=described)
    assert [(item.path, item.old, item.new) for item in plan.items] == [(f"{VM}/watermark_scale_factor", "10", "150")]


def test_a_factor_below_the_kernels_range_is_named_and_not_written(machine: Make) -> None:
    node, described = node_with(machine)
    plan = node.plan({"systemStrategy": {"watermarkScaleFactor": 5}}, node=described)
    assert plan.items == ()
    assert any("watermarkScaleFactor: 5" in text for text in plan.notices)


def test_features_are_toggled_one_word_at_a_time(machine: Make) -> None:
    node, described = node_with(machine)
    wanted = {"systemStrategy": {"schedFeatures": {"ID_IDLE_AVG": True, "GENTLE": True, "UNKNOWN": True}}}
    plan = node.plan(wanted, node=described)
    assert [(item.path, item.new) for item in plan.items] == [("sys/kernel/debug/sched_features", "ID_IDLE_AVG")]
    assert any("UNKNOWN" in text for text in plan.notices)


def test_a_file_that_this_kernel_lacks_is_named(machine: Make) -> None:
    node, described = node_with(machine)
    plan = node.plan({"systemStrategy": {"memcgReapBackGround": 1}}, node=described)
    assert plan.items == ()
    assert any("memcg_reaper" in text for text in plan.notices)


def test_group_identity_is_switched_on_only_after_core_scheduling_is_off(machine: Make) -> None:
    node = machine("anolis-bvt")
    node.kernel.write("proc/sys/kernel/sched_core", "1")
    plan = node.enforce({"systemStrategy": {"schedGroupIdentityEnabled": 1}})
    assert [(str(item.path).rpartition("/")[2], item.new) for item in plan.items] == [
        ("sched_core", "0"),
        ("sched_group_identity_enabled", "1"),
    ]
