from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.act.machine import Machine, usage, use, writes

from cotenant.act import comparison, cpu_normalization, planning
from cotenant.model import node as nodes
from cotenant.model import policy

Make = Callable[..., Machine]
BURST = {"cpuBurstStrategy": {"policy": "cfsQuotaBurstOnly"}}


def node_of(ratio: str | None) -> dict[str, Any]:
    return {"metadata": {"annotations": {} if ratio is None else {nodes.CPU_NORMALIZATION_ANNOTATION: ratio}}}


def limited(node: Machine, name: str, label: str | None = "LS", cpu: str = "1", kube: str = "Burstable") -> str:
    """Start a pod of one container as the kubelet does: pod and container have the quota of the limit."""
    group = node.pod(name, kube, label, containers=[{"limits": {"cpu": cpu}, "requests": {"cpu": cpu}}])
    for place in (group, node.container(group)):
        node.write("cpu", place, "cpu.max" if node.v2 else "cpu.cfs_quota_us", f"{int(float(cpu) * 100_000)}")
    return group


def written(node: Machine, *groups: str) -> Mapping[str, str]:
    """Return a journal that says of these groups' quotas that they are ours."""
    return {node.path("cpu", group, "cpu.max" if node.v2 else "cpu.cfs_quota_us"): "100000" for group in groups}


@pytest.mark.parametrize(
    ("quota", "ratio", "divided"),
    [
        (100_000, "1.2", 83_334),
        (120_000, "1.2", 100_000),
        (100_000, "1.15", 86_957),
        (330_000, "1.1", 300_000),  # by binary floating point a hair below, or above, a whole number
        (400_000, "5", 80_000),
        (100_000, "1.00", 100_000),
        (1_000, "2", 1_000),  # the kernel takes no less
        (1_500, "1.4", 1_072),
    ],
)
def test_worked_values(quota: int, ratio: str, divided: int) -> None:
    assert cpu_normalization.normalized_usec(quota, Fraction(ratio)) == divided


@settings(max_examples=60)
@given(
    quota=st.integers(1_000, 10_000_000),
    ratio=st.fractions(1, 5, max_denominator=1000),
    more=st.fractions(0, 2, max_denominator=1000),
)
def test_the_quotient_is_the_least_that_is_enough(quota: int, ratio: Fraction, more: Fraction) -> None:
    divided = cpu_normalization.normalized_usec(quota, ratio)
    assert 1_000 <= divided <= quota
    assert divided * ratio >= quota
    assert divided == 1_000 or (divided - 1) * ratio < quota
    assert cpu_normalization.normalized_usec(quota, ratio + more) <= divided


