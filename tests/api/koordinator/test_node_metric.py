"""NodeMetric as Koordinator's programs write it, read and written again."""

import msgspec
import pytest

from cotenant.api.koordinator import node_metric

GIVEN = {
    "metadata": {"name": "n1"},
    "spec": {
        "metricCollectPolicy": {
            "aggregateDurationSeconds": 300,
            "reportIntervalSeconds": 60,
            "nodeAggregatePolicy": {"durations": ["5m0s", "10m0s"]},
            "nodeMemoryCollectPolicy": "usageWithoutPageCache",
        }
    },
    "status": {
        "updateTime": "2026-11-30T00:00:00Z",
        "nodeMetric": {
            "nodeUsage": {"resources": {"cpu": "1500m", "memory": "2Gi"}},
            "aggregatedNodeUsages": [{"duration": "5m0s", "usage": {"p95": {"resources": {"cpu": "3"}}}}],
            "numaUsages": [{"numaNodeID": 1, "nodeUsage": {"resources": {"memory": 1024}}}],
        },
        "podsMetric": [
            {"namespace": "a", "name": "p", "podUsage": {"resources": {}}, "priority": "koord-prod", "qos": "LS"}
        ],
        "hostApplicationMetric": [{"name": "nginx", "usage": {"resources": {"cpu": "250m"}}, "qos": "LS"}],
        "prodReclaimableMetric": {"resource": {"resources": {"cpu": "0"}}},
    },
}


def test_it_is_read_by_the_names_of_the_protocol() -> None:
    found = msgspec.convert(GIVEN, node_metric.NodeMetric)
    usage = found.status.node_metric
    assert usage is not None
    assert usage.node_usage is not None
    assert usage.numa_usages is not None
    assert (usage.node_usage.millicores(), usage.node_usage.memory_bytes()) == (1500, 2 << 30)
    numa = usage.numa_usages[0]
    assert numa.numa_node_id == 1
    assert numa.node_usage is not None
    assert (numa.node_usage.millicores(), numa.node_usage.memory_bytes()) == (None, 1024)
    pods = found.status.pods_metric or []
    assert pods[0].pod_usage is not None
    assert pods[0].pod_usage.millicores() is None
    assert found.status.prod_reclaimable_metric is not None
    assert msgspec.to_builtins(found) | {"metadata": GIVEN["metadata"]} == GIVEN


@pytest.mark.parametrize(
    ("millicores", "memory", "resources"),
    [
        (1500.4, 1024.0, {"cpu": "1500m", "memory": "1024"}),
        (0.0, None, {"cpu": "0m"}),
        (None, 7, {"memory": "7"}),
    ],
)
def test_usage_names_only_what_is_known(
    millicores: float | None, memory: float | None, resources: dict[str, str]
) -> None:
    assert node_metric.usage(millicores, memory) == node_metric.ResourceMap(resources=dict(resources))


def test_usage_of_nothing_known_is_absent() -> None:
    assert node_metric.usage(None, None) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(30, "30s"), (60, "1m0s"), (90, "1m30s"), (300, "5m0s"), (3600, "1h0m0s"), (5400, "1h30m0s")],
)
def test_durations_are_written_as_go_writes_them(seconds: int, text: str) -> None:
    assert node_metric.duration_text(seconds) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5m0s", 300), ("1h", 3600), ("1m30s", 90), ("90s", 90), ("1500ms", 1), ("0s", None), ("5", None), ("5 m", None),
     ("-5m", None), ("", None)],
)  # fmt: skip
def test_durations_of_go(text: str, seconds: int | None) -> None:
    assert node_metric.duration_seconds(text) == seconds
