"""The status of a NodeMetric, worked out of a meter that the test fills."""

import msgspec
import pytest

from cotenant.api.koordinator import node_metric as api
from cotenant.kernel.numa import NumaState
from cotenant.model.node import Use
from cotenant.model.pod import PRIORITY_CLASS_LABEL, QOS_LABEL, Pod
from cotenant.model.policy import HostApplication
from cotenant.model.sample import Cgroup, Cpu, Memory, Sample
from cotenant.node import node_metric
from cotenant.node.metering import Collection, Meter
from cotenant.node.node_metric import Subject
from cotenant.node.prediction import Model, Predictor
from cotenant.node.presence import Presence

GIB = 1 << 30
WALL = 1_800_000_000.0
LS = Pod(namespace="a", name="web", uid="1", kube_qos="Burstable", labels={QOS_LABEL: "LS"}, priority=9100)
BE = Pod(namespace="b", name="job", uid="2", kube_qos="BestEffort", priority=5500)
ODD = Pod(
    namespace="b", name="odd", uid="3", kube_qos="Burstable", labels={PRIORITY_CLASS_LABEL: "somewhere"}, priority=9100
)
PODS = {"k/web": LS, "k/job": BE, "k/odd": ODD}


def filled(seconds: int, collection: Collection | None = None) -> Meter:
    meter = Meter(collection or Collection(durations_s=(60.0, 300.0)))
    present = Presence(pods=PODS, applications={"host/x": "nginx"}, memory_bytes=8 * GIB)
    groups = [
        Cgroup(path="k/web", cpu_used_ratio=0.25, memory_bytes=2 * GIB, memory_anon_bytes=GIB),
        Cgroup(path="k/job", cpu_used_ratio=0.125),
        Cgroup(path="host/x", cpu_used_ratio=0.0, memory_anon_bytes=GIB),
    ]
    taken = Sample(
        node="n", time="t", cpu=Cpu(online=4, used_ratio=0.5), memory=Memory(available_ratio=0.5), cgroups=groups
    )
    for second in range(seconds):
        meter.take(float(second), taken, present)
        meter.take_numa(float(second), {0: NumaState(busy_ticks=100 * second, memory_used_bytes=GIB)})
    return meter


def status(seconds: int) -> dict[str, object]:
    subject = Subject(pods=PODS, applications=(HostApplication(name="nginx", qos="LS"),))
    found = node_metric.status_of(filled(seconds), Predictor(WALL), subject, seconds - 1.0, WALL)
    return {} if found is None else msgspec.to_builtins(found)


def test_the_whole_status_by_the_names_of_the_protocol() -> None:
    whole = {name: {"resources": {"cpu": "2000m", "memory": str(4 * GIB)}} for name in api.AGGREGATIONS}
    rest = {name: {"resources": {"cpu": "500m"}} for name in api.AGGREGATIONS}
    assert status(61) == {
        "updateTime": "2027-01-15T08:00:00Z",
        "nodeMetric": {
            "nodeUsage": {"resources": {"cpu": "2000m", "memory": str(4 * GIB)}},
            "systemUsage": {"resources": {"cpu": "500m"}},
            "aggregatedNodeUsages": [{"duration": "1m0s", "usage": whole}],
            "aggregatedSystemUsages": [{"duration": "1m0s", "usage": rest}],
            "numaUsages": [
                {
                    "numaNodeID": 0,
                    "nodeUsage": {"resources": {"cpu": "1000m", "memory": str(GIB)}},
                    "systemUsage": {"resources": {"cpu": "500m"}},
                }
            ],
        },
        "podsMetric": [
            {
                "namespace": "a", "name": "web", "priority": "koord-prod", "qos": "LS",
                "podUsage": {"resources": {"cpu": "1000m", "memory": str(GIB)}},
            },
            {
                "namespace": "b", "name": "job", "priority": "koord-batch", "qos": "BE",
                "podUsage": {"resources": {"cpu": "500m"}},
            },
        ],
        "hostApplicationMetric": [
            {"name": "nginx", "qos": "LS", "usage": {"resources": {"cpu": "0m", "memory": str(GIB)}}}
        ],
    }  # fmt: skip


def test_nothing_known_is_no_status_and_no_aggregate_is_told_too_soon() -> None:
    assert node_metric.status_of(Meter(), Predictor(WALL), Subject(), 0.0, WALL) is None
    usage = status(20)["nodeMetric"]
    assert isinstance(usage, dict)
    assert "nodeUsage" in usage
    assert "aggregatedNodeUsages" not in usage


def test_a_sampler_that_hangs_makes_no_fresh_status_of_old_figures() -> None:
    meter = filled(61)
    assert node_metric.status_of(meter, Predictor(WALL), Subject(), 90.0, WALL) is not None
    assert node_metric.status_of(meter, Predictor(WALL), Subject(), 91.0, WALL) is None


def test_predictions_are_there_once_they_rest_on_something() -> None:
    predictor = Predictor(WALL - 3600)
    predictor.prod = Model(WALL - 3600)
    predictor.prod.train(Use(cpu_millicores=1000, memory_bytes=GIB), WALL)
    found = node_metric.status_of(filled(61), predictor, Subject(pods=PODS), 60.0, WALL)
    assert found is not None
    assert found.prod_reclaimable_metric is None
    assert found.prod_peak_metric is not None
    resource = found.prod_peak_metric.resource
    assert resource is not None
    assert resource.millicores() == pytest.approx(1100, rel=0.05)


def test_what_a_spec_leaves_out_is_the_default() -> None:
    found = node_metric.request_of(api.NodeMetricSpec())
    assert found.collection == Collection(aggregate_s=300, durations_s=(300.0, 600.0, 1800.0))
    assert (found.report_s, found.notices) == (60, ())


def test_a_spec_is_followed_within_bounds_and_what_is_not_is_said() -> None:
    policy = api.CollectPolicy(
        aggregate_duration_seconds=1,
        report_interval_seconds=600,
        node_aggregate_policy=api.AggregatePolicy(durations=["1m0s", "soon", "720h", "1m0s"]),
        node_memory_collect_policy="usageWithHotPageCache",
    )
    found = node_metric.request_of(api.NodeMetricSpec(metric_collect_policy=policy))
    assert found.collection == Collection(aggregate_s=60, durations_s=(60.0, 86400.0), page_cache=False)
    assert found.report_s == 150
    assert [text.split(":")[0] for text in found.notices] == [
        "nodeAggregatePolicy",
        "usageWithHotPageCache",
        "reportIntervalSeconds 600",
    ]
    cached = api.CollectPolicy(node_memory_collect_policy="usageWithPageCache", report_interval_seconds=1)
    found = node_metric.request_of(api.NodeMetricSpec(metric_collect_policy=cached))
    assert (found.collection.page_cache, found.report_s) == (True, 30)
