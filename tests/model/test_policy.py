import pytest

from cotenant.model import policy


def test_fields_are_spelt_as_koordinator_spells_them() -> None:
    found = list(policy.fields())
    for name in (
        "spec.resourceUsedThresholdWithBE.cpuEvictBESatisfactionUpperPercent",
        "spec.resourceUsedThresholdWithBE.cpuSuppressPolicy",
        "spec.resourceQOSStrategy.policies.netQOSPolicy",
        "spec.resourceQOSStrategy.beClass.cpuQOS.groupIdentity",
        "spec.resourceQOSStrategy.lsClass.memoryQOS.wmarkScalePermill",
        "spec.resourceQOSStrategy.cgroupRoot.blkioQOS.blocks[].ioCfg.readIOPS",
        "spec.resourceQOSStrategy.lsrClass.resctrlQOS.catRangeEndPercent",
        "spec.cpuBurstStrategy.cfsQuotaBurstPeriodSeconds",
        "spec.systemStrategy.memcgReapBackGround",
        "spec.hostApplications[].cgroupPath.relativePath",
    ):
        assert name in found
    assert len(found) == len(set(found))


def test_a_value_out_of_range_counts_as_left_out_and_is_named() -> None:
    slo, complaints = policy.decode({"spec": {"resourceUsedThresholdWithBE": {"cpuSuppressThresholdPercent": 101}}})
    assert slo.threshold.cpu_suppress_threshold_percent is None
    assert complaints == (
        "spec.resourceUsedThresholdWithBE.cpuSuppressThresholdPercent: 101 is not within 0..100; ignored",
    )


@pytest.mark.parametrize("value", [1000, "1000", 1000.0, "1000.0", "1e3", -1, "-1"])
def test_no_spelling_of_a_number_gets_past_its_range(value: object) -> None:
    """An annotation is its pod's owner's: ten times the request as memory that nobody else may have is not theirs."""
    qos, complaints = policy.override(policy.MemoryQos(), {"minLimitPercent": value}, "annotation")
    assert qos.min_limit_percent is None
    assert len(complaints) == 1
    assert "is not within 0..100" in complaints[0]


@pytest.mark.parametrize("value", [50, "50", 50.0])
def test_a_number_within_its_range_may_be_spelt_as_text(value: object) -> None:
    assert policy.override(policy.MemoryQos(), {"minLimitPercent": value}, "annotation")[0].min_limit_percent == 50


def test_unknown_keys_and_nulls_are_ignored() -> None:
    slo, complaints = policy.decode(
        {"spec": {"cpuBurstStrategy": {"policy": "auto", "new": 1}, "systemStrategy": None}}
    )
    assert (slo.cpu_burst.policy, slo.system, complaints) == ("auto", None, ())


@pytest.mark.parametrize(
    "value", [None, [], {"kind": "Node"}, {"spec": [1]}, {"spec": {"cpuBurstStrategy": {"policy": [1]}}}]
)
def test_what_is_no_nodeslo_is_refused(value: object) -> None:
    with pytest.raises(policy.BadPolicy, match="NodeSLO"):
        policy.decode(value)


def test_an_annotation_overrides_field_by_field() -> None:
    base = policy.CpuBurstStrategy(policy="auto", cpu_burst_percent=500)
    changed, complaints = policy.override(base, {"cpuBurstPercent": 200}, "annotation")
    assert changed == policy.CpuBurstStrategy(policy="auto", cpu_burst_percent=200)
    assert complaints == ()
    same, complaints = policy.override(base, {"policy": 7}, "annotation")
    assert same == base
    assert len(complaints) == 1


def test_what_nests_too_deeply_is_refused_or_changes_nothing() -> None:
    deep: dict[str, object] = {}
    for _ in range(5000):
        deep = {"a": deep}
    with pytest.raises(policy.BadPolicy, match="NodeSLO"):
        policy.decode({"spec": deep})
    base = policy.CpuBurstStrategy(policy="auto")
    same, complaints = policy.override(base, deep, "annotation")
    assert (same, len(complaints)) == (base, 1)
