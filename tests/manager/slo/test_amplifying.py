"""The annotations of normalization and amplification on an API server."""

import pytest
import yaml
from tests.manager.conftest import NODES, STATE, TOPOLOGIES, Cluster
from tests.waiting import until

from cotenant.manager.slo import amplifying
from cotenant.manager.slo.amplifying import AmplificationController
from cotenant.manager.slo.following import SloConfigFollower

RATIO = "node.koordinator.sh/cpu-normalization-ratio"
AMPLIFICATION = "node.koordinator.sh/resource-amplification-ratio"
NORMALIZED = '{"enable": true, "ratioModel": {"xeon": {"baseRatio": 1.5, "turboEnabledRatio": 1.8}}}'


def annotations(cluster: Cluster, name: str = "n1") -> dict[str, str]:
    return dict(cluster.objects(NODES)[name]["metadata"].get("annotations") or {})


def describe(cluster: Cluster, name: str, text: str) -> None:
    cluster.api.put(TOPOLOGIES, name, metadata={"annotations": {"node.koordinator.sh/cpu-basic-info": text}}, zones=[])


async def test_ratios_follow_the_node_s_cpus_and_go_again(cluster: Cluster) -> None:
    cluster.write_config(
        cpu_normalization=NORMALIZED,
        resource_amplification='{"enable": true, "resourceAmplificationRatio": {"memory": 1.2}}',
    )
    cluster.add_node("n1")
    describe(cluster, "n1", '{"cpuModel": "xeon"}')
    async with cluster.running(SloConfigFollower(), AmplificationController()):
        await until(lambda: annotations(cluster) == {RATIO: "1.50", AMPLIFICATION: '{"cpu":1.5,"memory":1.2}'})
        describe(cluster, "n1", '{"cpuModel": "xeon", "turboEnabled": true}')
        await until(lambda: annotations(cluster).get(RATIO) == "1.80")
        before = cluster.writes("nodes")
        labels = cluster.objects(NODES)["n1"]["metadata"]["labels"]
        assert labels == {"cotenant.io/amplified": "true"}  # the webhook is asked about this node's status
        cluster.write_config()
        await until(lambda: annotations(cluster) == {RATIO: "1.00"})
        assert cluster.objects(NODES)["n1"]["metadata"]["labels"] == {}
        assert cluster.writes("nodes") - before == 1


async def test_a_cluster_that_asks_for_neither_is_not_written(cluster: Cluster) -> None:
    cluster.add_node("n1")
    cluster.add_node("n2", **{"node.koordinator.sh/cpu-normalization-enabled": "false"})
    async with cluster.running(SloConfigFollower(), AmplificationController()):
        await until(lambda: cluster.context.slo.revisions is not None)
        now = cluster.clock.monotonic()
        await until(lambda: cluster.clock.monotonic() > now + 5)
    assert cluster.writes("nodes") == 0


async def test_a_node_whose_cpus_nobody_describes_keeps_what_it_has_and_is_named(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amplifying, "NOTE_SECONDS", 1.0)
    cluster.write_config(cpu_normalization=NORMALIZED)
    cluster.api.put(NODES, "n1", metadata={"uid": "uid-n1", "annotations": {RATIO: "1.70"}})
    del cluster.api.objects[TOPOLOGIES]  # the kind is not there
    async with cluster.running(SloConfigFollower(), AmplificationController()):
        await until(lambda: annotations(cluster) == {RATIO: "1.70", AMPLIFICATION: '{"cpu":1.7}'})

        def message() -> str:
            data = cluster.objects(STATE).get("cotenant-slo-config", {}).get("data", {})
            conditions = yaml.safe_load(data.get("conditions", "[]"))
            return " ".join(one["message"] for one in conditions if one["type"] == "cpu-normalization-config")

        await until(lambda: "n1: no ratio, its NodeResourceTopology has no cpu-basic-info" in message())


async def test_the_webhook_is_asked_and_the_machine_s_own_amounts_are_given_back(cluster: Cluster) -> None:
    """No webhook answers here: the API server is made to ask now and then, and a test plays the answer."""
    raw = "node.koordinator.sh/raw-allocatable"
    cluster.write_config(resource_amplification='{"enable": true, "resourceAmplificationRatio": {"cpu": 1.5}}')
    cluster.api.put(NODES, "n1", metadata={"uid": "u"}, status={"allocatable": {"cpu": "4", "memory": "1Gi"}})

    def asked() -> int:
        return sum(path == f"{NODES}/n1/status" for _, path, _ in cluster.api.requests)

    async with cluster.running(SloConfigFollower(), AmplificationController()):
        await until(lambda: asked() == 1)
        now = cluster.clock.monotonic()
        await until(lambda: cluster.clock.monotonic() > now + 10)
        assert asked() == 1  # no storm while nobody answers
        node = cluster.objects(NODES)["n1"]
        metadata = {**node["metadata"], "annotations": {**annotations(cluster), raw: '{"cpu":"4"}'}}
        cluster.api.put(NODES, "n1", metadata=metadata, status={"allocatable": {"cpu": "6", "memory": "1Gi"}})
        cluster.write_config()
        await until(lambda: cluster.objects(NODES)["n1"]["status"]["allocatable"]["cpu"] == "4")
        assert annotations(cluster) == {}
        assert asked() == 2
