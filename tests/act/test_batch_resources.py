from collections.abc import Callable
from typing import Any

import pytest
from tests.act.machine import Machine, usage

from cotenant.act import batch_resources, cgroup
from cotenant.model.pod import Container
from cotenant.units.limit import Limit

Make = Callable[..., Machine]


def batch(cpu: int | None, memory: str | None = None, *, limit: bool = True) -> dict[str, Any]:
    given = {"kubernetes.io/batch-cpu": None if cpu is None else str(cpu), "kubernetes.io/batch-memory": memory}
    amounts = {name: value for name, value in given.items() if value is not None}
    return {"requests": amounts, **({"limits": amounts} if limit else {})}


@pytest.mark.parametrize(
    ("milli", "shares", "weight", "quota"),
    [
        (0, 2, 1, None),
        (2, 2, 1, 1000),
        (10, 10, 1, 1000),
        (500, 512, 20, 50_000),
        (1500, 1536, 59, 150_000),
        (4000, 4096, 157, 400_000),
        (64_000, 65_536, 2500, 6_400_000),
        (300_000, 262_144, 10_000, 30_000_000),
    ],
)
def test_worked_values(milli: int, shares: int, weight: int, quota: int | None) -> None:
    container = Container(name="a", limits={"kubernetes.io/batch-cpu": str(milli)})
    assert cgroup.shares_of(milli) == shares
    assert cgroup.weight_of(shares) == weight
    assert batch_resources.quota_usec([container]) == Limit(quota)


@pytest.mark.parametrize("flavour", ["mainline-v1", "mainline-v2", "openeuler", "anolis-bvt", "tencent"])
def test_a_pod_and_its_containers_are_held_to_what_they_asked_for(machine: Make, flavour: str) -> None:
    node = machine(flavour)
    group = node.pod("be", label="BE", containers=[batch(500, "1Gi"), batch(1500, "3Gi")])
    plan = node.enforce({})
    assert [node.quota(g) for g in (group, node.container(group), node.container(group, 1))] == [
        "200000",
        "50000",
        "150000",
    ]
    file = "memory.max" if node.v2 else "memory.limit_in_bytes"
    assert [node.read("memory", g, file) for g in (group, node.container(group))] == [str(4 << 30), str(1 << 30)]
    weight = "cpu.weight" if node.v2 else "cpu.shares"
    assert node.read("cpu", node.container(group), weight) == ("20" if node.v2 else "512")
    assert plan.items
    assert node.plan({}).items == ()


def test_a_missing_limit_is_no_limit(machine: Make) -> None:
    node = machine("mainline-v2")
    group = node.pod("be", label="BE", containers=[batch(500, "1Gi"), batch(1000, limit=False)])
    node.enforce({})
    assert node.quota(group) == "max"
    assert (node.quota(node.container(group)), node.quota(node.container(group, 1))) == ("50000", "max")
    assert node.read("memory", group, "memory.max") == "max"


def test_a_tiny_limit_is_accepted_by_the_kernel_and_named(machine: Make) -> None:
    node = machine()
    group = node.pod("be", label="BE", containers=[batch(8)])
    plan = node.enforce({})
    assert node.quota(node.container(group)) == "1000"
    assert any("8 thousandths" in text for text in plan.notices)


def test_while_suppression_is_by_quota_pods_have_none(machine: Make) -> None:
    node = machine()
    group = node.pod("be", label="BE", containers=[batch(2000)])
    node.enforce({})
    assert node.quota(group) == "200000"
    suppressed = {"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressPolicy": "cfsQuota"}}
    node.enforce(suppressed, usage=usage(node=5000, system=5000))
    assert [node.quota(g) for g in (group, node.container(group), "kubepods/besteffort")] == ["-1", "-1", "200000"]


def test_sidecars_count_and_other_classes_do_not(machine: Make) -> None:
    node = machine()
    group = node.pod("be", label="BE", containers=[batch(1000)])
    node.listed[0]["spec"]["initContainers"] = [{"name": "side", "restartPolicy": "Always", "resources": batch(500)}]
    other = node.pod("plain", containers=[batch(1000)])
    node.enforce({})
    assert (node.quota(group), node.quota(other)) == ("150000", "-1")


def test_the_annotation_says_what_the_container_does_not(machine: Make) -> None:
    node = machine()
    spec = {"containers": {"be-c0": batch(3000)}}
    group = node.pod("be", label="BE", annotations={"node.koordinator.sh/extended-resource-spec": spec})
    node.enforce({})
    assert node.quota(group) == "300000"


def test_an_idle_group_keeps_its_weight_to_itself(machine: Make) -> None:
    node = machine()
    group = node.pod("be", label="BE", containers=[batch(1000)])
    on = {"resourceQOSStrategy": {"beClass": {"cpuQOS": {"enable": True}}}}
    node.enforce(on)
    assert node.read("cpu", group, "cpu.idle") == "1"
    assert node.plan(on).items == ()