@pytest.mark.parametrize(
    ("text", "ratio", "named"),
    [
        (None, 1, False),
        ("1.00", 1, False),
        ("1.15", Fraction(23, 20), False),
        ("5", 5, False),
        ("5.01", 1, True),
        ("0.8", 1, True),
        ("-1", 1, True),
        ("fast", 1, True),
        ("", 1, True),
        ("nan", 1, True),
        ("1e999999999", 1, True),
    ],
)
def test_a_ratio_that_cannot_be_is_one_and_is_named(
    machine: Make, text: str | None, ratio: Fraction, named: bool
) -> None:
    node = machine()
    group = limited(node, "ls")
    assert node.look(node=node_of(text)).node.cpu_normalization_ratio == ratio
    plan = node.enforce({}, node=node_of(text))
    assert any(nodes.CPU_NORMALIZATION_ANNOTATION in notice for notice in plan.notices) is named
    assert int(node.quota(node.container(group))) == -(-100_000 // ratio)


@pytest.mark.parametrize("flavour", ["mainline-v1", "mainline-v2", "openeuler", "anolis-bvt"])
def test_containers_are_divided_once_and_their_pod_is_not(machine: Make, flavour: str) -> None:
    node = machine(flavour)
    groups = [limited(node, "ls"), limited(node, "plain", None), limited(node, "guaranteed", None, kube="Guaranteed")]
    node.enforce({}, node=node_of("1.2"))
    assert [node.quota(node.container(group)) for group in groups] == ["83334"] * 3
    # Below its containers' limits a pod on v1 would refuse each container that starts anew.
    assert [node.quota(group) for group in groups] == ["100000"] * 3
    assert node.plan({}, node=node_of("1.2")).items == ()


@pytest.mark.parametrize("label", ["LSR", "LSE", "SYSTEM", "BE"])
def test_other_classes_keep_their_quota(machine: Make, label: str) -> None:
    node = machine()
    group = limited(node, "p", label)
    assert not writes(node.plan({}, node=node_of("2")), "cpu.cfs_quota_us")
    assert node.quota(node.container(group)) == "100000"


def test_cpus_of_its_own_are_not_divided(machine: Make) -> None:
    node = machine()
    status = {"scheduling.koordinator.sh/resource-status": {"cpuset": "2-3"}}
    given_ = node.pod("given", "Burstable", "LS", containers=[{"limits": {"cpu": "2"}}], annotations=status)
    node.enforce({}, node=node_of("2"))
    assert node.quota(node.container(given_)) == "-1"


def test_what_the_kubelet_pinned_is_not_divided_and_its_sidecar_is(machine: Make) -> None:
    node = machine()
    resources = [{"limits": {"cpu": cpu}, "requests": {"cpu": cpu}} for cpu in ("2", "0.5")]
    group = node.pod("pinned", "Guaranteed", None, containers=resources)
    main, sidecar = node.container(group), node.container(group, 1)
    node.write("cpuset", main, "cpuset.cpus", "2-3")
    for place, quota in ((group, 250_000), (main, 200_000), (sidecar, 50_000)):
        node.write("cpu", place, "cpu.cfs_quota_us", str(quota))
    static = {"kubelet.koordinator.sh/cpu-manager-policy": '{"policy": "static"}'}
    node.enforce({}, node=node_of("2"), nrt={"metadata": {"annotations": static}})
    assert [node.quota(place) for place in (main, sidecar, group)] == ["200000", "25000", "250000"]


def test_a_quota_that_somebody_lifted_stays_lifted(machine: Make) -> None:
    node = machine()
    group = limited(node, "ls")
    node.write("cpu", node.container(group), "cpu.cfs_quota_us", "-1")
    assert node.plan({}, node=node_of("1.2")).items == ()


@pytest.mark.parametrize("gone", [None, "1.00"])
def test_without_the_annotation_containers_get_back_what_they_had(machine: Make, gone: str | None) -> None:
    node = machine()
    group = limited(node, "ls")
    node.enforce({}, node=node_of("1.25"))
    container = node.container(group)
    assert node.quota(container) == "80000"
    assert node.plan({}, node=node_of(gone)).items == ()  # no write of ours: somebody else's 80000
    node.enforce({}, node=node_of(gone), journal=written(node, container))
    assert (node.quota(container), node.quota(group)) == ("100000", "100000")


@pytest.mark.parametrize("label", ["LSR", "BE"])
def test_batch_cpu_is_divided_as_what_was_offered_was_multiplied(machine: Make, label: str) -> None:
    node = machine("mainline-v2")
    spec = {"limits": {"kubernetes.io/batch-cpu": "1500"}, "requests": {"kubernetes.io/batch-cpu": "1500"}}
    group = node.pod("be", "BestEffort", label, containers=[spec])
    node.enforce({}, node=node_of("1.2"))
    expected = "125000" if label == "BE" else "max"
    assert (node.quota(group), node.quota(node.container(group))) == (expected, expected)
    if label == "BE":
        assert node.read("cpu", group, "cpu.weight") == "59"  # by the request: shares are relative already


# --- beside a burst -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flavour", ["mainline-v1", "mainline-v2"])
def test_a_quota_burst_starts_from_the_divided_quota_and_ends_there(machine: Make, flavour: str) -> None:
    node = machine(flavour)
    group = limited(node, "ls")
    container, journal = node.container(group), {}
    calm, busy = usage(node=500, ls=use(500)), usage(node=500, ls=use(500, throttled=0.5))
    node.enforce(BURST, node=node_of("1.25"), usage=calm)
    assert (node.quota(container), node.quota(group)) == ("80000", "100000")
    journal = written(node, container)
    seen = []
    for _ in range(8):
        node.enforce(BURST, node=node_of("1.25"), usage=busy, journal=journal)
        seen.append(int(node.quota(container)))
        assert int(node.quota(group)) >= max(100_000, seen[-1])
    assert seen[0] == 96_000
    assert seen[-1] == 240_000  # 300 % of the divided quota
    over = usage(node=4000, ls=use(3900, throttled=0.5))
    for _ in range(12):
        node.enforce(BURST, node=node_of("1.25"), usage=over, journal=journal)
    assert (node.quota(container), node.quota(group)) == ("80000", "100000")
    assert node.plan(BURST, node=node_of("1.25"), usage=over, journal=journal).items == ()


def test_the_two_never_take_turns(machine: Make) -> None:
    node = machine()
    group = limited(node, "ls")
    container = node.container(group)
    busy = usage(node=500, ls=use(500, throttled=0.5))
    for _ in range(3):
        node.enforce(BURST, node=node_of("1.25"), usage=busy, journal=written(node, container))
    enlarged = node.quota(container)
    assert int(enlarged) > 100_000
    # Without usage nobody can say whether there is room: what is enlarged stays.
    assert node.plan(BURST, node=node_of("1.25"), journal=written(node, container)).items == ()
    quiet = usage(node=500, ls=use(500))
    for _ in range(3):
        node.enforce(BURST, node=node_of("1.25"), usage=quiet, journal=written(node, container))
    assert node.quota(container) == enlarged
    node.enforce({}, node=node_of("1.25"), usage=quiet, journal=written(node, container, group))
    assert (node.quota(container), node.quota(group)) == ("80000", "100000")


@pytest.mark.parametrize("flavour", ["mainline-v1", "mainline-v2", "openeuler"])
def test_the_burst_fits_the_divided_quota(machine: Make, flavour: str) -> None:
    node = machine(flavour)
    group = limited(node, "ls")
    slo = {"cpuBurstStrategy": {"policy": "cpuBurstOnly"}}
    file = "cpu.max.burst" if node.v2 else "cpu.cfs_burst_us"
    node.enforce(slo)
    assert node.read("cpu", node.container(group), file) == "100000"
    node.enforce(slo, node=node_of("1.25"))
    assert node.read("cpu", node.container(group), file) == "80000"
    assert node.quota(node.container(group)) == "80000"
    assert node.plan(slo, node=node_of("1.25")).items == ()


@pytest.mark.parametrize(("quota", "after"), [(83_334, "100000"), (90_000, "90000"), (-1, "-1")])
def test_a_pod_that_koordlet_divided_gets_the_kubelets_quota(machine: Make, quota: int, after: str) -> None:
    node = machine()
    group = limited(node, "ls")
    node.write("cpu", node.container(group), "cpu.cfs_quota_us", "83334")
    node.write("cpu", group, "cpu.cfs_quota_us", str(quota))
    node.enforce({}, node=node_of("1.2"))
    assert (node.quota(group), node.quota(node.container(group))) == (after, "83334")
    assert node.plan({}, node=node_of("1.2")).items == ()


# --- beside koordlet ------------------------------------------------------------------------------------------------


def test_beside_koordlet_the_difference_is_explained_and_the_same_quotient_agrees(machine: Make) -> None:
    node = machine()
    divided, whole, odd = (limited(node, name) for name in ("divided", "whole", "odd"))
    node.write("cpu", node.container(divided), "cpu.cfs_quota_us", "83334")
    node.write("cpu", divided, "cpu.cfs_quota_us", "83334")
    node.write("cpu", node.container(odd), "cpu.cfs_quota_us", "70000")
    seen = node.look(node=node_of("1.2"))
    found = comparison.compare(seen, planning.plan(seen, policy.NodeSlo()))
    assert found.agreed == 1
    known = {one.path.split("/")[-3]: one.explanation for one in found.differences}
    assert "keeps its containers from starting" in known.pop("burstable")
    assert "CPUNormalization" in known[whole.rpartition("/")[2]]
    assert known[odd.rpartition("/")[2]] == ""
    assert sorted(one.wanted for one in found.differences) == ["100000", "83334", "83334"]
