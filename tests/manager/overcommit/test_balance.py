"""One node worked out whole: pods, what they use, and what is left for others."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.api.koordinator import node_metric
from cotenant.manager.overcommit import balance, consumption, names, strategy
from cotenant.manager.overcommit.consumption import Consumption, PodUse, Use
from cotenant.manager.overcommit.nodes import NodeFacts
from cotenant.manager.overcommit.pods import PodFacts

GIB = 1 << 30
WALL = 2_000_000_000.0
CPU, MEMORY = names.BATCH["cpu"], names.BATCH["memory"]


def node(**fields: Any) -> NodeFacts:
    size = {"cpu": 100_000, "memory": 100 * GIB}
    return NodeFacts(name="n1", capacity=size, reserved={"cpu": 0, "memory": 0}, **fields)


def pod(name: str, cpu: int, memory: int = 0, **fields: Any) -> PodFacts:
    shown: dict[str, Any] = {"high_priority": True, "prod": True, "running_since": WALL - 3600, **fields}
    return PodFacts(key=f"d/{name}", node="n1", request={"cpu": cpu, "memory": memory}, **shown)


def used(cpu: int | None, memory: int | None = 0, offline: bool = False) -> PodUse:
    return PodUse(Use(cpu, memory), offline)


def measured(total: Use, system: Use | None = None, **pods: PodUse) -> Consumption:
    named = {f"d/{name}": use for name, use in pods.items()}
    return Consumption(source="stream", node=total, system=system, pods=named)


def balanced(pods: list[PodFacts], use: Consumption, **config: Any) -> dict[str, int]:
    return balance.of(node(), pods, use, strategy.of({"enable": True, **config}, {}, {}).strategy, WALL).values


def test_the_worked_example() -> None:
    """100 cores, 60 %; the system uses 7, high-priority pods 11; 100 GiB, 65 %: 12 and 21."""
    use = measured(
        Use(26_000, 40 * GIB),
        Use(7_000, 12 * GIB),
        web=used(8_000, 15 * GIB),
        db=used(3_000, 6 * GIB),
        job=used(8_000, 7 * GIB, offline=True),
    )
    pods = [pod("web", 30_000), pod("db", 10_000), pod("job", 0, high_priority=False, prod=False)]
    values = balanced(pods, use)
    assert (values[CPU], values[MEMORY]) == (42_000, 32 * GIB)


def test_where_nobody_states_what_the_system_uses_it_is_the_rest() -> None:
    use = measured(Use(26_000, 40 * GIB), web=used(11_000, 21 * GIB), job=used(8_000, 7 * GIB, offline=True))
    assert balanced([pod("web", 30_000)], use)[CPU] == 60_000 - 7_000 - 11_000


@pytest.mark.parametrize("policy", ["usage", "request", "maxUsageRequest"])
def test_a_pod_without_a_metric_counts_once_by_its_request(policy: str) -> None:
    # It runs already and is a part of what the node uses: 10 cores of its 16.
    use = measured(Use(10_000, 0))
    assert balanced([pod("web", 16_000)], use, cpuCalculatePolicy=policy)[CPU] == 60_000 - 16_000


def test_a_pod_that_does_not_run_yet_is_no_part_of_what_is_used() -> None:
    pending = pod("web", 16_000, running_since=None)
    assert balanced([pending], measured(Use(10_000, 0)))[CPU] == 60_000 - 10_000 - 16_000


def test_what_pods_without_a_metric_use_beyond_their_requests_is_not_lost() -> None:
    use = measured(Use(20_000, 0))
    assert balanced([pod("web", 16_000)], use)[CPU] == 60_000 - 20_000


def test_a_pod_that_has_just_started_counts_by_its_request_until_it_has_settled() -> None:
    use = measured(Use(500, 0), web=used(500))
    young = pod("web", 16_000, running_since=WALL - 299)
    assert balanced([young], use)[CPU] == 44_000
    assert balanced([pod("web", 16_000, running_since=WALL - 300)], use)[CPU] == 59_500
    assert balanced([pod("web", 16_000, running_since=None)], use)[CPU] == 44_000


def test_a_metric_of_a_pod_that_is_not_listed_counts_unless_it_is_offline_work() -> None:
    use = measured(Use(5_000, 0), gone=used(3_000), job=used(2_000, offline=True))
    assert balanced([], use)[CPU] == 57_000


def test_a_metric_that_outlives_its_finished_pod_counts_for_nobody() -> None:
    finished = pod("done", 0, high_priority=False, prod=False, running_since=None)
    assert balanced([finished], measured(Use(5_000, 0), done=used(3_000)))[CPU] == 58_000


def test_exclusive_pods_keep_their_cpus_and_not_their_memory() -> None:
    use = measured(Use(1_000, GIB), Use(0, 0), db=used(1_000, GIB))
    values = balanced([pod("db", 8_000, 30 * GIB, exclusive=True)], use)
    assert (values[CPU], values[MEMORY]) == (52_000, 64 * GIB)


def test_what_is_not_known_is_left_out() -> None:
    values = balanced([], measured(Use(None, 10 * GIB)))
    assert CPU not in values
    assert values[MEMORY] == 55 * GIB


def test_applications_outside_kubernetes_have_precedence_unless_they_are_batch() -> None:
    said = {
        "nodeMetric": {"nodeUsage": {"resources": {"cpu": "20", "memory": "1Gi"}}},
        "hostApplicationMetric": [
            {"name": "nginx", "priority": "koord-prod", "usage": {"resources": {"cpu": "4"}}},
            {"name": "crunch", "priority": "koord-batch", "usage": {"resources": {"cpu": "6"}}},
        ],
    }
    use = consumption.of_node_metric(msgspec.convert(said, node_metric.NodeMetricStatus))
    # 10 of 20 cores are the system's, 4 nginx's; the other 6 yield to nobody's harm.
    assert balanced([], use)[CPU] == 60_000 - 10_000 - 4_000


def test_a_node_metric_is_read_exactly_and_rounded_up() -> None:
    said = {
        "updateTime": "2026-11-30T00:00:00Z",
        "nodeMetric": {
            "nodeUsage": {"resources": {"cpu": "11.0000001", "memory": "1500m"}},
            "systemUsage": {"resources": {"cpu": "7"}},
            "numaUsages": [{"numaNodeID": 1, "systemUsage": {"resources": {"cpu": "3"}}}],
        },
        "podsMetric": [
            {"name": "web", "namespace": "d", "priority": "koord-prod", "podUsage": {"resources": {"cpu": "1"}}},
            {"name": "job", "namespace": "d", "priority": "koord-free", "podUsage": {"resources": {"cpu": "250u"}}},
        ],
        "prodReclaimableMetric": {"resource": {"resources": {"cpu": "5"}}},
    }
    status = msgspec.convert(said, node_metric.NodeMetricStatus)
    use = consumption.of_node_metric(status)
    assert use.node == Use(11_001, 2)
    assert use.system == Use(7_000, None)
    assert use.zones == {1: Use(3_000, None)}
    assert use.pods == {"d/web": used(1_000, None), "d/job": used(1, None, offline=True)}
    assert use.reclaimable == Use(5_000, None)
    assert consumption.updated_at(status) == 1_795_996_800


def test_mid_work_is_counted_where_it_asks_and_not_against_itself() -> None:
    use = Consumption(
        source="NodeMetric",
        node=Use(70_000, 0),
        system=Use(5_000, 0),
        pods={"d/web": used(40_000), "d/mid": used(20_000)},
        reclaimable=Use(60_000, 0),
    )
    pods = [pod("web", 50_000), pod("mid", 20_000, prod=False)]
    values = balanced(pods, use)
    assert values[names.MID["cpu"]] == 50_000  # 100 less the 50 that others use
    assert values[CPU] == 60_000 - 5_000 - 60_000 + 5_000  # mid work has precedence over batch: nothing is left


names_of_pods = st.sampled_from(["a", "b", "c"])


@settings(max_examples=30)
@given(
    st.dictionaries(names_of_pods, st.tuples(st.integers(0, 50_000), st.booleans(), st.booleans()), max_size=3),
    st.dictionaries(names_of_pods, st.integers(0, 50_000), max_size=3),
    st.integers(0, 100_000),
    st.sampled_from(["usage", "request", "maxUsageRequest"]),
)
def test_what_is_promised_never_touches_what_is_in_use(
    asked: dict[str, tuple[int, bool, bool]], uses: dict[str, int], rest: int, policy: str
) -> None:
    """By use, promises and all that has precedence fit below the threshold, whatever metrics are missing."""
    pods = [
        pod(name, request, high_priority=high, prod=high, running_since=WALL - 3600 if old else None)
        for name, (request, high, old) in asked.items()
    ]
    offline = {name for name, (_, high, _) in asked.items() if not high}
    total = rest + sum(uses.values())
    use = measured(Use(total, 0), **{name: used(amount, offline=name in offline) for name, amount in uses.items()})
    value = balanced(pods, use, cpuCalculatePolicy=policy)[CPU]
    assert 0 <= value <= 60_000
    unmeasured_offline = sum(asked[name][0] for name in offline if name not in uses and asked[name][2])
    in_use = total - sum(amount for name, amount in uses.items() if name in offline) - unmeasured_offline
    if policy != "request":
        assert value == 0 or value + in_use <= 60_000
    assert value <= max(60_000 - sum(request for request, high, old in asked.values() if high and not old), 0)
