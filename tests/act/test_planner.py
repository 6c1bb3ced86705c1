"""Planning round after round: the same as planning anew, and cheaper."""

import pathlib
from collections.abc import Callable
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.act.machine import Machine, usage

from cotenant.act import planning, registry
from cotenant.act.draft import Draft
from cotenant.model import policy

Make = Callable[..., Machine]
ON = {
    "resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressPolicy": "cfsQuota"},
    "resourceQOSStrategy": {
        name: {"cpuQOS": {"enable": True}, "memoryQOS": {"enable": True}} for name in ("lsClass", "beClass")
    },
    "cpuBurstStrategy": {"policy": "auto"},
}
BY_CPUSET = {**ON, "resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressPolicy": "cpuset"}}
POLICIES = (ON, BY_CPUSET, {}, {"resourceQOSStrategy": ON["resourceQOSStrategy"]})
AMOUNTS = {"requests": {"cpu": "500m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}}


def grown(node: Machine, number: int) -> None:
    """Start one pod more, of one class or the other."""
    kube, label = (("Burstable", "LS"), ("BestEffort", "BE"))[number % 2]
    node.pod(f"p{len(node.listed)}", kube, label, containers=({} if label == "BE" else AMOUNTS,))


def disturbed(node: Machine, number: int) -> None:
    """Write what somebody else could into a file of the last pod."""
    group = f"{('kubepods/burstable', 'kubepods/besteffort')[number % 2]}"
    name, value = (("cpu.weight", "300"), ("cpu.max", "20000 100000")) if node.v2 else (
        ("cpu.shares", "300"), ("cpu.cfs_quota_us", "20000"),
    )  # fmt: skip
    node.write("cpu", group, *((name, value)[number // 2 % 2]))


STEPS = {"pod": grown, "write": disturbed}


@settings(max_examples=25)
@given(
    st.sampled_from(["mainline-v1", "mainline-v2", "openeuler", "anolis-bvt-v2", "tencent"]),
    st.lists(
        st.tuples(
            st.sampled_from(["pod", "write", "nothing"]),
            st.integers(0, 3),
            st.sampled_from(POLICIES),
            st.sampled_from([0, 900, 5000]),
            st.booleans(),
        ),
        min_size=2,
        max_size=6,
    ),
)
def test_rounds_plan_what_a_plan_from_the_start_would(tmp_path_factory, flavour, rounds) -> None:
    node = Machine(tmp_path_factory.mktemp("node"), flavour, cpus=4)
    for step, number, slo, used, applied in rounds:
        if step in STEPS:
            STEPS[step](node, number)
        plan = node.plan(slo, usage=usage(node=used, system=100, p0=used / 2))  # compares both
        if applied:
            node.apply(plan)


def test_a_strategy_is_asked_again_only_for_what_it_sees_or_has_read(tmp_path: pathlib.Path) -> None:
    node = Machine(tmp_path, "mainline-v2", cpus=4)
    for number in range(4):
        grown(node, number)
    asked: list[str] = []
    counted = {}
    for name, known in registry.STRATEGIES.items():

        def decide(draft: Draft, slo: policy.NodeSlo, name: str = name, real: registry.Decide = known.decide) -> None:
            asked.append(name)
            real(draft, slo)

        counted[name] = registry.Strategy(name, decide, known.fields, known.features, known.needs_usage, known.summary)
    slo, _ = policy.decode({"spec": ON})
    by_usage = [name for name in registry.ORDER if registry.STRATEGIES[name].needs_usage]
    planner = planning.Planner()
    with mock.patch.dict(registry.STRATEGIES, counted):

        def round_of(used: float) -> list[str]:
            asked.clear()
            planner.plan(node.look(usage=usage(node=used, system=100)), slo)
            return list(asked)

        assert round_of(100) == list(registry.ORDER)
        assert round_of(900) == by_usage
        grown(node, 0)
        assert round_of(900) == list(registry.ORDER)
        assert round_of(900) == by_usage
        # A CPU list that batch work, CPU sets or identities read: those that read it are asked again, no one else.
        group = node.listed[1]["metadata"]["uid"]
        node.write("cpu", f"kubepods/besteffort/pod{group}", "cpu.idle", "1")
        again = round_of(900)
        assert "group_identity" in again
        assert "memory_qos" not in again
