import pathlib
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.act.machine import Machine, usage
from tests.double import model

from cotenant.act import planning
from cotenant.act.registry import ORDER, STRATEGIES
from cotenant.model import node as nodes
from cotenant.units import cpulist

ON = {"cpuQOS": {"enable": True}, "memoryQOS": {"enable": True, "lowLimitPercent": 50, "throttlingPercent": 80}}
STATUS = "scheduling.koordinator.sh/resource-status"
QOS = st.sampled_from(["Guaranteed", "Burstable", "BestEffort"])
LABEL = st.sampled_from(["LSE", "LSR", "LS", "BE", "SYSTEM", None])
PODS = st.lists(st.tuples(QOS, LABEL, st.integers(0, 4000), st.booleans()), max_size=4)
FLAVOURS = sorted(model.FLAVOURS)


def resources(milli: int, label: str | None) -> Mapping[str, Any]:
    amount: dict[str, str] = {"cpu": f"{milli}m", "memory": f"{milli}Mi"} if milli else {}
    if label == "BE" and milli % 2:
        amount = {"kubernetes.io/batch-cpu": str(milli), "kubernetes.io/batch-memory": f"{milli}Mi"}
    return {"requests": amount, "limits": amount}


def populate(node: Machine, pods: list[tuple[str, str | None, int, bool]]) -> nodes.Usage:
    for number, (kube, label, milli, owns) in enumerate(pods):
        cpus = {STATUS: {"cpuset": f"{number}-{number + 1}"}} if owns and label in ("LSR", "LSE") else {}
        node.pod(f"p{number}", kube, label, containers=[resources(milli, label)], annotations=cpus)
    used = {f"p{number}": float(milli) for number, (_, _, milli, _) in enumerate(pods)}
    return usage(node=sum(used.values()), **used)


def policy_of(policy: str) -> dict[str, Any]:
    return {
        "resourceUsedThresholdWithBE": {
            "enable": True,
            "cpuSuppressPolicy": policy,
            "memoryEvictThresholdPercent": 100,
        },
        "resourceQOSStrategy": {"lsrClass": ON, "lsClass": ON, "beClass": ON, "systemClass": ON},
        "cpuBurstStrategy": {"policy": "cpuBurstOnly"},
    }


@settings(
    max_examples=20,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(pods=PODS, flavour=st.sampled_from(FLAVOURS), policy=st.sampled_from(["cpuset", "cfsQuota"]))
def test_plans_settle_and_keep_every_promise(
    pods: list[tuple[str, str | None, int, bool]], flavour: str, policy: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    node = Machine(tmp_path_factory.mktemp("node"), flavour)
    seen = populate(node, pods)
    slo = policy_of(policy)
    tops = {f"{hierarchy.point}" for hierarchy in node.kernel.hierarchies}
    directories = {
        f"{top}/{path}" for top in tops for path in ("kubepods", "kubepods/burstable", "kubepods/besteffort")
    }
    for _ in range(12):
        plan = node.enforce(slo, usage=seen)  # the double raises on anything that the kernel refuses
        for item in plan.items:
            group, _, file = str(item.path).rpartition("/")
            if file == "cpuset.cpus":
                assert cpulist.parse(item.new or "")
            if file in ("cpu.idle", "cpu.qos_level", "memory.qos_level"):
                assert group not in tops | directories
            assert group not in tops or file not in ("cpu.bvt_warp_ns", "cpu.offline", "cpu.priority", "cpu.identity")
            if item.op == "write":
                assert item.old == item.old.strip() if item.old else True
        if not plan.items:
            break
    assert node.plan(slo, usage=seen).items == ()
    assert not list(node.kernel.refused())


def test_every_strategy_is_in_the_order_and_documented() -> None:
    assert set(ORDER) == set(STRATEGIES)
    assert len(planning.MODULES) == len(ORDER)
    assert all(strategy.summary for strategy in STRATEGIES.values())


def test_of_two_strategies_one_owns_a_file(tmp_path: pathlib.Path) -> None:
    node = Machine(tmp_path)
    node.pod("own", "Guaranteed", "LSR", containers=[{"limits": {"cpu": "2"}}], annotations={STATUS: {"cpuset": "0-1"}})
    node.pod("be", "BestEffort", "BE")
    plan = node.plan(policy_of("cpuset"), usage=usage(node=100))
    final: dict[str, set[str]] = {}
    for item in plan.items:
        if item.path:
            final.setdefault(item.path, set()).add(item.strategy)
    assert all(len(owners) == 1 for owners in final.values())
    assert {"cpu_suppress", "cpuset", "group_identity"} <= {owner for owners in final.values() for owner in owners}
