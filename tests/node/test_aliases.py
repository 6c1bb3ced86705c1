"""koordlet's series: their names and labels to the letter, our values."""

import pathlib
from collections.abc import Callable
from typing import Any

import prometheus_client
import pytest
from prometheus_client.openmetrics import exposition as openmetrics
from tests.act.machine import Machine, use

from cotenant.act import planning
from cotenant.kernel import enforcing
from cotenant.kernel.outcome import Outcome
from cotenant.model import policy
from cotenant.model.node import Usage, Use
from cotenant.node.aliases import DETAILS_LIMIT, Aliases
from cotenant.units.plan import PlanItem

Make = Callable[..., Machine]
USED = Usage(
    node=Use(cpu_millicores=4500, memory_bytes=1 << 30),
    system=use(500),
    pods={"default/web": use(3000), "default/gone": use(200), "default/batch": use(800)},
)


def slo(**changes: Any) -> policy.NodeSlo:
    return policy.decode({"spec": {"resourceUsedThresholdWithBE": {"enable": True, **changes}}})[0]


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> Machine:
    found = Machine(tmp_path, "mainline-v1", cpus=8)
    found.pod("web", "Burstable", "LS")
    found.pod("batch", "BestEffort", "BE")
    return found


def text_of(aliases: Aliases, render: Callable[[Any], bytes] = prometheus_client.generate_latest) -> list[str]:
    registry = prometheus_client.CollectorRegistry()
    registry.register(aliases)
    return [line for line in render(registry).decode().splitlines() if not line.startswith("#")]


@pytest.mark.parametrize(
    ("rules", "series"),
    [
        # 65 % of 8 CPUs less 3.2 of online pods (one without metadata) and 0.5 of the system: 1.5 CPUs; the floor is 2.
        (slo(cpuSuppressPolicy="cfsQuota"), 'koordlet_be_suppress_cpu_cores{node="n1",type="cfsQuota"} 2.0'),
        (slo(), 'koordlet_be_suppress_cpu_cores{node="n1",type="cpuset"} 2.0'),
        (slo(enable=False), None),
    ],
)
def test_what_offline_pods_may_use(machine: Machine, rules: policy.NodeSlo, series: str | None) -> None:
    aliases = Aliases("n1")
    seen = machine.look(usage=USED)
    aliases.take(seen, USED, rules, planning.plan(seen, rules), None)
    found = [line for line in text_of(aliases) if "be_suppress_cpu_cores" in line]
    assert found == ([] if series is None else [series])


def test_use_of_the_node_and_of_both_sides(machine: Machine) -> None:
    aliases = Aliases("n1")
    aliases.take(machine.look(), USED, slo(), None, None)
    assert text_of(aliases) == [
        'koordlet_be_suppress_ls_used_cpu_cores{node="n1"} 3.2',
        'koordlet_be_suppress_be_used_cpu_cores{node="n1"} 0.8',
        'koordlet_node_used_cpu_cores{node="n1"} 4.5',
        'koordlet_node_used_memory_bytes{node="n1"} 1.073741824e+09',
    ]


def test_what_is_not_known_has_no_series(machine: Machine) -> None:
    aliases = Aliases("n1")
    assert text_of(aliases) == []
    aliases.take(machine.look(), None, slo(), None, None)
    assert text_of(aliases) == []
    aliases.take(machine.look(), Usage(node=use(1000), pods={"default/batch": Use()}), slo(), None, None)
    assert text_of(aliases) == [
        'koordlet_be_suppress_ls_used_cpu_cores{node="n1"} 0.0',
        'koordlet_node_used_cpu_cores{node="n1"} 1.0',
    ]


def test_evictions_keep_koordlets_name_in_both_forms(machine: Machine) -> None:
    aliases = Aliases("n1")
    seen = machine.look()

    def evict(key: str, reason: str, state: Any = "written") -> None:
        item = PlanItem(op="evict", new=key, strategy="cpu_evict", reason=f"{reason}: too full")
        aliases.take(seen, None, slo(), None, enforcing.Round((item,), (Outcome(item, state),), seen.priority))

    evict("batch/sort", "BECPUEvict")
    evict("batch/scan", "BEMemoryEvict")
    evict("batch/scan", "CPUEvict")
    evict("batch/kept", "CPUEvict", "left_out")
    for render in (prometheus_client.generate_latest, openmetrics.generate_latest):
        found = text_of(aliases, render)
        assert found[:3] == [
            'koordlet_pod_eviction{node="n1",reason="CPUEvict"} 1.0',
            'koordlet_pod_eviction{node="n1",reason="EvictPodByBECPUSatisfaction"} 1.0',
            'koordlet_pod_eviction{node="n1",reason="EvictPodByNodeMemoryUsage"} 1.0',
        ]
        labels = 'node="n1",pod_name="sort",pod_namespace="batch",reason="EvictPodByBECPUSatisfaction"'
        assert f"koordlet_pod_eviction_detail{{{labels}}} 1.0" in found
    for number in range(2 * DETAILS_LIMIT):
        evict(f"batch/p{number}", "CPUEvict")
    assert sum("eviction_detail" in line for line in text_of(aliases)) == DETAILS_LIMIT
