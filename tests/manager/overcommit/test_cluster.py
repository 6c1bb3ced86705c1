"""What is known of nodes, as watches and the table bring it."""

from typing import Any

import msgspec
import pytest

from cotenant.api import timestamp, usage
from cotenant.api.koordinator import node_metric
from cotenant.manager.overcommit import cluster, nodes, pods
from cotenant.manager.overcommit.feed import Told
from cotenant.units.clock import ManualClock

NODE = nodes.decode(
    msgspec.convert(
        {"metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "4", "memory": "4Gi"}}}, nodes.NodeObject
    )
)


def metric(at: float | None, cpu: str = "1") -> node_metric.NodeMetric:
    status: dict[str, Any] = {"nodeMetric": {"nodeUsage": {"resources": {"cpu": cpu}}}}
    if at is not None:
        status["updateTime"] = timestamp.render(at)
    return msgspec.convert({"metadata": {"name": "n1"}, "status": status}, node_metric.NodeMetric)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.mark.parametrize("skew", [-3600, 0, 3600])
def test_a_report_that_is_seen_to_change_is_new_whatever_the_nodes_clock_says(clock: ManualClock, skew: int) -> None:
    metrics = cluster.Metrics(lambda _: None, clock)
    for _ in range(2):
        clock.advance(60)
        metrics.put("n1", metric(clock.wall() + skew))
    clock.advance(30)
    assert metrics.reported["n1"].age_seconds(clock) == 30
    clock.advance(1000)  # the agent has died: its clock being ahead makes it no younger
    assert metrics.reported["n1"].age_seconds(clock) == 1030


def test_a_report_that_was_there_before_us_is_as_old_as_it_says(clock: ManualClock) -> None:
    metrics = cluster.Metrics(lambda _: None, clock)
    metrics.put("n1", metric(clock.wall() - 1200))
    assert metrics.reported["n1"].age_seconds(clock) == 1200
    metrics.put("n1", metric(clock.wall() - 1200))  # told again
    assert metrics.reported["n1"].age_seconds(clock) == 1200
    metrics.replaced({"n1": metric(clock.wall() - 1000)})  # changed while we did not look
    assert metrics.reported["n1"].age_seconds(clock) == 1000


def test_a_metric_that_nobody_reported_into_says_nothing(clock: ManualClock) -> None:
    touched: list[str] = []
    metrics = cluster.Metrics(touched.append, clock)
    metrics.put("n1", metric(None))
    assert (metrics.reported, touched) == ({}, [])
    metrics.put("n1", metric(clock.wall()))
    metrics.put("n1", metric(clock.wall() + 60, cpu="lots"))
    assert metrics.reported["n1"].use.node.cpu == 1000  # the last that was understood
    metrics.replaced({})
    assert metrics.reported == {}


def test_the_stream_counts_while_it_flows_and_then_whatever_is_newer(clock: ManualClock) -> None:
    metrics = cluster.Metrics(lambda _: None, clock)
    metrics.put("n1", metric(clock.wall() - 20))
    told = Told(usage.Row(cpu_millicores=500.0), clock.monotonic())

    def source() -> str | None:
        found = cluster.heard(NODE, told, metrics.reported.get("n1"), clock)
        return None if found is None else found.use.source

    assert source() == "stream"
    clock.advance(cluster.STREAM_SECONDS + 1)
    assert source() == "stream"  # old, and yet newer than the metric
    metrics.put("n1", metric(clock.wall()))
    assert source() == "NodeMetric"
    assert cluster.heard(NODE, None, None, clock) is None


def pod(name: str, node: str | None, cpu: str = "1") -> pods.PodObject:
    spec = {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": cpu}}}]}
    return msgspec.convert({"metadata": {"name": name, "namespace": "d"}, "spec": spec}, pods.PodObject)


def test_pods_are_known_by_node() -> None:
    touched: list[str] = []
    known = cluster.Pods(touched.append)
    known.put("d/a", pod("a", None))
    assert touched == []
    known.put("d/a", pod("a", "n1"))
    known.put("d/a", pod("a", "n1"))  # nothing of it that matters has changed
    assert touched == ["n1"]
    known.put("d/b", pod("b", "n1"))
    known.put("d/b", pod("b", "n1", cpu="half"))  # counted as it was
    assert sorted(one.key for one in known.on("n1")) == ["d/a", "d/b"]
    known.replaced({"d/b": pod("b", "n2")})
    assert (known.on("n1"), [one.key for one in known.on("n2")]) == ([], ["d/b"])
    known.removed("d/b")
    known.removed("d/b")
    assert known.on("n2") == []
