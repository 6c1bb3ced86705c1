"""A node's strategy: defaults, the ConfigMap's fields, and the node's own words over them."""

import json
from fractions import Fraction

import pytest

from cotenant.manager.overcommit import names, strategy


def test_the_defaults_are_koordinators() -> None:
    found = strategy.of({}, {}, {}).strategy
    assert not found.enable
    assert found.reclaim_percent == {"cpu": 60, "memory": 65}
    assert found.policy == {"cpu": "usage", "memory": "usage"}
    assert found.batch_percent == {"cpu": None, "memory": None}
    assert found.mid_percent == {"cpu": 100, "memory": 100}
    assert (found.mid_unallocated_percent, found.mid_static) == (0, False)
    assert (found.degrade_seconds, found.sync_seconds, found.settle_seconds) == (900, 300, 300)
    assert found.diff_threshold == Fraction(1, 10)


def test_every_field_is_taken() -> None:
    config = {
        "enable": True,
        "cpuReclaimThresholdPercent": 70,
        "memoryReclaimThresholdPercent": 55,
        "cpuCalculatePolicy": "maxUsageRequest",
        "memoryCalculatePolicy": "request",
        "batchCPUThresholdPercent": 50,
        "batchMemoryThresholdPercent": 40,
        "midCPUThresholdPercent": 30,
        "midMemoryThresholdPercent": 20,
        "midUnallocatedPercent": 10,
        "midReclaimMode": "static",
        "midStaticCPUReservedPercent": 5,
        "midStaticMemoryReservedPercent": 6,
        "degradeTimeMinutes": 5,
        "updateTimeThresholdSeconds": 120,
        "resourceDiffThreshold": 0.25,
        "metricAggregateDurationSeconds": 60,
    }
    found = strategy.of(config, {}, {}).strategy
    assert found == strategy.Strategy(
        enable=True,
        reclaim_percent={"cpu": Fraction(70), "memory": Fraction(55)},
        policy={"cpu": "maxUsageRequest", "memory": "request"},
        batch_percent={"cpu": Fraction(50), "memory": Fraction(40)},
        mid_percent={"cpu": Fraction(30), "memory": Fraction(20)},
        mid_unallocated_percent=Fraction(10),
        mid_static=True,
        mid_static_percent={"cpu": Fraction(5), "memory": Fraction(6)},
        degrade_seconds=300,
        sync_seconds=120,
        diff_threshold=Fraction(1, 4),
        settle_seconds=60,
    )


def test_the_annotation_goes_over_the_configuration_and_labels_over_both() -> None:
    annotation = json.dumps({"cpuReclaimThresholdPercent": 70, "memoryReclaimThresholdPercent": 75, "enable": True})
    found = strategy.of(
        {"cpuReclaimThresholdPercent": 50},
        {names.CPU_RECLAIM_LABEL: "0.57"},
        {names.COLOCATION_STRATEGY_ANNOTATION: annotation},
    )
    assert found.problems == ()
    assert found.strategy.enable
    assert found.strategy.reclaim_percent == {"cpu": 57, "memory": 75}


@pytest.mark.parametrize("text", ["1.5", "-0.1", "", "half", "nan", "60%"])
def test_a_label_that_is_no_ratio_is_not_taken_and_named(text: str) -> None:
    found = strategy.of({}, {names.MEMORY_RECLAIM_LABEL: text}, {})
    assert found.strategy.reclaim_percent["memory"] == 65
    assert names.MEMORY_RECLAIM_LABEL in found.problems[0]


@pytest.mark.parametrize("text", ["{", "[]", "null", "7"])
def test_an_annotation_that_is_no_object_is_not_taken(text: str) -> None:
    found = strategy.of({"enable": True}, {}, {names.COLOCATION_STRATEGY_ANNOTATION: text})
    assert found.strategy.enable
    assert found.problems


def test_one_wrong_field_of_the_annotation_leaves_the_others() -> None:
    said = json.dumps({"cpuReclaimThresholdPercent": -1, "degradeTimeMinutes": 3, "cpuCalculatePolicy": "guess"})
    found = strategy.of({}, {}, {names.COLOCATION_STRATEGY_ANNOTATION: said})
    assert found.strategy.reclaim_percent["cpu"] == 60
    assert found.strategy.policy["cpu"] == "usage"
    assert found.strategy.degrade_seconds == 180
    assert len(found.problems) == 2


def test_a_label_for_a_fixed_share_of_mid() -> None:
    labels = {names.MID_STATIC_CPU_LABEL: "0.125", names.MID_STATIC_MEMORY_LABEL: "0.2"}
    found = strategy.of({"midReclaimMode": "static"}, labels, {}).strategy
    assert found.mid_static_percent == {"cpu": Fraction("12.5"), "memory": 20}
