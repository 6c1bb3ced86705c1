from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.act.machine import Machine, steps

from cotenant.act import resctrl

Make = Callable[..., Machine]
BASE = "sys/fs/resctrl"


def slo(**classes: dict[str, Any]) -> dict[str, Any]:
    return {"resourceQOSStrategy": {f"{n}Class": {"resctrlQOS": {"enable": True, **v}} for n, v in classes.items()}}


def mounted(node: Machine, schemata: str = "L3:0=7ff;1=7ff\n    MB:0=100;1=100", closids: int = 8) -> None:
    node.resctrl = BASE
    node.extra = {
        f"{BASE}/schemata": schemata + "\n",
        f"{BASE}/tasks": "1\n",
        f"{BASE}/info/L3/cbm_mask": "7ff\n",
        f"{BASE}/info/L3/min_cbm_bits": "1\n",
        f"{BASE}/info/L3/num_closids": f"{closids}\n",
        f"{BASE}/info/MB/num_closids": f"{closids}\n",
        f"{BASE}/info/MB/bandwidth_gran": "10\n",
        f"{BASE}/info/MB/min_bandwidth": "10\n",
    }


@pytest.mark.parametrize(
    ("ways", "start", "end", "mask"),
    [
        (11, 0, 30, "f"), (20, 0, 30, "3f"), (11, 10, 50, "3c"), (15, 0, 30, "1f"), (20, 0, 1, "1"), (10, 10, 80, "fe"),
        (11, 1, 5, "2"), (20, 0, 100, "fffff"),
    ],
)  # fmt: skip
def test_cache_masks(ways: int, start: int, end: int, mask: str) -> None:
    assert f"{resctrl.cache_mask(ways, start, end):x}" == mask


@given(ways=st.integers(1, 32), start=st.integers(0, 99), length=st.integers(1, 100), least=st.integers(1, 4))
def test_a_mask_is_contiguous_inside_the_cache_and_never_too_small(
    ways: int, start: int, length: int, least: int
) -> None:
    mask = resctrl.cache_mask(ways, start, min(start + length, 100), least)
    assert 0 < mask < 1 << ways
    assert mask.bit_count() >= min(least, ways)
    lowest = mask & -mask
    assert (mask // lowest) & (mask // lowest + 1) == 0


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        resctrl.cache_mask(11, 30, 30)


@pytest.mark.parametrize(
    ("percent", "units"), [(1, 1), (10, 16), (30, 48), (50, 80), (90, 144), (99, 158), (100, 2048)]
)
def test_bandwidth_on_amd(percent: int, units: int) -> None:
    assert resctrl.bandwidth(percent, amd=True) == units


@pytest.mark.parametrize(
    ("percent", "value"), [(1, 10), (9, 10), (10, 10), (11, 20), (35, 40), (90, 90), (91, 100), (99, 100), (100, 100)]
)
def test_bandwidth_on_intel(percent: int, value: int) -> None:
    assert resctrl.bandwidth(percent, amd=False) == value


def test_a_class_gets_a_group_with_a_line_for_every_cache_and_all_threads(machine: Make) -> None:
    node = machine()
    mounted(node, "L3:0=7ff;16=7ff\n    MB:0=100;16=100")
    group = node.pod("be", "BestEffort", "BE")
    node.group(f"{node.container(group)}/nested")
    one = node.kernel.spawn(node.path("cpu", node.container(group), ""))
    two = node.kernel.spawn(node.path("cpu", f"{node.container(group)}/nested", ""), tgid=one)
    plan = node.plan(slo(be={"mbaPercent": 35}))
    assert [item.path for item in steps(plan, "mkdir")] == [f"{BASE}/BE"]
    written = {item.path: item.new for item in steps(plan, "write")}
    assert written == {f"{BASE}/BE/schemata": "L3:0=f;16=f\nMB:0=40;16=40"}
    moves = [(item.path, item.old, item.new) for item in steps(plan, "move_task")]
    assert moves == [(f"{BASE}/BE/tasks", BASE, str(task)) for task in (one, two)]
    assert [item.op for item in plan.items][:2] == ["mkdir", "write"]


def test_what_is_right_already_is_not_written_again(machine: Make) -> None:
    node = machine()
    mounted(node)
    group = node.pod("be", "BestEffort", "BE")
    task = node.kernel.spawn(node.path("cpu", node.container(group), ""))
    node.extra |= {f"{BASE}/BE/schemata": "    L3:0=00f;1=00f\n    MB:0=100;1=100\n", f"{BASE}/BE/tasks": f"{task}\n"}
    assert node.plan(slo(be={})).items == ()


def test_without_a_group_left_the_class_stays_and_that_is_said(machine: Make) -> None:
    node = machine()
    mounted(node, closids=2)
    node.extra[f"{BASE}/LS/schemata"] = "L3:0=7ff;1=7ff\n"
    plan = node.plan(slo(be={}))
    assert plan.items == ()
    assert any("no resctrl group left" in text for text in plan.left_out)


def test_amd_is_seen_by_its_units_and_megabytes_a_second_are_left_alone(machine: Make) -> None:
    node = machine()
    mounted(node, "L3:0=7ff\nMB:0=2048")
    assert any("MB:0=80" in (item.new or "") for item in node.plan(slo(be={"mbaPercent": 50})).items)
    mounted(node, "L3:0=7ff\nMB:0=4294967295")
    plan = node.plan(slo(be={"mbaPercent": 50}))
    assert not any("MB" in (item.new or "") for item in plan.items)
    assert any("mba_MBps" in text for text in plan.notices)


def test_not_mounted_is_said_and_a_group_of_ours_is_removed_at_the_end(machine: Make) -> None:
    node = machine()
    assert any("not mounted" in text for _, text in node.plan(slo(be={})).skipped)
    mounted(node)
    node.extra[f"{BASE}/BE/schemata"] = "L3:0=f;1=f\n"
    plan = node.plan({}, journal={f"{BASE}/BE/schemata": "L3:0=7ff;1=7ff"})
    assert [(item.op, item.path) for item in plan.items] == [("rmdir", f"{BASE}/BE")]
