"""The ConfigMap of strategies: merging, precedence, refusals, and the NodeSLO that comes of it."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.api.koordinator import node_slo, slo_config
from cotenant.api.koordinator.slo_config import KEYS, Key, SloConfig
from cotenant.model import policy

POOL_A = {"matchLabels": {"pool": "a"}}


def config(**sections: Any) -> SloConfig:
    """Return a ConfigMap in force; keys are given with underscores and without ``-config``."""
    data = {f"{name.replace('_', '-')}-config": json.dumps(value) for name, value in sections.items()}
    found, wrong = slo_config.read(data, SloConfig())
    assert not wrong
    return found


def test_without_a_config_map_a_node_gets_the_defaults() -> None:
    assert node_slo.rendered(SloConfig(), {}) == {
        "resourceUsedThresholdWithBE": {
            "enable": False,
            "cpuSuppressThresholdPercent": 65,
            "cpuSuppressPolicy": "cpuset",
            "memoryEvictThresholdPercent": 70,
            "cpuEvictPolicy": "evictByRealLimit",
        },
        "resourceQOSStrategy": {},
        "cpuBurstStrategy": {
            "policy": "none",
            "cpuBurstPercent": 1000,
            "cfsQuotaBurstPercent": 300,
            "cfsQuotaBurstPeriodSeconds": -1,
            "sharePoolThresholdPercent": 50,
        },
        "systemStrategy": {
            "minFreeKbytesFactor": 100,
            "watermarkScaleFactor": 150,
            "memcgReapBackGround": 0,
            "totalNetworkBandwidth": "0",
        },
    }


def test_the_cluster_lies_over_the_defaults_and_the_first_matching_strategy_over_both() -> None:
    found = config(
        resource_threshold={
            "clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": 60},
            "nodeStrategies": [
                {"name": "other", "nodeSelector": {"matchLabels": {"pool": "b"}}, "cpuSuppressThresholdPercent": 1},
                {"name": "first", "nodeSelector": POOL_A, "cpuSuppressThresholdPercent": 50},
                {"name": "second", "nodeSelector": POOL_A, "cpuSuppressThresholdPercent": 40},
                {"name": "all", "nodeSelector": {}, "memoryEvictThresholdPercent": 90},
                {"name": "none", "cpuSuppressThresholdPercent": 2},
            ],
        }
    )
    section = found.section("resource-threshold-config")
    assert section.of({"pool": "a"}) == {
        "enable": True,
        "cpuSuppressThresholdPercent": 50,
        "cpuSuppressPolicy": "cpuset",
        "memoryEvictThresholdPercent": 70,
        "cpuEvictPolicy": "evictByRealLimit",
    }
    assert section.of({})["memoryEvictThresholdPercent"] == 90  # an empty selector chooses every node
    assert section.matching({"pool": "a"}) == ("first", "second", "all")  # and none at all chooses no node


def test_classes_merge_field_by_field_and_lists_are_replaced() -> None:
    block = {"name": "/dev/sda", "type": "device", "ioCfg": {"readIOPS": 100}}
    found = config(
        resource_qos={
            "clusterStrategy": {
                "beClass": {"cpuQOS": {"enable": True, "groupIdentity": -1}, "blkioQOS": {"blocks": [block, block]}}
            },
            "nodeStrategies": [
                {
                    "nodeSelector": POOL_A,
                    "beClass": {"cpuQOS": {"groupIdentity": 0}, "blkioQOS": {"blocks": [block]}},
                    "lsClass": {"memoryQOS": {"enable": True}},
                }
            ],
        }
    )
    assert found.of("resource-qos-config", {"pool": "a"}) == {
        "beClass": {"cpuQOS": {"enable": True, "groupIdentity": 0}, "blkioQOS": {"blocks": [block]}},
        "lsClass": {"memoryQOS": {"enable": True}},
    }
    assert found.section("resource-qos-config").matching({"pool": "a"}) == ("nodeStrategies[0]",)


def test_maps_merge_by_their_keys() -> None:
    model = {"baseRatio": 1.2, "turboEnabledRatio": 1.4}
    found = config(
        system={
            "clusterStrategy": {"schedFeatures": {"ID_LOOKUP": True, "A": False}},
            "nodeStrategies": [{"nodeSelector": POOL_A, "schedFeatures": {"A": True}}],
        },
        cpu_normalization={
            "enable": True,
            "ratioModel": {"x": model, "y": model},
            "nodeConfigs": [{"nodeSelector": POOL_A, "ratioModel": {"x": {"baseRatio": 2.0}}}],
        },
    )
    assert found.of("system-config", {"pool": "a"})["schedFeatures"] == {"ID_LOOKUP": True, "A": True}
    assert found.of("cpu-normalization-config", {"pool": "a"})["ratioModel"] == {"x": {"baseRatio": 2.0}, "y": model}


def test_applications_of_a_node_stand_in_place_of_the_clusters() -> None:
    application = {"name": "nginx", "priority": "koord-prod", "qos": "LS"}
    found = config(
        host_application={
            "applications": [application],
            "nodeConfigs": [{"nodeSelector": POOL_A, "applications": [application, {**application, "name": "b"}]},
                            {"nodeSelector": {"matchLabels": {"pool": "b"}}}],
        }
    )  # fmt: skip
    assert node_slo.rendered(found, {})["hostApplications"] == [application]
    assert len(node_slo.rendered(found, {"pool": "a"})["hostApplications"]) == 2
    assert "hostApplications" not in node_slo.rendered(found, {"pool": "b"})


def test_colocation_is_flat_and_its_durations_go_out_as_go_writes_them() -> None:
    found = config(
        colocation={
            "enable": True,
            "metricAggregatePolicy": {"durations": ["5m", "1h", "90s"]},
            "nodeConfigs": [
                {"nodeSelector": POOL_A, "cpuReclaimThresholdPercent": 70, "memoryCalculatePolicy": "request"}
            ],
        }
    )
    strategy = found.of("colocation-config", {"pool": "a"})
    assert strategy["metricAggregatePolicy"] == {"durations": ["5m0s", "1h0m0s", "1m30s"]}
    assert (strategy["enable"], strategy["cpuReclaimThresholdPercent"], strategy["memoryCalculatePolicy"]) == (
        True, 70, "request",
    )  # fmt: skip
    assert found.of("colocation-config", {})["cpuReclaimThresholdPercent"] == 60


def test_bandwidth_is_a_quantity_or_a_percentage() -> None:
    network = {"ingressLimit": "50M", "egressLimit": 30}
    found = config(
        system={"clusterStrategy": {"totalNetworkBandwidth": "10G"}},
        resource_qos={"clusterStrategy": {"beClass": {"networkQOS": network}}},
    )
    assert found.of("system-config", {})["totalNetworkBandwidth"] == "10G"
    assert found.of("resource-qos-config", {})["beClass"]["networkQOS"] == network


def test_case_does_not_matter_null_says_nothing_and_unknown_fields_are_named() -> None:
    cluster = '{"CPUSuppressThresholdPercent": 50, "enable": null, "cpuSupressPolicy": "x"}'
    text = f'{{"ClusterStrategy": {cluster}, "extra": 1}}'
    section = slo_config.decode("resource-threshold-config", text)
    assert section.cluster["cpuSuppressThresholdPercent"] == 50
    assert section.cluster["enable"] is False
    assert sorted(section.unknown) == ["clusterStrategy.cpuSupressPolicy", "extra"]
    assert slo_config.decode("resource-threshold-config", "null") == slo_config.default_section(
        "resource-threshold-config"
    )


@pytest.mark.parametrize(
    ("key", "text", "complaint"),
    [
        ("cpu-burst-config", "{", "cpu-burst-config: '{' is malformed JSON: "),
        ("cpu-burst-config", "[]", "cpu-burst-config: '[]' is not an object"),
        ("cpu-burst-config", '{"clusterStrategy": 3}', "clusterStrategy is 3: expected `object`"),
        ("resource-threshold-config", '{"clusterStrategy": {"cpuSuppressThresholdPercent": 150}}',
         "clusterStrategy.cpuSuppressThresholdPercent is 150: not within 0..100"),
        ("resource-threshold-config", '{"clusterStrategy": {"cpuSuppressThresholdPercent": "65"}}',
         'clusterStrategy.cpuSuppressThresholdPercent is "65": expected `int | null`, got `str`'),
        ("resource-threshold-config", '{"clusterStrategy": {"cpuSuppressPolicy": "cpusets"}}',
         'clusterStrategy.cpuSuppressPolicy is "cpusets": not one of cpuset, cfsQuota'),
        ("resource-threshold-config", '{"clusterStrategy": {"memoryEvictLowerPercent": 70}}',
         "clusterStrategy.memoryEvictLowerPercent is 70: not below memoryEvictThresholdPercent, which is 70"),
        ("resource-threshold-config", '{"nodeStrategies": [{"nodeSelector": {}, "memoryEvictThresholdPercent": -1}]}',
         "nodeStrategies[0].memoryEvictThresholdPercent is -1: not within 0..100"),
        # 32 bits by the protocol: koordlet could not read a single NodeSLO any more.
        ("resource-threshold-config", '{"clusterStrategy": {"evictEnabledPriorityThreshold": 2147483648}}',
         "clusterStrategy.evictEnabledPriorityThreshold is 2147483648: not within"),
        ("system-config", '{"clusterStrategy": {"schedIdleSaverWmark": -1}}', "schedIdleSaverWmark is -1: not within"),
        ("resource-qos-config", '{"clusterStrategy": {"beClass": {"networkQOS": {"egressLimit": 101}}}}',
         "beClass.networkQOS.egressLimit is 101: not within 0..100 percent"),
        ("resource-threshold-config", '{"nodeStrategies": {}}', "nodeStrategies is not a list"),
        ("resource-threshold-config", '{"nodeStrategies": [1]}', "nodeStrategies[0] is not an object"),
        ("resource-threshold-config", '{"nodeStrategies": [{"nodeSelector": {"matchLabels": {"a b": "c"}}}]}',
         "nodeStrategies[0].nodeSelector.matchLabels: 'a b'"),
        ("resource-qos-config", '{"clusterStrategy": {"lsClass": {"cpuQOS": {"groupIdentity": 3}}}}',
         "clusterStrategy.lsClass.cpuQOS.groupIdentity is 3: not within -1..2"),
        ("resource-qos-config", '{"clusterStrategy": {"beClass": {"resctrlQOS": {"catRangeStartPercent": 30, '
         '"catRangeEndPercent": 30}}}}', "catRangeStartPercent is 30: not below catRangeEndPercent, which is 30"),
        ("system-config", '{"clusterStrategy": {"watermarkScaleFactor": 401}}',
         "clusterStrategy.watermarkScaleFactor is 401: not within 1..400"),
        # The API server would refuse every NodeSLO with it.
        ("system-config", '{"clusterStrategy": {"totalNetworkBandwidth": "10 GBit"}}',
         'clusterStrategy.totalNetworkBandwidth is "10 GBit": not a quantity'),
        ("resource-qos-config", '{"clusterStrategy": {"beClass": {"networkQOS": {"egressLimit": "30%"}}}}',
         'beClass.networkQOS.egressLimit is "30%": not a quantity'),
        ("colocation-config", '{"cpuCalculatePolicy": "used"}', 'cpuCalculatePolicy is "used": not one of usage'),
        ("colocation-config", '{"resourceDiffThreshold": 0}', "resourceDiffThreshold is 0: not within"),
        ("colocation-config", '{"metricAggregatePolicy": {"durations": ["5 minutes"]}}',
         "metricAggregatePolicy.durations[0] is '5 minutes': not a duration"),
        ("colocation-config", '{"nodeConfigs": [{"nodeSelector": {}, "midUnallocatedPercent": 101}]}',
         "nodeConfigs[0].midUnallocatedPercent is 101: not within 0..100"),
        ("cpu-normalization-config", '{"ratioModel": {"m": {"baseRatio": 0.5}}}',
         "ratioModel.m.baseRatio is 0.5: not within 1..5"),
        ("resource-amplification-config", '{"resourceAmplificationRatio": {"cpu": 0.9}}',
         "resourceAmplificationRatio.cpu is 0.9: not within 1.."),
        ("host-application-config", '{"applications": [{"name": "a", "cgroupPath": {"base": "Root"}}]}',
         'applications[0].cgroupPath.base is "Root": not one of CgroupRoot'),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_with_its_place_and_value(key: Key, text: str, complaint: str) -> None:
    with pytest.raises(slo_config.BadSection) as raised:
        slo_config.decode(key, text)
    assert complaint in str(raised.value)
    assert str(raised.value).startswith(f"{key}: ")


def test_a_key_that_is_wrong_keeps_its_last_good_state_and_the_others_move_on() -> None:
    good = config(cpu_burst={"clusterStrategy": {"policy": "auto"}})
    now, wrong = slo_config.read(
        {"cpu-burst-config": "{", "system-config": '{"clusterStrategy": {"minFreeKbytesFactor": 50}}'}, good
    )
    assert set(wrong) == {"cpu-burst-config"}
    assert now.of("cpu-burst-config", {})["policy"] == "auto"
    assert now.of("system-config", {})["minFreeKbytesFactor"] == 50
    gone, wrong = slo_config.read({}, now)
    assert not wrong
    assert gone.of("cpu-burst-config", {})["policy"] == "none"  # a key that is taken out is not an error


def test_the_revision_follows_what_is_in_force() -> None:
    first = config(cpu_burst={"clusterStrategy": {"policy": "auto"}})
    again, _ = slo_config.read(dict(first.texts), SloConfig())
    broken, _ = slo_config.read({"cpu-burst-config": "{"}, first)
    assert first.revision == again.revision == broken.revision
    assert first.revision != SloConfig().revision


texts = st.one_of(st.text(max_size=20), st.recursive(
    st.none() | st.booleans() | st.integers(-200, 20000) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from([
            "clusterStrategy", "nodeStrategies", "nodeConfigs", "nodeSelector", "matchLabels", "enable", "beClass",
            "cpuQOS", "policy", "cpuSuppressThresholdPercent", "applications", "ratioModel", "durations",
            "metricAggregatePolicy", "schedFeatures", "blocks", "blkioQOS",
        ]), inner, max_size=4),
    max_leaves=8,
).map(json.dumps))  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(key=st.sampled_from(KEYS), text=texts)
def test_whatever_is_written_it_is_refused_or_makes_a_valid_policy(key: Key, text: str) -> None:
    found, wrong = slo_config.read({key: text}, SloConfig())
    assert (key in wrong) != (key in found.texts)
    _, complaints = policy.decode({"spec": node_slo.rendered(found, {"pool": "a"})})
    assert not complaints
