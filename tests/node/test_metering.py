"""Averages and percentiles of what a node used, by a clock that the test moves."""

import math
import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.kernel.numa import TICKS_PER_SECOND, NumaState
from cotenant.model.node import Use
from cotenant.model.pod import Pod
from cotenant.model.sample import Cgroup, Cpu, Memory, Sample
from cotenant.node import metering
from cotenant.node.metering import Averages, Collection, Meter, Series
from cotenant.node.presence import Presence

GIB = 1 << 30
A, B = (Pod(namespace="ns", name=name, uid=name, kube_qos="Burstable") for name in ("a", "b"))
PODS = Presence(pods={"k/a": A, "k/b": B}, applications={"h/x": "nginx"}, memory_bytes=8 * GIB)


def sample(node: float | None, *groups: Cgroup, available: float = 0.5) -> Sample:
    return Sample(
        node="n", time="t", cpu=Cpu(online=4, used_ratio=node), memory=Memory(available_ratio=available),
        cgroups=list(groups),
    )  # fmt: skip


def group(path: str, ratio: float | None, memory: int = GIB) -> Cgroup:
    return Cgroup(path=path, cpu_used_ratio=ratio, memory_bytes=2 * memory, memory_anon_bytes=memory)


def test_averages_of_node_pods_host_applications_and_the_rest() -> None:
    meter = Meter(Collection(aggregate_s=60))
    for second in range(60):
        share = 0.75 if second % 2 else 0.25
        taken = sample(0.5, group("k/a", share / 4), group("k/b", 0.0), group("h/x", 0.125))
        meter.take(float(second), taken, PODS)
    assert meter.node(59.0) == Use(cpu_millicores=2000, memory_bytes=4 * GIB)
    assert meter.pod("k/a").cpu_millicores == pytest.approx(500)
    assert meter.pod("k/b") == Use(cpu_millicores=0, memory_bytes=GIB)
    assert meter.application("nginx").cpu_millicores == pytest.approx(500)
    assert meter.system(59.0).cpu_millicores == pytest.approx(1000)
    assert meter.system(59.0).memory_bytes == GIB
    assert meter.pod("k/other") == Use()


def test_a_pod_that_has_gone_does_not_hide_the_system_but_one_that_cannot_be_read_does() -> None:
    meter = Meter(Collection(aggregate_s=60))
    assert meter.take(0.0, sample(0.5, group("k/a", 0.25)), PODS).system.cpu_millicores == 1000
    unreadable = sample(0.5, group("k/a", None), group("k/b", 0.1))
    assert meter.take(1.0, unreadable, PODS).system.cpu_millicores is None
    assert meter.system(1.0).cpu_millicores == 1000


def test_what_is_older_than_the_window_counts_no_more() -> None:
    meter = Meter(Collection(aggregate_s=60))
    for second in range(180):
        early = second < 100
        taken = sample(1.0 if early else 0.25, group("k/a", 0.25 if early else 0.0))
        meter.take(float(second), taken, PODS)
    assert meter.node(179.0).cpu_millicores == 1000
    assert meter.pod("k/a").cpu_millicores == 0


def test_an_aggregate_is_told_once_its_values_span_half_of_it() -> None:
    meter = Meter(Collection(aggregate_s=60, durations_s=(300.0,)))
    for second in range(150):
        meter.take(float(second), sample(0.5), Presence())
    assert meter.aggregates("node_cpu", 300.0, 149.0) is None
    meter.take(150.0, sample(0.5), Presence())
    assert meter.aggregates("node_cpu", 300.0, 150.0) == metering.Aggregates(
        avg=2000, p50=2000, p90=2000, p95=2000, p99=2000
    )
    assert meter.aggregates("node_memory", 300.0, 150.0) is None


def test_percentiles_are_exact_and_a_hole_is_no_zero() -> None:
    meter = Meter(Collection(durations_s=(100.0,)))
    order = list(range(1, 101))
    random.Random(7).shuffle(order)
    for second, percent in enumerate(order):
        meter.take(float(second), sample(percent / 400 if second % 10 else None), Presence())
    known = sorted(percent * 10 for second, percent in enumerate(order) if second % 10)
    found = meter.aggregates("node_cpu", 100.0, 99.0)
    assert found is not None
    assert found.avg == pytest.approx(statistics.mean(known))
    assert found.p99 == pytest.approx(known[math.ceil(0.99 * 90) - 1])
    assert found.p50 == pytest.approx(known[44])


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
@settings(max_examples=50)
def test_percentiles_rise_and_are_values_that_were_there(values: list[float]) -> None:
    found = metering.aggregates_of(values)
    told = [found.p50, found.p90, found.p95, found.p99]
    assert told == sorted(told)
    assert set(told) <= set(values)
    assert min(values) <= found.avg * (1 + 1e-9) + 1e-9
    assert found.avg <= max(values) * (1 + 1e-9) + 1e-9


def test_the_past_is_bounded_whatever_is_asked_for() -> None:
    series = Series(points=100)
    series.every_s = 4.0
    for second in range(1000):
        series.add(float(second), (float(second), None, None, None))
    values, span_s = series.column(0, -1.0)
    assert len(values) == 100
    assert span_s == 396
    assert values[-1] - values[-2] == 4
    assert max(values) == pytest.approx(997.5)
    assert series.column(1, -1.0) == ([], 0.0)


def test_an_average_follows_the_window_in_slices_and_forgets_who_has_gone() -> None:
    averages = Averages(100.0)
    for second in range(300):
        uses = {"a": Use(cpu_millicores=float(second))} | ({"b": Use(memory_bytes=7)} if second < 50 else {})
        averages.add(float(second), uses)
    assert averages.mean("a").cpu_millicores == pytest.approx(249.5, abs=10)
    assert averages.mean("b") == Use()


def test_numa_nodes_by_their_own_clocks() -> None:
    meter = Meter(Collection(aggregate_s=60))
    for second in range(61):
        meter.take_numa(
            float(second),
            {
                0: NumaState(
                    busy_ticks=1000 + second * TICKS_PER_SECOND, memory_used_bytes=100, memory_not_free_bytes=300
                ),
                1: NumaState(),
            },
        )
    assert meter.numa(60.0) == {0: Use(cpu_millicores=pytest.approx(1000), memory_bytes=100), 1: Use()}
    assert not meter.wants_numa(60.5)
    assert Meter().numa(0.0) == {}


def test_memory_with_page_cache_is_all_that_is_not_free() -> None:
    meter = Meter(Collection(aggregate_s=60, page_cache=True))
    taken = Sample(
        node="n", time="t", cpu=Cpu(online=4, used_ratio=0.5), memory=Memory(available_ratio=0.5, free_ratio=0.25),
        cgroups=[group("k/a", 0.1)],
    )  # fmt: skip
    meter.take(0.0, taken, PODS)
    assert meter.node(0.0).memory_bytes == 6 * GIB
    assert meter.pod("k/a").memory_bytes == 2 * GIB
