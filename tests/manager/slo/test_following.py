"""The ConfigMap followed: revisions, the last good state, conditions, Events, restarts, and changes in stages."""

from typing import Any

import yaml
from tests.kube.conftest import status
from tests.manager.conftest import CONFIG, EVENTS, REVISIONS, STATE, Cluster
from tests.waiting import until

from cotenant.manager.slo import history
from cotenant.manager.slo.following import SloConfigFollower

GOOD = '{"clusterStrategy": {"policy": "auto"}}'
BETTER = '{"clusterStrategy": {"policy": "cpuBurstOnly"}}'
BAD = '{"clusterStrategy": {"cpuBurstPercent": 99999}}'


def policy_of(cluster: Cluster, **labels: str) -> Any:
    config = cluster.context.slo.config_of(labels)
    return None if config is None else config.of("cpu-burst-config", labels)["policy"]


def condition(cluster: Cluster, key: str = "cpu-burst-config") -> dict[str, Any]:
    state = cluster.objects(STATE).get("cotenant-slo-config")
    found = yaml.safe_load(state["data"]["conditions"]) if state else []
    return next((one for one in found if one["type"] == key), {})


async def test_a_good_text_becomes_a_revision_and_a_bad_one_is_told_and_changes_nothing(cluster: Cluster) -> None:
    cluster.write_config(cpu_burst=GOOD)
    async with cluster.running(SloConfigFollower()):
        await until(lambda: policy_of(cluster) == "auto")
        await until(lambda: condition(cluster).get("reason") == "InForce")
        cluster.write_config(cpu_burst=BAD)
        await until(lambda: condition(cluster).get("status") == "False")
        assert policy_of(cluster) == "auto"
        told = "cpu-burst-config: clusterStrategy.cpuBurstPercent is 99999: not within 1..10000; the last good state"
        assert condition(cluster)["message"].startswith(told)
        (event,) = cluster.objects(EVENTS).values()
        assert event["reason"] == "SLOConfigRefused"
        assert event["message"].startswith(told)
        assert event["involvedObject"]["name"] == "slo-controller-config"
        cluster.write_config(cpu_burst=BETTER)
        await until(lambda: policy_of(cluster) == "cpuBurstOnly")
        await until(lambda: condition(cluster).get("status") == "True")
    assert sorted(cluster.objects(REVISIONS)) == ["slo-config-1", "slo-config-2"]
    assert len(cluster.objects(EVENTS)) == 1


async def test_without_a_config_map_the_defaults_are_in_force(cluster: Cluster) -> None:
    async with cluster.running(SloConfigFollower()):
        await until(lambda: policy_of(cluster) == "none")
        await until(lambda: condition(cluster).get("reason") == "Default")
        cluster.write_config(cpu_burst=GOOD)
        await until(lambda: policy_of(cluster) == "auto")
        cluster.api.remove(CONFIG, "slo-controller-config")
        await until(lambda: policy_of(cluster) == "none")


async def test_the_last_good_state_outlives_the_manager(cluster: Cluster) -> None:
    cluster.write_config(cpu_burst=GOOD)
    async with cluster.running(SloConfigFollower()):
        await until(lambda: policy_of(cluster) == "auto")
    cluster.write_config(cpu_burst=BAD)
    cluster.context.slo.revisions = None
    async with cluster.running(SloConfigFollower()):
        await until(lambda: policy_of(cluster) is not None)
        assert policy_of(cluster) == "auto"
        await until(lambda: condition(cluster).get("status") == "False")
    assert len(cluster.objects(EVENTS)) == 1
    cluster.context.slo.revisions = None
    async with cluster.running(SloConfigFollower()):  # told once, not by each leader
        await until(lambda: policy_of(cluster) == "auto")
    assert len(cluster.objects(EVENTS)) == 1
    assert list(cluster.objects(REVISIONS)) == ["slo-config-1"]


async def test_unknown_fields_and_failures_of_the_server(cluster: Cluster) -> None:
    cluster.api.fail("POST " + REVISIONS, status(500, "InternalError"))
    cluster.write_config(cpu_burst='{"clusterStrategy": {"polcy": "auto"}}')
    async with cluster.running(SloConfigFollower()):
        await until(lambda: "clusterStrategy.polcy is not known" in condition(cluster).get("message", ""))
    assert list(cluster.objects(REVISIONS)) == ["slo-config-1"]


async def test_a_revision_that_another_leader_wrote_first_is_not_overwritten(cluster: Cluster) -> None:
    cluster.write_config(cpu_burst=GOOD)
    async with cluster.running(SloConfigFollower()):
        await until(lambda: policy_of(cluster) == "auto")
        cluster.api.put(REVISIONS, "slo-config-2", revision=2, data={"texts": {"cpu-burst-config": BETTER}})
        cluster.write_config(cpu_burst='{"clusterStrategy": {"policy": "none"}}')
        await until(lambda: "slo-config-3" in cluster.objects(REVISIONS))
        assert cluster.objects(REVISIONS)["slo-config-2"]["data"]["texts"]["cpu-burst-config"] == BETTER


async def test_while_changes_are_staged_nodes_get_the_new_revision_by_their_label(cluster: Cluster) -> None:
    staged = {"cotenant.io/slo-changes": "staged"}
    cluster.write_config(staged, cpu_burst=GOOD)
    async with cluster.running(SloConfigFollower()):
        await until(lambda: policy_of(cluster) == "auto" and condition(cluster))
        cluster.write_config(staged, cpu_burst=BETTER)
        await until(lambda: policy_of(cluster, **{"cotenant.io/slo-revision": "2"}) == "cpuBurstOnly")
        assert policy_of(cluster) == "auto"
        assert policy_of(cluster, **{"cotenant.io/slo-revision": "99"}) == "auto"  # there is none
        await history.promote(cluster.context.client, "cotenant-system", "2")
        await until(lambda: policy_of(cluster) == "cpuBurstOnly")
        assert policy_of(cluster, **{"cotenant.io/slo-revision": "1"}) == "auto"
    cluster.context.slo.revisions = None
    cluster.write_config(staged, cpu_burst=GOOD)
    async with cluster.running(SloConfigFollower()):  # a restart, and a third revision that waits
        await until(lambda: "slo-config-3" in cluster.objects(REVISIONS) and policy_of(cluster) is not None)
        assert policy_of(cluster) == "cpuBurstOnly"
        cluster.write_config(cpu_burst=GOOD)  # no longer staged
        await until(lambda: policy_of(cluster) == "auto")


async def test_only_so_many_revisions_are_kept(cluster: Cluster) -> None:
    for number in range(1, history.MOST + 6):
        texts = {"cpu-burst-config": f'{{"clusterStrategy": {{"cpuBurstPercent": {number}}}}}'}
        cluster.api.put(REVISIONS, f"slo-config-{number}", revision=number, data={"texts": texts})
    cluster.write_config(cpu_burst=GOOD)
    async with cluster.running(SloConfigFollower()):
        await until(lambda: len(cluster.objects(REVISIONS)) == history.MOST)
    assert f"slo-config-{history.MOST + 6}" in cluster.objects(REVISIONS)
